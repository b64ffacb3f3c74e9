//! A scripted conversation as the model reads it.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use subtend::agents::{AgentMode, Catalog, Dialect, Dialects, Manifest};
use subtend::models::{Answer, ModelError, Request, fn_model};
use subtend::session::{Limits, Message, ModelFail, ToolEffect, ToolSpec};
use subtend::testing;
use subtend::tools::{FnTool, Registry, ToolError, ToolOutput, Workspace};
use subtend::{Builder, OpenOptions};

use super::super::page::redacted;

/// The calls of one answer: each a tool and its arguments. `{N}` in an argument is replaced by the id in result N.
pub(super) type Calls = Vec<(&'static str, Value)>;

/// A conversation as a model reads it. The root session makes the calls of one answer after the other.
pub(super) struct Conversation {
    builder: Builder,
    agent: &'static str,
    /// True if a real process takes part, so that virtual time cannot be used.
    real_time: bool,
}

fn noop(name: &str) -> FnTool {
    let description = "A tool of a test.".into();
    let spec = ToolSpec { name: name.into(), description, schema: Arc::new(json!({"type": "object"})) };
    FnTool::new(spec, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("nothing here")) }).access(|_| Vec::new())
}

fn broken() -> FnTool {
    let spec = ToolSpec {
        name: "broken".into(),
        description: "A tool that fails.".into(),
        schema: Arc::new(json!({"type": "object", "properties": {"how": {"enum": ["fail", "panic", "hang"]}}})),
    };
    FnTool::new(spec, ToolEffect::SideEffect, |call| async move {
        match call.args.get("how").and_then(Value::as_str) {
            Some("panic") => std::panic::panic_any("the tool's own message"),
            Some("hang") => std::future::pending().await,
            _ => Err(ToolError::failed("the disk is full")),
        }
    })
    .access(|_| Vec::new())
}

pub(super) fn limits() -> Limits {
    Limits { result_bytes: 200, run_ms: Some(60_000), turns: 8, ..Limits::default() }
}

/// Returns the agents, where `worker` has the given tools.
pub(super) fn catalog(tools: Option<Vec<&str>>) -> Catalog {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest {
        description: "Does one part of the work.".into(),
        tools: tools.map(|names| names.into_iter().map(Into::into).collect()),
        ..Manifest::new("worker", AgentMode::All, "You are a worker.")
    });
    catalog
}

impl Conversation {
    pub(super) fn new(dialect: Option<Dialect>) -> Self {
        let dialects = Dialects { offered: dialect.into_iter().collect(), ..Dialects::default() };
        let tools = ["lookup", "write_note"].into_iter().map(noop).chain([broken()]);
        let tools = tools.fold(Registry::builder(), |all, tool| all.tool(Arc::new(tool)).expect("names differ"));
        let builder =
            testing::builder().catalog(catalog(None)).dialects(dialects).tools(tools.build()).limits(limits());
        Self { builder, agent: "worker", real_time: false }
    }

    pub(super) fn with(self, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self { builder: change(self.builder), ..self }
    }

    /// Makes the conversation run in real time, which the process of a command needs.
    pub(super) fn in_real_time(self) -> Self {
        Self { real_time: true, ..self }
    }

    pub(super) fn write(self, what: &str, turns: Vec<Calls>, out: &mut String) {
        writeln!(out, "\n# {what}").expect("text");
        let text = if self.real_time {
            tokio::runtime::Runtime::new().expect("threads").block_on(self.transcript(turns))
        } else {
            testing::block_on(self.transcript(turns))
        };
        out.push_str(&text);
    }

    async fn transcript(self, turns: Vec<Calls>) -> String {
        let requests = self.requests(turns).await;
        written(requests.iter().rev().find(|request| first(request) == "go").expect("the root was asked"))
    }

    /// Returns every request of the conversation, including those of children.
    pub(super) async fn requests(self, turns: Vec<Calls>) -> Vec<Request> {
        let all = Arc::new(Mutex::new(Vec::<Request>::new()));
        let (seen, turns) = (Arc::clone(&all), Arc::new(turns));
        let model = fn_model("test", move |request: Request, _| {
            let (seen, turns) = (Arc::clone(&seen), Arc::clone(&turns));
            async move {
                seen.lock().expect("the requests").push(request.clone());
                let first = first(&request);
                if first != "go" {
                    return child(&request, &first).await;
                }
                let at = request.messages.iter().filter(|it| matches!(it, Message::Assistant { .. })).count();
                Ok(match turns.get(at) {
                    Some(calls) => called(&request, calls),
                    None => Answer::of_text("done"),
                })
            }
        });
        let runtime = self.builder.model(model).start().await.expect("a runtime");
        let options = OpenOptions { agent: self.agent.into(), ..OpenOptions::default() };
        let session = runtime.open(options).expect("a session");
        let receipt = session.send("go").await.expect("accepted");
        let ended = session.run_ended(receipt.run);
        tokio::time::timeout(Duration::from_secs(100_000), ended)
            .await
            .expect("wait for the end")
            .expect("wait for the end");
        testing::finish(runtime).await;
        std::mem::take(&mut *all.lock().expect("the requests"))
    }
}

fn first(request: &Request) -> String {
    let first = request.messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    first.unwrap_or_default()
}

fn results(request: &Request) -> Vec<String> {
    let result = |message: &Message| match message {
        Message::Result { content, .. } => Some(content.to_string()),
        _ => None,
    };
    request.messages.iter().filter_map(result).collect()
}

fn id(result: &str) -> String {
    let object: Option<Value> = serde_json::from_str(result).ok();
    let named = object.as_ref().and_then(|object| {
        ["taskId", "session_id", "subagentId", "minionChatId"].iter().find_map(|key| object.get(key)?.as_str())
    });
    named.unwrap_or(result).to_owned()
}

fn called(request: &Request, calls: &Calls) -> Answer {
    let results = results(request);
    let filled = |args: &Value| {
        let text = (1..=results.len())
            .fold(args.to_string(), |text, at| text.replace(&format!("{{{at}}}"), &id(&results[at - 1])));
        serde_json::from_str(&text).expect("an object")
    };
    testing::calls(calls.iter().map(|(tool, args)| (*tool, filled(args))))
}

async fn child(request: &Request, prompt: &str) -> Result<Answer, ModelError> {
    match prompt.lines().next_back().unwrap_or_default() {
        "fail" => Err(ModelError::new(ModelFail::InvalidRequest, "the schema is too deep")),
        "loop" => Ok(Answer { text: Some("So far: one file.".into()), ..testing::calls([("lookup", json!({}))]) }),
        "hang" => std::future::pending().await,
        "slow" => {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(Answer::of_text("found it late"))
        }
        "empty" => Ok(Answer::of_text("")),
        "long" => Ok(Answer::of_text("a long line\n".repeat(40))),
        "return" if request.tools.iter().any(|tool| *tool.name == *"return") => {
            Ok(testing::calls([("return", json!({"result": "returned"}))]))
        }
        _ => Ok(Answer::of_text("found it")),
    }
}

fn written(request: &Request) -> String {
    let (mut out, mut open) = (String::new(), Vec::new());
    for message in request.messages.iter() {
        match message {
            Message::User { .. } => {}
            Message::Assistant { calls, text, .. } => {
                if let Some(text) = text.as_ref().filter(|text| !text.is_empty()) {
                    writeln!(out, "\n(it says) {text}").expect("text");
                }
                let shown = |args: &str| if args.len() > 300 { "…".to_owned() } else { args.to_owned() };
                open = calls.iter().map(|call| format!("{} {}", call.tool, shown(&call.args))).rev().collect();
            }
            Message::Result { error, content, .. } => {
                let call = open.pop().unwrap_or_default();
                let how = if *error { "error" } else { "result" };
                writeln!(out, "\n> {call}\n[{how}]\n{content}").expect("text");
            }
            Message::Notice { text, .. } => writeln!(out, "\n[notice]\n{text}").expect("text"),
            Message::Prompt { text } => writeln!(out, "\n[prompt]\n{text}").expect("text"),
        }
    }
    let out = redacted(&out);
    out.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

pub(super) fn workspace() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("src")).expect("a directory");
    std::fs::write(dir.path().join("src/lib.rs"), "fn one() {}\nfn two() {}\n").expect("a file");
    std::fs::write(dir.path().join("README.md"), "# Read me\n").expect("a file");
    std::fs::write(dir.path().join("bytes.bin"), [0_u8, 159, 146, 150]).expect("a file");
    let workspace = Workspace::open(dir.path()).expect("a workspace");
    (dir, workspace)
}
