//! Fuzzes the arguments of tool calls, which a model writes.

use subtend_session::dialect::Dialect;
use subtend_session::place::Source;
use subtend_tools::dialect::{Offered, Request};
use subtend_tools::registry::{Classified, Registry};

use super::InputResult;
use super::tree::{self, SECRET, Tree};

const TOOLS: [&str; 11] =
    ["list", "read", "search", "write", "edit", "shell", "task", "spawn", "spawn_task", "minion", "subagent"];

/// Passes the bytes as arguments to every tool. An accepted call stays in the workspace, and a read shows no denied file.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let args = String::from_utf8_lossy(bytes);
    let mut result = InputResult::Refused;
    for tool in TOOLS {
        let local = tree::with_tree(|tree| check_access(tree, tool, &args)).unwrap_or(InputResult::Refused);
        result = result.max(local).max(check_start(tool, &args));
    }
    result
}

fn check_access(tree: &Tree, tool: &str, args: &str) -> InputResult {
    let authority = &tree.authority;
    match tree.tools.classify(tool, args, authority, None, true, &|_| false) {
        Classified::Invalid { message, .. } => {
            assert!(!message.is_empty() && message.len() < 16 << 10, "an error of {} bytes", message.len());
            InputResult::Refused
        }
        Classified::Ready { tool: ready, args: read, access, ask, .. } => {
            assert!(read.is_object(), "the arguments are not an object");
            for access in Registry::accesses(ready.as_ref(), &read) {
                assert!(access.resource.len() < 2000, "a resource of {} bytes", access.resource.len());
                let printable = access.resource.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t'));
                assert!(printable, "{access:?}");
            }
            let writes = matches!(tool, "write" | "edit" | "shell");
            assert!(!writes || ask.is_needed() || access.is_none(), "{tool} runs without an approval: {access:?}");
            let allowed = tree.tools.check(ready.as_ref(), &read, authority, &|_| false).is_ok();
            assert!(!writes || !allowed, "{tool} runs without an approval");
            if allowed && let Some(done) = tree.run(tool, read) {
                let text = done.unwrap_or_else(|error| error.message);
                assert!(text.len() < 16 << 10, "a result of {} bytes", text.len());
                assert!(!text.contains(SECRET) || args.contains("SECRET"), "a denied file is shown: {text}");
            }
            InputResult::Accepted
        }
    }
}

fn check_start(tool: &str, args: &str) -> InputResult {
    let agents = vec![("explore".into(), "Explores.".into()), ("review".into(), "Reviews.".into())];
    let offered = Offered {
        dialects: Dialect::ALL.to_vec(),
        own: "general".into(),
        shown: agents.clone(),
        agents,
        profiles: Vec::new(),
        templates: Vec::new(),
        tools: vec!["read".into(), "list".into()],
        shown_tools: vec!["read".into(), "list".into()],
        nested: false,
        source: Source::Internal,
        can_isolate: true,
    };
    match offered.read(tool, args) {
        Some(Ok(Request::Start(start))) => {
            let known = ["explore", "review", "general"].contains(&&*start.agent);
            assert!(known, "{tool} starts {:?}", start.agent);
            let all_offered =
                start.tools.iter().flatten().all(|tool| ["read", "list"].contains(&&**tool) || is_task(tool));
            assert!(all_offered, "{tool} gives {:?}", start.tools);
            assert!(start.prompt.len() <= 2 << 20, "a prompt of {} bytes", start.prompt.len());
            InputResult::Accepted
        }
        Some(Ok(Request::Continue(_))) => InputResult::Accepted,
        Some(Err(error)) => {
            assert!(!error.message.is_empty() && error.message.len() < 16 << 10, "{}", error.message.len());
            InputResult::Refused
        }
        None => InputResult::Refused,
    }
}

/// Returns whether a tool starts or manages runs.
fn is_task(tool: &str) -> bool {
    subtend_tools::dialect::is_locked(tool)
}
