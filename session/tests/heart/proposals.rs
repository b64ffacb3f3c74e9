//! Proposals: a planner proposes that another agent continues, and an approver decides.

use crate::asks::asking;
use crate::given::*;
use subtend_session::state::OpenAsk;

fn answer_ask(ix: u32, verdict: AskVerdict, by: AnsweredBy) -> Command {
    Command::AskAnswered { call: call(1, ix), verdict, by }
}

fn allow(ix: u32) -> Command {
    answer_ask(ix, AskVerdict::Allow, AnsweredBy::Person)
}

fn planning() -> Heart {
    Heart::root().then(send(1, "go")).then(calls(1, vec![proposal()]))
}

/// Returns the active agent: its system prompt and its model.
fn active_agent(heart: &Heart) -> (String, String) {
    let context = context(&heart.state);
    (context.system.to_string(), context.model.to_string())
}

fn planner() -> (String, String) {
    ("You work.".to_owned(), "scripted".to_owned())
}

fn builder() -> (String, String) {
    ("You build.".to_owned(), "maker".to_owned())
}

/// Returns the end of the call and the text for the model.
fn call_result(heart: &Heart) -> (CallEnd, String) {
    let finished = heart.log.iter().find_map(|record| match record {
        Record::CallFinished(finished) => Some((finished.end.clone(), finished.content.to_string())),
        _ => None,
    });
    finished.expect("the call has a result")
}

#[test]
fn proposal_always_requires_approval() {
    let heart = planning();
    let root: SessionId = session(ME);
    let deadline_at = Some(1_300_000);
    let opened =
        Record::AskOpened { call: call(1, 0), action: "tool".into(), resource: "build".into(), root, deadline_at };
    assert!(heart.log.contains(&opened), "{:?}", heart.log);
    assert_eq!((heart.state.phase(), active_agent(&heart)), (Phase::WaitingMidTurn, planner()));
    let access = Access { action: "tool".into(), resource: "build".into() };
    let phase = CallPhase::Asked(Box::new(OpenAsk { access, deadline_at }));
    assert_eq!(heart.state.call(call(1, 0)).expect("a call").phase, phase);
}

#[test]
fn approved_proposal_hands_over_in_the_batch_of_the_approval() {
    let mut heart = planning();
    let decision = heart.decide(allow(0)).expect("decided");
    let kinds: Vec<_> = decision.records.iter().map(Record::kind).collect();
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| *kind != "run_resumed").collect();
    assert_eq!(kinds, ["ask_answered", "call_started", "call_finished", "turn_started"]);
    assert_eq!((active_agent(&heart), call_result(&heart).0), (builder(), CallEnd::Ok));
    let heart = heart.then(answers(2, "built")).then(send(2, "more")).refolded();
    assert_eq!(active_agent(&heart), builder(), "the override stays in effect");
    assert_eq!(&*heart.state.created.agent, "general", "the session's own agent does not change");
}

#[test]
fn rejected_proposal_keeps_the_planner() {
    for (by, message) in [
        (AnsweredBy::Person, "the approver rejected it. Continue planning"),
        (AnsweredBy::NoApprover, "no approver is attached"),
    ] {
        let heart = planning().then(answer_ask(0, AskVerdict::Deny, by));
        let (end, text) = call_result(&heart);
        assert_eq!((end, active_agent(&heart)), (CallEnd::Denied, planner()));
        assert!(text.contains(message), "{text}");
        assert_eq!(heart.state.phase(), Phase::Working, "the next turn has started");
    }
    let heart = planning().then(Command::Deadline(Deadline::Ask(call(1, 0))));
    assert!(call_result(&heart).1.contains("no approver answered in time"));
    let mut heart = planning();
    heart.decide(Command::Cancel { run: None, by: Initiator::Person, keeps_queue: false }).expect("decided");
    assert_eq!(
        heart.state.last.as_ref().map(|last| last.outcome.clone()),
        Some(Outcome::Cancelled { by: Initiator::Person })
    );
    assert_eq!((call_result(&heart).0, heart.state.agent.clone()), (CallEnd::Cancelled, None));
}

#[test]
fn always_approval_covers_only_one_proposal() {
    let heart = planning().then(answer_ask(0, AskVerdict::Always, AnsweredBy::Person));
    let recorded_verdict = heart.log.iter().find_map(|record| match record {
        Record::AskAnswered { verdict, .. } => Some(*verdict),
        _ => None,
    });
    assert_eq!((recorded_verdict, heart.state.always.len()), (Some(AskVerdict::Allow), 0));
    let heart = heart.then(calls(2, vec![proposal()]));
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn, "the next plan needs its own approval");
}

/// The same text in another process, or as a command, needs an approval of its own. The control: another tool.
#[test]
fn always_approval_covers_only_one_typed_text() {
    let answered = |tool: &str| {
        let mut asked = asking(1, vec![(writes(), Some("yes")), (writes(), Some("yes"))]);
        let Command::ModelAnswered(answer) = &mut asked else { panic!() };
        answer.calls.iter_mut().for_each(|call| call.asked.tool = tool.into());
        let mut heart = Heart::root().then(send(1, "go")).then(asked);
        (heart.summary(answer_ask(0, AskVerdict::Always, AnsweredBy::Person)), heart.state.always.len())
    };
    assert_eq!(answered("process"), ("ask_answered +0 Done > W".to_owned(), 0));
    assert_eq!(answered("shell"), ("ask_answered ask_answered +0 Done > W".to_owned(), 1));
}

/// A permanent approval of a command covers no equal text that is typed into a process, also where the call goes through
/// `use_tool`. The control: an equal command.
#[test]
fn always_approval_of_a_command_covers_no_typed_text() {
    const SHELL: (&str, &str) = ("shell", "{}");
    const TYPED: (&str, &str) = ("process", "{}");
    const USED: (&str, &str) = ("use_tool", r#"{"tool":"process","args":{}}"#);
    let answered = |tools: [(&str, &str); 2]| {
        let mut asked = asking(1, vec![(writes(), Some("yes")), (writes(), Some("yes"))]);
        let Command::ModelAnswered(answer) = &mut asked else { panic!() };
        for (call, (tool, args)) in answer.calls.iter_mut().zip(tools) {
            (call.asked.tool, call.asked.args) = (tool.into(), args.into());
        }
        let mut heart = Heart::root().then(send(1, "go")).then(asked);
        (heart.summary(answer_ask(0, AskVerdict::Always, AnsweredBy::Person)), heart.state.always.len())
    };
    let one = |always| ("ask_answered +0 Done > W".to_owned(), always);
    assert_eq!([answered([SHELL, TYPED]), answered([SHELL, USED])], [one(1), one(1)]);
    assert_eq!([answered([TYPED, SHELL]), answered([USED, SHELL])], [one(0), one(0)]);
    assert_eq!(answered([SHELL, SHELL]), ("ask_answered ask_answered +0 Done > W".to_owned(), 1));
}

/// `list .` and `search .` need one access, and only the second one reads contents. The control: another call of the tool.
#[test]
fn always_approval_covers_no_other_tool_with_its_access() {
    let answered = |tools: [&str; 2]| {
        let mut asked = asking(1, vec![(reads(), Some(".")), (reads(), Some("."))]);
        let Command::ModelAnswered(answer) = &mut asked else { panic!() };
        answer.calls.iter_mut().zip(tools).for_each(|(call, tool)| call.asked.tool = tool.into());
        let mut heart = Heart::root().then(send(1, "go")).then(asked);
        let decided = heart.summary(answer_ask(0, AskVerdict::Always, AnsweredBy::Person));
        (decided, heart.state.always.into_iter().map(|(tool, _)| tool.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(answered(["list", "search"]), ("ask_answered +0 Done > W".to_owned(), vec!["list".to_owned()]));
    assert_eq!(
        answered(["list", "list"]),
        ("ask_answered ask_answered +0 +1 Done > W".to_owned(), vec!["list".to_owned()])
    );
}

#[test]
fn hand_over_precedes_other_calls_and_next_turn_waits_for_them() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![reads(), proposal()])).then(allow(1));
    assert_eq!((heart.state.agent.is_some(), heart.state.last_turn.0), (true, 1));
    let heart = heart.then(tool(1, 0, "read"));
    assert_eq!((active_agent(&heart), heart.state.last_turn.0), (builder(), 2));
}

#[test]
fn agent_after_a_proposal_has_a_new_turn_allowance() {
    let limits = subtend_session::limits::Limits { turns: 2, ..Default::default() };
    let heart = Heart::root_with(limits).then(send(1, "go")).then(calls(1, vec![reads()])).then(tool(1, 0, "read"));
    let heart = heart.then(calls(2, vec![proposal()]));
    let heart =
        heart.then(Command::AskAnswered { call: call(2, 0), verdict: AskVerdict::Allow, by: AnsweredBy::Person });
    assert_eq!(heart.state.phase(), Phase::Working);
    assert_eq!(heart.state.run.as_ref().map(|run| (run.turns, run.spent)), Some((2, 0)));
}
