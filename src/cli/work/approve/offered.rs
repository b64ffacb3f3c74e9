//! Answers that a question does not offer.

use subtend_session::ids::Hash;

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

/// The first line of a long question leaves the terminal, so the last lines repeat it. The control: a short command.
#[test]
fn long_question_repeats_its_call_at_its_end() {
    let question = |command: &str| {
        let call = serde_json::json!({"session": id(ROOT), "root": id(ROOT), "path": "a3f9c1", "call": "1.0",
            "tool": "shell", "args": "{}", "action": "shell.run", "resource": command, "digest": "d"});
        let call: ListedCall = serde_json::from_value(call).expect("a call");
        call.question(None).expect("a question").question
    };
    let head = "a3f9c1 asks for shell.run on make (and ";
    let allow = "\nallow? [y]es, [a]lways in this session (this command), [N]o";
    let counts = [3, 40].map(|lines| {
        let shown = question(&format!("make{}", "\n".repeat(lines)));
        assert!(shown.starts_with(head) && shown.ends_with(allow), "{shown}");
        shown.matches(head).count()
    });
    assert_eq!(counts, [1, 2]);
    // A long command takes as much as is shown of a diff. The line after it has no mark, so that no text imitates it.
    let command = |end: &str| format!("make\n{}{end}", "\u{1}".repeat(6 << 20));
    let long = question(&command("a"));
    assert!((4 << 20..5 << 20).contains(&long.len()), "{}", long.len());
    let left_out = |hash: Hash| {
        format!(
            "\n[the rest is too long to show: the text has 6291462 bytes, hash {hash}. `subtend show --full` prints all of it]\n"
        )
    };
    let hashes = ["a", "b"].map(|end| Hash::of(command(end).as_bytes()));
    assert!(long.contains(&left_out(hashes[0])) && long.matches(head).count() == 2);
    // The control: another command of this length has another hash.
    assert_eq!(question(&command("b")), long.replace(&left_out(hashes[0]), &left_out(hashes[1])));
}
