use serde_json::Value;

use super::*;

const CHILD: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";

/// Parses JSON texts: the order of keys depends on how the library was built.
fn read(text: &Text) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(&**text))
}

fn each(render: impl Fn(Dialect, SessionId, &Short) -> Text) -> [Value; 5] {
    let (child, short) = (CHILD.parse().expect("an id"), Short("a3f9c1".into()));
    Dialect::ALL.map(|dialect| read(&render(dialect, child, &short)))
}

fn subagent(message: &str) -> Value {
    json!({"success": true, "subagentId": "a3f9c1", "branchId": "a3f9c1", "status": "started", "message": message})
}

fn pending() -> Value {
    json!({"taskId": "task_0192f0c12d3e7abc8def0123456789ab", "status": "pending"})
}

/// Each dialect has its own handle, and no dialect uses the words of another.
#[test]
fn what_a_call_says_that_starts_a_child_and_does_not_wait() {
    let subagent =
        subagent("The subagent is running. You receive its result automatically: continue, or end your turn.");
    let minion = json!({
        "minionChatId": "a3f9c1",
        "minionResponse": "",
        "minionUsedReturnTool": false,
        "activity": {"turns": 0},
        "status": "started",
        "message": "This minion is detached: no call waits for it, and you are notified when it ends.",
    });
    let task = json!({"session_id": "a3f9c1", "status": "started"});
    let results = each(|dialect, child, short| started(dialect, child, short, false));
    assert_eq!(results, [subagent.clone(), task, json!("a3f9c1"), pending(), minion.clone()]);
    // People can open it: the one dialect with a field for it includes the full id (K9).
    let open = json!({"session_id": CHILD, "short": "a3f9c1", "status": "started"});
    let results = each(|dialect, child, short| started(dialect, child, short, true));
    assert_eq!(results, [subagent, open, json!("a3f9c1"), pending(), minion]);
}

#[test]
fn what_a_call_says_that_lets_a_child_go_on_and_does_not_wait() {
    let message =
        "The subagent resumes where it stopped. You receive its result automatically: continue, or end your turn.";
    let other = json!({"session_id": "a3f9c1", "status": "continued"});
    assert_eq!(each(continued), [subagent(message), other.clone(), json!("a3f9c1"), pending(), other]);
}

#[test]
fn cancel_of_a_task_answers_in_the_dialect_that_started_it() {
    let results = Dialect::ALL.map(|dialect| read(&cancelling(dialect, "named")));
    let other = json!({"session_id": "named", "status": "cancelling"});
    let task = json!({"taskId": "named", "status": "cancelled"});
    assert_eq!(results, [other.clone(), other.clone(), other.clone(), task, other]);
}
