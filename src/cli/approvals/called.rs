//! Calls through `use_tool` in the list.

use subtend_tools::registry;

use super::tests::session;
use super::*;

/// A call by `use_tool` is shown with the tool that it calls, and with the whole text. The control: a direct call.
#[test]
fn call_by_use_tool_is_listed_as_the_called_tool() {
    let (id, head) = session();
    let typed = format!("{} \u{202e}", "x".repeat(2000));
    let recorded = format!("xx{}", registry::mark(&typed));
    let direct = serde_json::json!({"action": "input", "session_id": "b", "text": typed});
    let used = serde_json::json!({"tool": "process", "args": direct});
    for (tool, args) in [("process", &direct), ("use_tool", &used)] {
        let answered = serde_json::from_value(serde_json::json!({"turn_answered": {
            "run": 1, "turn": 1, "attempt": 1, "stop": "calls", "usage": {"in": 1, "out": 1}, "worked_ms": 0,
            "calls": [{"provider_id": "a", "tool": tool, "args": args.to_string()}],
        }}));
        let asked = Record::AskOpened {
            call: CallId { turn: TurnNo(1), ix: 0 },
            action: "shell.run".into(),
            resource: recorded.as_str().into(),
            root: id,
            deadline_at: None,
        };
        let rows = approvals_of(id, &head, [answered.expect("an answer"), asked].iter());
        assert_eq!((&*rows[0].tool, &*rows[0].full_resource), ("process", &*typed), "{tool}");
    }
}

/// The list is where an answer with a digest is read from. The control: the same command without the character.
#[test]
fn listed_command_names_its_invisible_characters() {
    let (id, head) = session();
    for (command, shown) in [("sh deploy.sh", "sh deploy.sh"), ("sh deploy\u{2800}.sh", "sh deploy<U+2800>.sh")] {
        let asked = Record::AskOpened {
            call: CallId { turn: TurnNo(1), ix: 0 },
            action: "shell.run".into(),
            resource: command.into(),
            root: id,
            deadline_at: None,
        };
        let rows = approvals_of(id, &head, [asked].iter());
        let line = line(&rows[0], 0);
        assert!(line.contains(&format!("shell.run on {shown}  ")) && !line.contains('\n'), "{line}");
    }
}
