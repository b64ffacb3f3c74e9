//! Answers that a question does not offer.

use super::super::live::tests::{ROOT, id};
use super::*;

/// An answer that the question does not offer would count for less than the person expects. The control: a command.
#[test]
fn answer_that_the_question_does_not_offer_is_refused() {
    let answered = |tool: &str, plan: Option<&str>, line: &str| {
        let call = serde_json::json!({"session": id(ROOT), "root": id(ROOT), "path": "a3f9c1", "call": "1.0",
            "tool": tool, "args": "{}", "action": "shell.run", "resource": "make", "plan": plan, "digest": "d"});
        let call: ListedCall = serde_json::from_value(call).expect("a call");
        let mut approver = TerminalApprover {
            lines: mpsc::unbounded_channel().1,
            asks: true,
            question: call.question(None).ok(),
            replaced: ReplacedQuestion::default(),
            waiting: WaitingCalls::new(false),
        };
        let answer = approver.answer(line).map(|answer| answer.map(|(_, verdict)| verdict));
        (answer, approver.is_asking())
    };
    let once = || (Some(Err("this question is for once: answer y or n".to_owned())), true);
    assert_eq!([answered("process", None, "a"), answered("plan_exit", Some("1."), "always")], [once(), once()]);
    assert_eq!(answered("process", None, "y"), (Some(Ok(AskVerdict::Allow)), false));
    assert_eq!(answered("shell", None, "a"), (Some(Ok(AskVerdict::Always)), false));
}
