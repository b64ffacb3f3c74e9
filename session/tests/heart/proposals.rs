//! A planner proposes that another agent continues, and a person decides (G12, K14).

use subtend_session::authority::Access;
use subtend_session::call::CallEnd;
use subtend_session::command::{Command, Deadline};
use subtend_session::context::context;
use subtend_session::ids::SessionId;
use subtend_session::outcome::{By, Outcome};
use subtend_session::record::{AskBy, AskVerdict, Record};
use subtend_session::state::{CallPhase, OpenAsk, Phase};

use crate::given::*;

fn word(ix: u32, verdict: AskVerdict, by: AskBy) -> Command {
    Command::AskAnswered { call: call(1, ix), verdict, by }
}

fn allow(ix: u32) -> Command {
    word(ix, AskVerdict::Allow, AskBy::Person)
}

fn planning() -> Heart {
    Heart::root().then(send(1, "go")).then(calls(1, vec![proposal()]))
}

/// Returns the active agent: its system prompt and its model.
fn given(heart: &Heart) -> (String, String) {
    let context = context(&heart.state);
    (context.system.to_string(), context.model.to_string())
}

fn planner() -> (String, String) {
    ("You work.".to_owned(), "scripted".to_owned())
}

fn builder() -> (String, String) {
    ("You build.".to_owned(), "maker".to_owned())
}

/// Returns how the call ended, and the text for the model.
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
    assert_eq!((heart.state.phase(), given(&heart)), (Phase::WaitingMidTurn, planner()));
    let access = Access { action: "tool".into(), resource: "build".into() };
    let phase = CallPhase::Asked(Box::new(OpenAsk { access, deadline_at }));
    assert_eq!(heart.state.call(call(1, 0)).expect("a call").phase, phase);
}

#[test]
fn approved_proposal_hands_over_in_the_batch_of_the_approval() {
    let mut heart = planning();
    let decision = heart.tell(allow(0)).expect("decided");
    let kinds: Vec<_> = decision.records.iter().map(Record::kind).collect();
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| *kind != "run_resumed").collect();
    assert_eq!(kinds, ["ask_answered", "call_started", "call_finished", "turn_started"]);
    assert_eq!((given(&heart), call_result(&heart).0), (builder(), CallEnd::Ok));
    let heart = heart.then(answers(2, "built")).then(send(2, "more")).refolded();
    assert_eq!(given(&heart), builder(), "it holds from there on");
    assert_eq!(&*heart.state.created.agent, "general", "the session stays as it was opened");
}

#[test]
fn what_is_not_approved_leaves_the_planner_planning() {
    for (by, says) in
        [(AskBy::Person, "the approver rejected it. Continue planning"), (AskBy::NoApprover, "no approver is attached")]
    {
        let heart = planning().then(word(0, AskVerdict::Deny, by));
        let (end, text) = call_result(&heart);
        assert_eq!((end, given(&heart)), (CallEnd::Denied, planner()));
        assert!(text.contains(says), "{text}");
        assert_eq!(heart.state.phase(), Phase::Working, "the next turn is under way");
    }
    let heart = planning().then(Command::Deadline(Deadline::Ask(call(1, 0))));
    assert!(call_result(&heart).1.contains("no approver answered in time"));
    let mut heart = planning();
    heart.tell(Command::Cancel { run: None, by: By::Person, queue_stands: false }).expect("decided");
    assert_eq!(heart.state.last.as_ref().map(|last| last.outcome.clone()), Some(Outcome::Cancelled { by: By::Person }));
    assert_eq!((call_result(&heart).0, heart.state.agent.clone()), (CallEnd::Cancelled, None));
}

#[test]
fn a_word_for_good_is_a_word_for_one_plan() {
    let heart = planning().then(word(0, AskVerdict::Always, AskBy::Person));
    let recorded_verdict = heart.log.iter().find_map(|record| match record {
        Record::AskAnswered { verdict, .. } => Some(*verdict),
        _ => None,
    });
    assert_eq!((recorded_verdict, heart.state.always.len()), (Some(AskVerdict::Allow), 0));
    let heart = heart.then(calls(2, vec![proposal()]));
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn, "the next plan is asked for again");
}

#[test]
fn hand_over_precedes_other_calls_and_next_turn_waits_for_them() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![reads(), proposal()])).then(allow(1));
    assert_eq!((heart.state.agent.is_some(), heart.state.last_turn.0), (true, 1));
    let heart = heart.then(tool(1, 0, "read"));
    assert_eq!((given(&heart), heart.state.last_turn.0), (builder(), 2));
}

#[test]
fn who_goes_on_has_an_allowance_of_turns_anew() {
    let limits = subtend_session::limits::Limits { turns: 2, ..Default::default() };
    let heart = Heart::root_with(limits).then(send(1, "go")).then(calls(1, vec![reads()])).then(tool(1, 0, "read"));
    let heart = heart.then(calls(2, vec![proposal()]));
    let heart = heart.then(Command::AskAnswered { call: call(2, 0), verdict: AskVerdict::Allow, by: AskBy::Person });
    assert_eq!(heart.state.phase(), Phase::Working);
    assert_eq!(heart.state.run.as_ref().map(|run| (run.turns, run.spent)), Some((2, 0)));
}
