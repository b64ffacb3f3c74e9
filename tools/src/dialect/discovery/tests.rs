use subtend_session::authority::Authority;
use subtend_session::call::ToolErrorKind;
use subtend_session::ids::{CallId, RunNo, TurnNo};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::arguments;
use crate::processes::Processes;
use crate::tool::{Progress, ToolKey};
use crate::workspace::Workspace;

fn all() -> Arc<[ToolSpec]> {
    let spec = |name: &str, about: &str| ToolSpec {
        name: name.into(),
        description: about.into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    [spec("look", "Looks at\na thing."), spec("read", "Reads a file."), spec("write", "Writes a file.")].into()
}

fn call_get_tools(args: &str, shown: &[Text], max_bytes: u64) -> Value {
    let (tool, args) = GetTools::parse_call(args, &all(), shown).unwrap();
    let call = ToolInvocation {
        key: ToolKey {
            session: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
            run: RunNo(1),
            call: CallId { turn: TurnNo(1), ix: 0 },
        },
        args,
        options: Default::default(),
        workspace: Arc::new(Workspace::open(std::env::temp_dir()).unwrap()),
        authority: Arc::new(Authority::deny_all()),
        cancel: CancellationToken::new(),
        max_bytes,
        progress: Progress::none(),
        processes: Processes::default(),
        checkpoints: None,
        messenger: None,
        child_tools: None,
        approved: false,
    };
    let output = tool.run(call).now_or_never().unwrap().unwrap();
    assert!(output.content.len() as u64 <= max_bytes);
    serde_json::from_str(&output.content).unwrap()
}

#[test]
fn b8_listing_has_hidden_tools_that_match_all_words() {
    let line = |name: &str, about: &str| json!({"name": name, "description": about});
    let (look, read, write) =
        (line("look", "Looks at a thing."), line("read", "Reads a file."), line("write", "Writes a file."));
    assert_eq!(call_get_tools("{}", &[], 8_000), json!({"tools": [look, read, write]}));
    assert_eq!(call_get_tools("", &["read".into()], 8_000), json!({"tools": [look, write]}));
    assert_eq!(call_get_tools(r#"{"query":"FILE wri"}"#, &[], 8_000), json!({"tools": [write]}));
    assert_eq!(call_get_tools(r#"{"query":"nothing"}"#, &[], 8_000), json!({"tools": []}));
}

/// The control: a query of as many bytes as are accepted.
#[test]
fn query_of_too_many_bytes_is_refused() {
    let refused = |bytes: usize| {
        let args = json!({"query": "a".repeat(bytes)}).to_string();
        GetTools::parse_call(&args, &all(), &[]).map(drop).map_err(|error| (error.kind, error.message))
    };
    let why = "the query has 1025 bytes; the limit is 1024: use fewer words".to_owned();
    assert_eq!([1_024, 1_025].map(refused), [Ok(()), Err((ToolErrorKind::BadArgs, why))]);
}

#[test]
fn b8_description_is_complete_and_names_unknown_tools() {
    let read = json!({"name": "read", "description": "Reads a file.", "parameters": {"type": "object"}});
    let report = call_get_tools(r#"{"tools":["read","nonesuch"," read "]}"#, &["read".into()], 8_000);
    assert_eq!(report, json!({"tools": [read], "unknown": ["nonesuch"]}));
}

#[test]
fn b8_tools_that_do_not_fit_are_counted() {
    let listing = call_get_tools("{}", &[], 180);
    let look = json!({"name": "look", "description": "Looks at a thing."});
    assert_eq!(listing, json!({"tools": [look], "more": "2 more are not shown: give a `query`"}));
}

/// The control: with enough bytes, each tool has an entry.
#[test]
fn omitted_tools_are_counted_without_their_entries() {
    let listed = |max: usize| {
        let made = std::cell::Cell::new(0);
        let entry = |tool: &ToolSpec| {
            made.set(made.get() + 1);
            json!({"name": *tool.name})
        };
        let (kept, omitted) = take_within(all().iter().cycle().take(256), entry, max);
        (kept.len(), omitted, made.get())
    };
    assert_eq!([8_000, 20].map(listed), [(256, 0, 256), (1, 255, 2)]);
}

#[test]
fn schemas_agree_with_the_parser() {
    let [get, call] = specs().map(|spec| arguments::compile(&spec.schema).unwrap());
    for (args, fits) in
        [(json!({}), true), (json!({"tools": ["a"], "query": "b"}), true), (json!({"tool": "a"}), false)]
    {
        assert_eq!(get.is_valid(&args), fits, "{args}");
        assert_eq!(GetTools::parse_call(&args.to_string(), &all(), &[]).is_ok(), fits, "{args}");
    }
    for (args, fits) in [
        (json!({"tool": "read", "args": {"path": "a"}}), true),
        (json!({"tool": "read"}), true),
        (json!({"args": {}}), false),
        (json!({"tool": "read", "path": "a"}), false),
    ] {
        assert_eq!(call.is_valid(&args), fits, "{args}");
        assert_eq!(parse_use(&args.to_string()).is_ok(), fits, "{args}");
    }
}

#[test]
fn b8_use_tool_refuses_spawn_tools_and_itself() {
    for tool in ["use_tool", "get_tools", "subagent", "task", "Task", "spawn_await", "return"] {
        let error = parse_use(&json!({"tool": tool}).to_string()).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::BadArgs);
        assert!(error.message.starts_with(&format!("{tool} cannot be called by use_tool: ")), "{}", error.message);
    }
    assert_eq!(parse_use(r#"{"tool":"read","args":{"path":"a"}}"#), Ok(("read".into(), r#"{"path":"a"}"#.into())));
}
