//! Approvals of calls: requested, given, denied, withdrawn.

use std::collections::BTreeMap;

use proptest::prelude::*;
use subtend_invariants::bugs::Rules;
use subtend_session::authority::Access;
use subtend_session::call::{CallEnd, CallKind, Invalid};
use subtend_session::command::{Answered, Clock, Command, Deadline, FoundCall};
use subtend_session::effect::{Effect, Rejection, Reply};
use subtend_session::ids::{AttemptNo, CallId, RunNo, TurnNo};
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::place::Mode;
use subtend_session::record::{AskBy, AskVerdict, CallFinished, Park, Record, Stop};
use subtend_session::state::{CallPhase, OpenAsk, Phase};

use crate::folding::small;
use crate::given::*;

/// An answer with one call for each access; calls with an access need an approval.
pub(crate) fn asking(turn: u32, calls: Vec<(CallKind, Option<&str>)>) -> Command {
    let call = |(kind, resource): (CallKind, Option<&str>)| {
        let access = resource.map(|resource| Box::new(access(resource)));
        subtend_session::command::ResolvedCall { ask: access.is_some(), access, ..resolved(kind) }
    };
    Command::ModelAnswered(Box::new(Answered {
        turn: TurnNo(turn),
        attempt: AttemptNo(1),
        text: None,
        reasoning: None,
        calls: calls.into_iter().map(call).collect(),
        stop: Stop::Calls,
        model: None,
        usage: Default::default(),
    }))
}

fn access(resource: &str) -> Access {
    Access { action: "fs.write".into(), resource: resource.into() }
}

fn open_ask(resource: &str) -> OpenAsk {
    OpenAsk { access: access(resource), deadline_at: Some(1_300_000) }
}

fn word(ix: u32, verdict: AskVerdict) -> Command {
    Command::AskAnswered { call: call(1, ix), verdict, by: AskBy::Person }
}

pub(crate) fn allow(ix: u32) -> Command {
    word(ix, AskVerdict::Allow)
}

fn deny(ix: u32) -> Command {
    word(ix, AskVerdict::Deny)
}

/// A root whose first answer asks for these calls.
fn root(calls: Vec<(CallKind, Option<&str>)>) -> Heart {
    Heart::root().then(send(1, "go")).then(asking(1, calls))
}

/// The same for a child with a slot.
pub(crate) fn child(calls: Vec<(CallKind, Option<&str>)>) -> Heart {
    Heart::child().then(admitted()).then(asking(1, calls))
}

#[test]
fn an_ask_names_what_is_asked_for_and_where() {
    let mut heart = Heart::child().then(admitted());
    let decision = heart.tell(asking(1, vec![(writes(), Some("a"))])).unwrap();
    let opened = Record::AskOpened {
        call: call(1, 0),
        action: "fs.write".into(),
        resource: "a".into(),
        root: session(OWNER),
        deadline_at: Some(1_300_000),
    };
    let parked = Record::RunParked { run: RunNo(1), why: Park::Ask, worked_ms: 100 };
    assert_eq!(decision.records[1..], [opened, parked]);
    assert_eq!(
        decision.effects,
        [
            Effect::Disarm { deadline: Deadline::Turn(TurnNo(1)) },
            Effect::AskPerson { call: call(1, 0) },
            Effect::Arm { deadline: Deadline::Ask(call(1, 0)), after_ms: 300_000 },
            Effect::ReleaseSlot { run: RunNo(1) },
            Effect::Disarm { deadline: Deadline::Run(RunNo(1)) },
            Effect::Unload,
        ]
    );
    assert_eq!(heart.state.call(call(1, 0)).unwrap().phase, CallPhase::Asked(Box::new(open_ask("a"))));
}

#[test]
fn approved_call_starts_with_slot_and_records_its_access() {
    let mut heart = child(vec![(writes(), Some("a"))]);
    let decision = heart.tell(allow(0)).unwrap();
    let answered = Record::AskAnswered { call: call(1, 0), verdict: AskVerdict::Allow, by: AskBy::Person };
    let parked = Record::RunParked { run: RunNo(1), why: Park::Slot, worked_ms: 100 };
    assert_eq!(decision.records, [answered, parked]);
    assert_eq!(decision.reply, Reply::Done(RunNo(1)));
    assert_eq!(
        decision.effects,
        [
            Effect::Disarm { deadline: Deadline::Ask(call(1, 0)) },
            Effect::RequestSlot { run: RunNo(1), again: true },
            Effect::Unload,
        ]
    );
    let decision = heart.tell(admitted()).unwrap();
    let started = Record::CallStarted {
        call: call(1, 0),
        kind: Box::new(writes()),
        timeout_ms: Some(120_000),
        access: Some(Box::new(access("a"))),
    };
    assert_eq!(decision.records, [Record::RunResumed { run: RunNo(1), why: Park::Slot, slot: true }, started]);
    assert_eq!(heart.says(tool(1, 0, "written")), "-0:ok turn > W");
}

#[test]
fn a_run_without_a_slot_goes_on_at_once() {
    let mut heart = root(vec![(writes(), Some("a"))]);
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn);
    assert_eq!(heart.says(allow(0)), "ask_answered +0 Done > W");
}

#[test]
fn allowed_call_needs_no_approval_and_records_its_access() {
    let mut heart = Heart::root().then(send(1, "go"));
    let Command::ModelAnswered(mut answer) = asking(1, vec![(reads(), Some("a"))]) else { unreachable!() };
    answer.calls[0].ask = false;
    let decision = heart.tell(Command::ModelAnswered(answer)).unwrap();
    let started = Record::CallStarted {
        call: call(1, 0),
        kind: Box::new(reads()),
        timeout_ms: Some(120_000),
        access: Some(Box::new(access("a"))),
    };
    assert_eq!(decision.records[1..], [started]);
}

#[test]
fn a_denied_call_tells_the_model_why() {
    let text = |command| {
        let heart = root(vec![(writes(), Some("a"))]).then(command);
        match heart.state.transcript.last().unwrap() {
            Message::Result { error: true, content, .. } => content.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(text(deny(0)), "Not allowed: fs.write on a; a person was asked and said no. Continue without it.");
    assert_eq!(
        text(Command::Deadline(Deadline::Ask(call(1, 0)))),
        "Not allowed: fs.write on a; a person was asked and did not answer in time. Continue without it."
    );
    let by = AskBy::NoApprover;
    assert_eq!(
        text(Command::AskAnswered { call: call(1, 0), verdict: AskVerdict::Deny, by }),
        "Not allowed: fs.write on a; approval required, and no approver is attached. Continue without it."
    );
}

#[test]
fn the_last_denied_call_opens_the_next_turn() {
    let mut heart = child(vec![(writes(), Some("a")), (reads(), None)]);
    assert_eq!(heart.says(deny(0)), "ask_answered -0:denied Done > W");
    assert_eq!(heart.says(tool(1, 1, "read")), "-1:ok turn > W");
    let mut alone = child(vec![(writes(), Some("a"))]);
    assert_eq!(alone.says(deny(0)), "ask_answered -0:denied parked(slot) Done > Wm");
    assert_eq!(alone.says(admitted()), "resumed turn > W");
}

#[test]
fn calls_that_may_write_keep_the_order_of_their_answer() {
    let calls = || vec![(writes(), Some("a")), (writes(), None), (writes(), Some("c"))];
    let mut heart = child(calls());
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn, "the second waits behind the first");
    assert!(!heart.state.run.as_ref().unwrap().slot, "and keeps no slot");
    assert_eq!(heart.says(allow(2)), "ask_answered Done > Wm");
    assert_eq!(heart.says(allow(0)), "ask_answered parked(slot) Done > Wm");
    assert_eq!(heart.says(admitted()), "resumed +0 > W");
    assert_eq!(heart.says(tool(1, 0, "a")), "-0:ok +1 > W");
    assert_eq!(heart.says(tool(1, 1, "b")), "-1:ok +2 > W");
    assert_eq!(heart.says(tool(1, 2, "c")), "-2:ok turn > W");
    let mut denied = child(calls());
    assert_eq!(denied.says(deny(0)), "ask_answered -0:denied parked(slot) Done > Wm");
    assert_eq!(denied.says(admitted()), "resumed +1 > W");
    assert_eq!(denied.says(tool(1, 1, "b")), "-1:ok parked(ask) > Wm");
}

#[test]
fn reads_do_not_wait_for_a_word_on_a_write() {
    let mut heart = child(vec![(writes(), Some("a")), (reads(), None), (reads(), Some("b"))]);
    assert_eq!(heart.state.phase(), Phase::Working);
    assert_eq!(heart.says(allow(2)), "ask_answered +2 Done > W");
}

#[test]
fn approved_child_call_is_admitted_with_slot_and_seen_by_waits() {
    let all = CallKind::Await { all: true, runs: Vec::new() };
    let mut heart = child(vec![(background(), Some("a")), (all, None)]);
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn, "the wait is to see the child");
    assert_eq!(heart.says(allow(0)), "ask_answered parked(slot) Done > Wm");
    let decision = heart.tell(admitted()).unwrap();
    assert_eq!(short(&heart, &Ok(decision.clone())), "resumed > W");
    assert!(decision.effects.contains(&Effect::Admit { turn: TurnNo(1), calls: vec![0] }));
    assert_eq!(heart.says(spawn(1, Mode::Background, &[(0, 0xB1)])), "+0 spawned -0:ok +1 parked(midturn) > Wm");
    let of_child = |record: &Record| match record {
        Record::CallStarted { call: started, access, .. } if *started == call(1, 0) => access.clone(),
        _ => None,
    };
    assert_eq!(heart.log.iter().find_map(of_child), Some(Box::new(access("a"))), "its record says what was allowed");
    assert_eq!(heart.says(ended(0xB1, call(1, 0))), "await[1] parked(slot) > Wm");
}

#[test]
fn a_read_that_is_allowed_takes_its_place_among_those_that_wait() {
    let kinds = vec![(reads(), None), (reads(), None), (reads(), Some("a")), (reads(), None)];
    let heart = Heart::root_with(Limits { local_calls: 1, ..Limits::default() }).then(send(1, "go"));
    let mut heart = heart.then(asking(1, kinds)).then(allow(2));
    assert_eq!(heart.says(tool(1, 0, "read")), "-0:ok +1 > W");
    assert_eq!(heart.says(tool(1, 1, "read")), "-1:ok +2 > W");
    assert_eq!(heart.says(tool(1, 2, "read")), "-2:ok +3 > W");
}

#[test]
fn run_awaiting_approval_keeps_slot_until_admission() {
    let mut heart = child(vec![(blocking(), None), (writes(), Some("a"))]);
    let run = heart.state.run.as_ref().unwrap();
    assert_eq!((heart.state.phase(), run.slot, run.parked), (Phase::Working, true, None));
    assert_eq!(heart.says(spawn(1, Mode::Blocking, &[(0, 0xB1)])), "+0 spawned parked(ask) > Wm");
}

#[test]
fn row_before_calls_are_resolved_again_parks_no_run() {
    let heart = child(vec![(blocking(), None), (blocking(), None)]).then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    let mut again = heart.refolded();
    assert_eq!(again.says(ended(0xB1, call(1, 0))), "result > W", "the second is still to be admitted");
    assert_eq!(again.says(found(vec![(1, blocking(), false)])), "> W");
    assert_eq!(again.says(spawn(1, Mode::Blocking, &[(1, 0xB2)])), "+1 spawned parked(midturn) > Wm");
}

#[test]
fn always_covers_its_access_and_calls_with_the_same_access() {
    let mut heart = root(vec![(writes(), Some("a")), (writes(), Some("b")), (writes(), Some("a"))]);
    assert_eq!(heart.says(word(0, AskVerdict::Always)), "ask_answered ask_answered +0 Done > W");
    let Some(Record::AskAnswered { call: also, verdict, .. }) = heart.log.get(heart.log.len() - 2) else { panic!() };
    assert_eq!((*also, *verdict), (call(1, 2), AskVerdict::Allow));
    assert_eq!(heart.state.always.iter().collect::<Vec<_>>(), [&access("a")]);
    assert_eq!(root(vec![(writes(), Some("a"))]).then(allow(0)).state.always.len(), 0, "once is once");
}

#[test]
fn a_word_that_is_not_asked_for_is_stale() {
    let mut heart = root(vec![(writes(), Some("a")), (reads(), None)]);
    let stale = Err(Rejection::Stale("an approval"));
    assert_eq!(heart.tell(allow(1)), stale, "started");
    assert_eq!(heart.tell(allow(7)), stale, "none");
    heart.tell(allow(0)).unwrap();
    assert_eq!(heart.tell(deny(0)), stale, "given");
    assert_eq!(heart.tell(Command::Deadline(Deadline::Ask(call(1, 0)))), Err(Rejection::Stale("a deadline")));
}

fn found(kinds: Vec<(u32, CallKind, bool)>) -> Command {
    let found = |(ix, kind, ask): (u32, CallKind, bool)| FoundCall {
        ask,
        access: Some(Box::new(access("a"))),
        ..FoundCall::plain(call(1, ix), kind)
    };
    Command::Reactivated { calls: kinds.into_iter().map(found).collect(), owner_over: None }
}

#[test]
fn new_activation_repeats_open_asks_and_no_approved_ones() {
    let heart = child(vec![(writes(), Some("a")), (writes(), Some("b"))]).then(allow(0)).then(admitted());
    // The first call runs; the second still waits for its approval.
    let mut again = heart.refolded();
    let decision = again.tell(found(vec![(1, writes(), true)])).unwrap();
    let deadlines = [
        Effect::AskPerson { call: call(1, 1) },
        Effect::Arm { deadline: Deadline::Ask(call(1, 1)), after_ms: 300_000 },
    ];
    assert!(decision.effects.windows(2).any(|effects| effects == deadlines), "{:?}", decision.effects);
    assert_eq!(short(&again, &Ok(decision)), "-0:unknown parked(ask) > Wm");
    assert_eq!(again.says(allow(1)), "ask_answered parked(slot) Done > Wm");
    // Allowed, and not started when the activation was lost.
    let mut due = child(vec![(writes(), Some("a"))]).then(allow(0)).refolded();
    assert_eq!(due.says(found(vec![(0, writes(), true)])), "> Wm");
    assert_eq!(due.says(admitted()), "resumed +0 > W");
}

/// Returns the milliseconds that a new activation waits for the open ask of `heart`, activated at `wall_ms`.
fn rearmed_at(heart: &Heart, wall_ms: i64) -> u64 {
    let mut again = heart.refolded();
    let at = Clock { wall_ms, ..clock() };
    let decision = again.rules.decide(&mut again.state, found(vec![(0, writes(), true)]), at).unwrap();
    let armed = decision.effects.iter().find_map(|effect| match effect {
        Effect::Arm { deadline: Deadline::Ask(ask_call), after_ms } if *ask_call == call(1, 0) => Some(*after_ms),
        _ => None,
    });
    armed.unwrap()
}

#[test]
fn restart_prolongs_no_ask_when_its_deadline_is_recorded() {
    let heart = child(vec![(writes(), Some("a"))]);
    // Opened at 1,000,000 for 300,000; the last clock was set back.
    let waits = [1_000_000, 1_299_999, 1_300_000, 9_000_000, 1].map(|now| rearmed_at(&heart, now));
    assert_eq!(waits, [300_000, 1, 0, 0, 300_000]);
    // An older journal names no deadline.
    let older = Heart::born(heart.state.id, without_deadlines(&heart.log));
    assert_eq!(rearmed_at(&older, 1_299_999), 300_000);
}

fn without_deadlines(log: &[Record]) -> Vec<Record> {
    let older = log.iter().cloned().map(|mut record| {
        if let Record::AskOpened { deadline_at, .. } = &mut record {
            *deadline_at = None;
        }
        record
    });
    older.collect()
}

#[test]
fn a_call_whose_tool_is_gone_when_it_is_allowed_says_so() {
    let mut heart = root(vec![(writes(), Some("a"))]).refolded();
    assert_eq!(heart.says(found(vec![(0, CallKind::Invalid(Invalid::UnknownTool), false)])), "> Wm");
    assert_eq!(heart.says(allow(0)), "ask_answered +0 -0:error turn Done > W");
}

#[test]
fn an_asked_call_among_others_is_closed_once_by_an_end() {
    let mut heart = root(vec![(writes(), Some("a")), (reads(), None)]);
    let decision = heart.tell(cancel()).unwrap();
    let finished = CallFinished {
        call: call(1, 0),
        end: CallEnd::Cancelled,
        content: "Cancelled: the run is ending.".into(),
        truncated_from: None,
        worked_ms: 0,
    };
    assert_eq!(
        decision.records[..2],
        [
            Record::AskAnswered { call: call(1, 0), verdict: AskVerdict::Deny, by: AskBy::Closed },
            Record::CallFinished(Box::new(finished)),
        ]
    );
    assert_eq!(decision.effects[0], Effect::Disarm { deadline: Deadline::Ask(call(1, 0)) });
}

/// The asks that remain open when their run is cancelled.
fn an_end_closes_asks(rules: Rules) -> String {
    let mut heart = Heart::root().under(rules).then(send(1, "go")).then(asking(1, vec![(writes(), Some("a"))]));
    heart.says(cancel())
}

/// The holder of the slot while an approval is awaited.
fn a_run_that_asks_has_no_slot(rules: Rules) -> String {
    let mut heart = Heart::child().under(rules).then(admitted());
    heart.says(asking(1, vec![(writes(), Some("a"))]))
}

/// Whether an ask has a deadline.
fn an_ask_has_a_deadline(rules: Rules) -> String {
    let mut heart = Heart::root().under(rules).then(send(1, "go"));
    let decision = heart.tell(asking(1, vec![(writes(), Some("a"))])).unwrap();
    let arms = |effect: &&Effect| matches!(effect, Effect::Arm { deadline: Deadline::Ask(_), .. });
    format!("{:?}", decision.effects.iter().find(arms))
}

#[test]
fn stories_of_asks() {
    let none = Rules::ALL;
    assert_eq!(an_end_closes_asks(none), "ask_answered -0:cancelled ended(cancelled) Done > E");
    assert_eq!(a_run_that_asks_has_no_slot(none), "answered ask_opened parked(ask) > Wm");
}

#[test]
fn every_seeded_bug_of_asks_shows() {
    use subtend_invariants::bugs::Bug;
    let shows = |bug, story: fn(Rules) -> String| assert_ne!(story(Rules::without(bug)), story(Rules::ALL));
    shows(Bug::AskLeftOpen, an_end_closes_asks);
    shows(Bug::SlotKeptWhileAsking, a_run_that_asks_has_no_slot);
    shows(Bug::AskWithoutDeadline, an_ask_has_a_deadline);
}

/// Each ask is answered once, before its call has a result and before the run ends; what was allowed is what started.
fn answered_once(log: &[Record]) {
    let mut open: BTreeMap<CallId, bool> = BTreeMap::new();
    for record in log {
        match record {
            Record::AskOpened { call, .. } => assert_eq!(open.insert(*call, true), None, "asked for once"),
            Record::AskAnswered { call, .. } => assert_eq!(open.insert(*call, false), Some(true), "answered once"),
            Record::CallStarted { call, .. } => assert_ne!(open.get(call), Some(&true), "started while asked for"),
            Record::CallFinished(finished) => {
                assert_ne!(open.get(&finished.call), Some(&true), "closed while asked for")
            }
            Record::RunEnded(_) | Record::RunHeld { .. } | Record::TurnStarted { .. } => {
                assert!(open.values().all(|open| !open), "left open");
            }
            _ => {}
        }
    }
}

/// The writes of each turn start in the order of their answer, and none alongside another.
fn writes_in_order(log: &[Record]) {
    let mut last: Option<CallId> = None;
    let mut at_work = None;
    for record in log {
        match record {
            Record::CallStarted { call, kind, .. } if **kind == writes() => {
                assert!(last.is_none_or(|last| last < *call), "{call} after {last:?}");
                assert_eq!(at_work, None, "one at a time");
                (last, at_work) = (Some(*call), Some(*call));
            }
            Record::CallFinished(finished) if at_work == Some(finished.call) => at_work = None,
            _ => {}
        }
    }
}

/// One step of a random life in which most steps concern approvals.
fn step(heart: &mut Heart, (what, a, b): (u8, u8, u8)) {
    let turn = heart.state.turn().map_or(1, |turn| turn.no.0);
    let at = call(turn, u32::from(a % 4));
    // The kind of a call follows from the call: a later activation resolves the same.
    let kind = |ix: u32| [reads(), writes(), background(), blocking(), writes()][(turn * 3 + ix) as usize % 5].clone();
    let resource = |ix: u32| [None, Some("a"), Some("b"), Some("a")][(turn + ix) as usize % 4];
    let command = match what % 12 {
        0 | 1 => asking(turn, (0..u32::from(a % 5)).map(|ix| (kind(ix), resource(ix))).collect()),
        2..=4 => {
            let verdict =
                [AskVerdict::Allow, AskVerdict::Deny, AskVerdict::Always, AskVerdict::Allow][usize::from(b % 4)];
            Command::AskAnswered { call: at, verdict, by: AskBy::Person }
        }
        5 => Command::Deadline(Deadline::Ask(at)),
        6 => Command::Admitted { run: heart.state.last_run, owner_over: None },
        7 => tool(turn, at.ix, "out"),
        8 => spawn(turn, Mode::Background, &[(at.ix, 0x4000 + u128::from(heart.state.next_seq.0))]),
        9 if b < 60 => interrupt(),
        9 if b < 90 => cancel(),
        9 => send(5_000 + u128::from(heart.state.next_seq.0), "more"),
        10 => {
            *heart = heart.refolded();
            let found = |ix| FoundCall { ask: resource(ix).is_some(), ..FoundCall::plain(call(turn, ix), kind(ix)) };
            let calls = (0..5).map(found);
            Command::Reactivated { calls: calls.collect(), owner_over: None }
        }
        _ => answers(turn, "said"),
    };
    // The hub answers only for child calls whose admission was requested.
    if matches!(command, Command::Spawn { .. }) && !awaits_admission(heart, at) {
        return;
    }
    let _ = heart.tell(command);
}

fn awaits_admission(heart: &Heart, at: CallId) -> bool {
    let due = &heart.state.due;
    let unstarted = heart.state.call(at).is_some_and(|call| call.phase == CallPhase::Unstarted);
    let elsewhere = due.reads.contains(&at.ix)
        || due.children.contains(&at.ix)
        || due.writes.iter().any(|(ix, _)| *ix == at.ix)
        || due.waits.iter().any(|(ix, _)| *ix == at.ix);
    unstarted && !elsewhere
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_ask_is_answered_once_in_any_life(
        steps in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..90),
        slot in any::<bool>(),
    ) {
        let limits = Limits { turns: 12, ..small() };
        let mut heart = if slot { Heart::child_with(limits, 12).then(admitted()) } else { Heart::root_with(limits).then(send(1, "go")) };
        for one in steps {
            step(&mut heart, one);
            let run = heart.state.run.as_ref();
            let waits = heart.state.turn().is_some_and(|turn| turn.asked > 0 && turn.local == 0);
            if waits && heart.state.due.admissions == 0 && slot {
                prop_assert!(run.is_none_or(|run| !run.slot), "a run that only asks has a slot");
            }
        }
        answered_once(&heart.log);
        writes_in_order(&heart.log);
    }
}
