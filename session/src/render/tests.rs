use super::*;

const CHILD: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";

fn each(told: impl Fn(Dialect, SessionId, &Short) -> Text) -> [String; 5] {
    let (child, short) = (CHILD.parse().expect("an id"), Short("a3f9c1".into()));
    Dialect::ALL.map(|dialect| told(dialect, child, &short).to_string())
}

/// The handle of each dialect, and none of its words is another's.
#[test]
fn what_a_call_says_that_starts_a_child_and_does_not_wait() {
    let subagent = "{\"branchId\":\"a3f9c1\",\"message\":\"The subagent is at work. Its result comes to you by itself: go on, or end \
                    your turn.\",\"status\":\"started\",\"subagentId\":\"a3f9c1\",\"success\":true}";
    let minion = "{\"activity\":{\"turns\":0},\"message\":\"This minion works on its own: no call waits for it, and its end is told by \
                  itself.\",\"minionChatId\":\"a3f9c1\",\"minionResponse\":\"\",\"minionUsedReturnTool\":false,\"status\":\"started\"}";
    let task = r#"{"session_id":"a3f9c1","status":"started"}"#;
    let spawn_task = r#"{"status":"pending","taskId":"task_0192f0c12d3e7abc8def0123456789ab"}"#;
    let told = each(|dialect, child, short| started(dialect, child, short, false));
    assert_eq!(told, [subagent, task, "a3f9c1", spawn_task, minion]);
    // People can open it: its full id is told too, by the one dialect that has a place for it (K9).
    let open = format!(r#"{{"session_id":"{CHILD}","short":"a3f9c1","status":"started"}}"#);
    let told = each(|dialect, child, short| started(dialect, child, short, true));
    assert_eq!(told, [subagent, &open, "a3f9c1", spawn_task, minion]);
}

#[test]
fn what_a_call_says_that_lets_a_child_go_on_and_does_not_wait() {
    let subagent = "{\"branchId\":\"a3f9c1\",\"message\":\"The subagent goes on where it stopped. Its result comes to you by itself: \
                    go on, or end your turn.\",\"status\":\"started\",\"subagentId\":\"a3f9c1\",\"success\":true}";
    let other = r#"{"session_id":"a3f9c1","status":"continued"}"#;
    let spawn_task = r#"{"status":"pending","taskId":"task_0192f0c12d3e7abc8def0123456789ab"}"#;
    assert_eq!(each(continued), [subagent, other, "a3f9c1", spawn_task, other]);
}

#[test]
fn what_a_cancel_of_a_task_says_is_in_the_words_of_who_started_it() {
    let other = r#"{"session_id":"named","status":"cancelling"}"#;
    let spawn_task = r#"{"status":"cancelled","taskId":"named"}"#;
    let told = Dialect::ALL.map(|dialect| cancelling(dialect, "named").to_string());
    assert_eq!(told, [other, other, other, spawn_task, other]);
}
