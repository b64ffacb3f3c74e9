//! Checks that no text of a dialect names a tool that its reader lacks: every scene, with each tool withheld in turn.

use std::collections::BTreeSet;

use subtend::agents::Dialect;
use subtend::models::Request;
use subtend::session::{Limits, Message};
use subtend::{Builder, Options, testing};

use super::conversation::{Calls, Conversation, catalog, limits};
use super::dialects::{minions, scenes};

/// Tools that texts of the project may name.
const KNOWN: [&str; 25] = [
    "task",
    "check_task",
    "cancel_task",
    "spawn",
    "spawn_await",
    "spawn_task",
    "minion",
    "return",
    "subagent",
    "get_tools",
    "use_tool",
    "plan_exit",
    "message",
    "lookup",
    "write_note",
    "broken",
    "list",
    "read",
    "search",
    "write",
    "edit",
    "shell",
    "process",
    "web_search",
    "fetch",
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether a text names a tool: in backticks, in a list of tools, or by a name that is not an English word.
fn names(text: &str, tool: &str) -> bool {
    let is_word_of_english = !tool.contains('_') && !["lookup", "broken"].contains(&tool);
    let listed = ["Available: ", "Valid: ", "Tools: "].iter().flat_map(|start| text.split(start).skip(1)).any(|list| {
        let list = list.split(['.', '<', '\n']).next().unwrap_or_default();
        list.split(", ").any(|name| name == tool)
    });
    let quoted = text.contains(&format!("`{tool}`"));
    quoted || listed || !is_word_of_english && text.split(|c| !is_word(c)).any(|word| word == tool)
}

/// Returns the texts of the host in a request: prompt, tools, results, errors and notices, without the model's own.
fn host_texts(request: &Request) -> Vec<String> {
    let mut texts = vec![request.system.to_string()];
    texts.extend(request.tools.iter().map(|tool| format!("{} {}", tool.description, tool.schema)));
    texts.extend(request.messages.iter().filter_map(|message| match message {
        Message::Result { content, .. } => Some(content.to_string()),
        Message::Notice { text, .. } | Message::Prompt { text } => Some(text.to_string()),
        Message::User { .. } | Message::Assistant { .. } => None,
    }));
    texts
}

/// Removes names that do not offer a tool: the tool that the model itself called, and parameters.
fn without_echo(text: &str) -> String {
    let called = KNOWN.iter().fold(text.to_owned(), |text, tool| {
        text.replace(&format!("no tool is named `{tool}`"), "")
            .replace(&format!("the tool `{tool}` is not available"), "")
            .replace(&format!("missing field `{tool}`"), "")
            .replace(&format!("tools that are not available: {tool}."), "")
    });
    let mut parts = called.split("expected one of ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(';').map_or("", |(_, rest)| rest))
}

fn mentions(what: &str, request: &Request) -> Vec<String> {
    let offered: BTreeSet<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
    let lacks = KNOWN.iter().filter(|tool| !offered.contains(**tool));
    let texts: Vec<String> = host_texts(request).iter().map(|text| without_echo(text)).collect();
    let found = lacks.flat_map(|tool| texts.iter().filter(|text| names(text, tool)).map(move |text| (tool, text)));
    found.map(|(tool, text)| format!("{what}: `{tool}` is not offered, and named by: {text}")).collect()
}

/// A way in which a host withholds tools: its name, and what it changes.
type Withholding = (String, Box<dyn Fn(Builder) -> Builder>);

fn withholdings(dialect: Dialect) -> Vec<Withholding> {
    let own = ["lookup", "write_note", "broken", dialect.name()];
    let without = |left_out: &'static str| -> Withholding {
        let rest: Vec<&str> = own.into_iter().filter(|name| *name != left_out).collect();
        (format!("without {left_out}"), Box::new(move |builder| builder.catalog(catalog(Some(rest.clone())))))
    };
    let mut all: Vec<Withholding> = vec![("with all".to_owned(), Box::new(|builder| builder))];
    all.extend(own.map(without));
    let options = || Options { manage_tasks: false, seed: Some(7), ..Options::default() };
    all.push(("without management".to_owned(), Box::new(move |builder| builder.options(options()))));
    all.push((
        "without room".to_owned(),
        Box::new(|builder| builder.limits(Limits { max_depth: 0, spawns: 0, ..limits() })),
    ));
    all
}

fn conversations(dialect: Dialect) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (how, withhold) in withholdings(dialect) {
        for (what, turns) in scenes(dialect) {
            let turns: Vec<Calls> = turns;
            let conversation = match dialect {
                Dialect::Minion => Conversation::new(None).with(|builder| builder.dialects(minions())),
                _ => Conversation::new(Some(dialect)),
            };
            let requests = testing::block_on(conversation.with(&*withhold).requests(turns));
            let what = format!("{}, {how}, {what}", dialect.name());
            found.extend(requests.iter().flat_map(|request| mentions(&what, request)));
        }
    }
    found.into_iter().collect()
}

#[test]
fn texts_of_a_dialect_do_not_name_withheld_tools() {
    let found: Vec<String> = Dialect::ALL.into_iter().flat_map(conversations).collect();
    assert!(found.is_empty(), "{} texts:\n{}", found.len(), found.join("\n"));
}

/// The control: each way to name a tool is found, and ordinary English words are not.
#[test]
fn tools_named_by_a_text_are_found() {
    for (text, tool) in [
        ("Wait for it with `task`.", "task"),
        ("Available: lookup, task, minion.", "task"),
        ("fetch it later with spawn_await.", "spawn_await"),
        ("continue with lookup", "lookup"),
    ] {
        assert!(names(text, tool), "{text}");
    }
    for (text, tool) in [("The task is over.", "task"), ("spawn_task starts", "spawn"), ("read on", "read")] {
        assert!(!names(text, tool), "{text}");
    }
}
