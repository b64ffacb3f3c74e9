use std::collections::BTreeMap;

use crate::given::*;
use proptest::prelude::*;
use subtend_session::state::OpenAsk;

use crate::folding::small;

/// Returns an answer with these calls. A call with a resource needs an approval.
pub(crate) fn asking(turn: u32, calls: Vec<(CallKind, Option<&str>)>) -> Command {
    let call = |(kind, resource): (CallKind, Option<&str>)| {
        let access = resource.map(|resource| Box::new(access(resource)));
        subtend_session::command::ResolvedCall {
            ask: NeededApproval::of_one(access.is_some()),
            access,
            ..resolved(kind)
        }
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
        queued_ms: 0,
    }))
}

fn access(resource: &str) -> Access {
    Access { action: "fs.write".into(), resource: resource.into() }
}

fn open_ask(resource: &str) -> OpenAsk {
    OpenAsk { access: access(resource), deadline_at: Some(1_300_000) }
}

fn answer_ask(ix: u32, verdict: AskVerdict) -> Command {
    Command::AskAnswered { call: call(1, ix), verdict, by: AnsweredBy::Person }
}

pub(crate) fn allow(ix: u32) -> Command {
    answer_ask(ix, AskVerdict::Allow)
}

fn deny(ix: u32) -> Command {
    answer_ask(ix, AskVerdict::Deny)
}

fn root(calls: Vec<(CallKind, Option<&str>)>) -> Heart {
    Heart::root().then(send(1, "go")).then(asking(1, calls))
}

pub(crate) fn child(calls: Vec<(CallKind, Option<&str>)>) -> Heart {
    Heart::child().then(admitted()).then(asking(1, calls))
}

#[test]
fn ask_names_its_action_and_resource() {
    let mut heart = Heart::child().then(admitted());
    let decision = heart.decide(asking(1, vec![(writes(), Some("a"))])).unwrap();
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
    let decision = heart.decide(allow(0)).unwrap();
    let answered = Record::AskAnswered { call: call(1, 0), verdict: AskVerdict::Allow, by: AnsweredBy::Person };
    let parked = Record::RunParked { run: RunNo(1), why: Park::Slot, worked_ms: 100 };
    assert_eq!(decision.records, [answered, parked]);
    assert_eq!(decision.reply, Reply::Done(RunNo(1)));
    assert_eq!(
        decision.effects,
        [
            Effect::Disarm { deadline: Deadline::Ask(call(1, 0)) },
            Effect::RequestSlot { run: RunNo(1), resumed: true },
            Effect::Unload,
        ]
    );
    let decision = heart.decide(admitted()).unwrap();
    let started = Record::CallStarted {
        call: call(1, 0),
        kind: Box::new(writes()),
        timeout_ms: Some(120_000),
        access: Some(Box::new(access("a"))),
    };
    assert_eq!(decision.records, [Record::RunResumed { run: RunNo(1), why: Park::Slot, slot: true }, started]);
    assert_eq!(heart.summary(tool(1, 0, "written")), "-0:ok turn > W");
}

#[test]
fn approved_call_starts_at_once_without_a_slot() {
    let mut heart = root(vec![(writes(), Some("a"))]);
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn);
    assert_eq!(heart.summary(allow(0)), "ask_answered +0 Done > W");
}

#[test]
fn allowed_call_needs_no_approval_and_records_its_access() {
    let mut heart = Heart::root().then(send(1, "go"));
    let Command::ModelAnswered(mut answer) = asking(1, vec![(reads(), Some("a"))]) else { unreachable!() };
    answer.calls[0].ask = NeededApproval::None;
    let decision = heart.decide(Command::ModelAnswered(answer)).unwrap();
    let started = Record::CallStarted {
        call: call(1, 0),
        kind: Box::new(reads()),
        timeout_ms: Some(120_000),
        access: Some(Box::new(access("a"))),
    };
    assert_eq!(decision.records[1..], [started]);
}

#[test]
fn denied_call_result_names_the_reason() {
    let text = |command| {
        let heart = root(vec![(writes(), Some("a"))]).then(command);
        match heart.state.transcript.last().unwrap() {
            Message::Result { error: true, content, .. } => content.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(text(deny(0)), "Not allowed: fs.write on a; the approver rejected it. Continue without it.");
    assert_eq!(
        text(Command::Deadline(Deadline::Ask(call(1, 0)))),
        "Not allowed: fs.write on a; no approver answered in time. Continue without it."
    );
    let by = AnsweredBy::NoApprover;
    assert_eq!(
        text(Command::AskAnswered { call: call(1, 0), verdict: AskVerdict::Deny, by }),
        "Not allowed: fs.write on a; approval required, and no approver is attached. Continue without it."
    );
}

#[test]
fn denied_last_call_starts_the_next_turn() {
    let mut heart = child(vec![(writes(), Some("a")), (reads(), None)]);
    assert_eq!(heart.summary(deny(0)), "ask_answered -0:denied Done > W");
    assert_eq!(heart.summary(tool(1, 1, "read")), "-1:ok turn > W");
    let mut alone = child(vec![(writes(), Some("a"))]);
    assert_eq!(alone.summary(deny(0)), "ask_answered -0:denied parked(slot) Done > Wm");
    assert_eq!(alone.summary(admitted()), "resumed turn > W");
}

#[test]
fn writing_calls_keep_the_order_of_their_answer() {
    let calls = || vec![(writes(), Some("a")), (writes(), None), (writes(), Some("c"))];
    let mut heart = child(calls());
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn, "the second call waits for the first");
    assert!(!heart.state.run.as_ref().unwrap().slot, "the slot is released");
    assert_eq!(heart.summary(allow(2)), "ask_answered Done > Wm");
    assert_eq!(heart.summary(allow(0)), "ask_answered parked(slot) Done > Wm");
    assert_eq!(heart.summary(admitted()), "resumed +0 > W");
    assert_eq!(heart.summary(tool(1, 0, "a")), "-0:ok +1 > W");
    assert_eq!(heart.summary(tool(1, 1, "b")), "-1:ok +2 > W");
    assert_eq!(heart.summary(tool(1, 2, "c")), "-2:ok turn > W");
    let mut denied = child(calls());
    assert_eq!(denied.summary(deny(0)), "ask_answered -0:denied parked(slot) Done > Wm");
    assert_eq!(denied.summary(admitted()), "resumed +1 > W");
    assert_eq!(denied.summary(tool(1, 1, "b")), "-1:ok parked(ask) > Wm");
}

#[test]
fn reads_do_not_wait_for_approval_of_a_write() {
    let mut heart = child(vec![(writes(), Some("a")), (reads(), None), (reads(), Some("b"))]);
    assert_eq!(heart.state.phase(), Phase::Working);
    assert_eq!(heart.summary(allow(2)), "ask_answered +2 Done > W");
}

#[test]
fn approved_child_call_is_admitted_with_slot_and_seen_by_waits() {
    let all = CallKind::Await { all: true, runs: Vec::new() };
    let mut heart = child(vec![(background(), Some("a")), (all, None)]);
    assert_eq!(heart.state.phase(), Phase::WaitingMidTurn, "the await starts after the child");
    assert_eq!(heart.summary(allow(0)), "ask_answered parked(slot) Done > Wm");
    let decision = heart.decide(admitted()).unwrap();
    assert_eq!(short(&heart, &Ok(decision.clone())), "resumed > W");
    assert!(decision.effects.contains(&Effect::Admit { turn: TurnNo(1), calls: vec![0] }));
    assert_eq!(heart.summary(spawn(1, Mode::Background, &[(0, 0xB1)])), "+0 spawned -0:ok +1 parked(midturn) > Wm");
    let of_child = |record: &Record| match record {
        Record::CallStarted { call: started, access, .. } if *started == call(1, 0) => access.clone(),
        _ => None,
    };
    let started = heart.log.iter().find_map(of_child);
    assert_eq!(started, Some(Box::new(access("a"))), "the start of the call records the allowed access");
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "await[1] parked(slot) > Wm");
}

#[test]
fn approved_read_is_queued_at_its_position() {
    let kinds = vec![(reads(), None), (reads(), None), (reads(), Some("a")), (reads(), None)];
    let heart = Heart::root_with(Limits { local_calls: 1, ..Limits::default() }).then(send(1, "go"));
    let mut heart = heart.then(asking(1, kinds)).then(allow(2));
    assert_eq!(heart.summary(tool(1, 0, "read")), "-0:ok +1 > W");
    assert_eq!(heart.summary(tool(1, 1, "read")), "-1:ok +2 > W");
    assert_eq!(heart.summary(tool(1, 2, "read")), "-2:ok +3 > W");
}

#[test]
fn run_awaiting_approval_keeps_slot_until_admission() {
    let mut heart = child(vec![(blocking(), None), (writes(), Some("a"))]);
    let run = heart.state.run.as_ref().unwrap();
    assert_eq!((heart.state.phase(), run.slot, run.parked), (Phase::Working, true, None));
    assert_eq!(heart.summary(spawn(1, Mode::Blocking, &[(0, 0xB1)])), "+0 spawned parked(ask) > Wm");
}

#[test]
fn row_before_calls_are_resolved_does_not_park_the_run() {
    let heart = child(vec![(blocking(), None), (blocking(), None)]).then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    let mut again = heart.refolded();
    assert_eq!(again.summary(ended(0xB1, call(1, 0))), "result > W", "the second call is not admitted yet");
    assert_eq!(again.summary(found(vec![(1, blocking(), false)])), "> W");
    assert_eq!(again.summary(spawn(1, Mode::Blocking, &[(1, 0xB2)])), "+1 spawned parked(midturn) > Wm");
}

#[test]
fn always_covers_its_access_and_calls_with_the_same_access() {
    let mut heart = root(vec![(writes(), Some("a")), (writes(), Some("b")), (writes(), Some("a"))]);
    assert_eq!(heart.summary(answer_ask(0, AskVerdict::Always)), "ask_answered ask_answered +0 Done > W");
    let Some(Record::AskAnswered { call: also, verdict, .. }) = heart.log.get(heart.log.len() - 2) else { panic!() };
    assert_eq!((*also, *verdict), (call(1, 2), AskVerdict::Allow));
    assert_eq!(heart.state.always.iter().collect::<Vec<_>>(), [&("tool".into(), access("a"))]);
    assert_eq!(
        root(vec![(writes(), Some("a"))]).then(allow(0)).state.always.len(),
        0,
        "a single approval is not permanent"
    );
}

/// A call that needs a further approval would run with an access that was not shown. The control: the same call without
/// the further need.
#[test]
fn always_does_not_approve_the_further_accesses_of_another_call() {
    let approved = |need, now_named: &str| {
        let calls = vec![(writes(), Some("a")), (writes(), Some("a"))];
        let Command::ModelAnswered(mut answer) = asking(1, calls) else { panic!("an answer") };
        answer.calls[1].ask = need;
        let heart = Heart::root().then(send(1, "go")).then(Command::ModelAnswered(answer));
        let found = |ix, ask, named| FoundCall {
            ask,
            access: Some(Box::new(access(named))),
            ..FoundCall::plain(call(1, ix), writes())
        };
        let calls = vec![found(0, NeededApproval::OneAccess, "a"), found(1, need, now_named)];
        let again = heart.refolded().then(Command::Reactivated { calls, owner_ended: None });
        [heart, again].map(|heart| {
            let heart = heart.then(answer_ask(0, AskVerdict::Always));
            heart.log.iter().filter(|record| record.kind() == "ask_answered").count()
        })
    };
    assert_eq!(approved(NeededApproval::OneAccess, "a"), [2, 2]);
    assert_eq!(approved(NeededApproval::SeveralAccesses, "a"), [1, 1]);
    // After a permanent approval of `a`, a new activation names the one that is left.
    assert_eq!(approved(NeededApproval::OneAccess, "b"), [2, 1]);
}

/// A call of an unknown access asks by its tool. The control: a call that names an access after the restart was not shown with it.
#[test]
fn always_covers_calls_by_tool_after_a_restart() {
    let Command::ModelAnswered(mut answer) = asking(1, vec![(writes(), Some("a")); 2]) else { panic!("an answer") };
    answer.calls.iter_mut().for_each(|call| call.access = None);
    let heart = Heart::root().then(send(1, "go")).then(Command::ModelAnswered(answer));
    let answered = |named: Option<&str>| {
        let access = || named.map(|named| Box::new(access(named)));
        let ask = NeededApproval::OneAccess;
        let calls = [0, 1].map(|ix| FoundCall { ask, access: access(), ..FoundCall::plain(call(1, ix), writes()) });
        let again = heart.refolded().then(Command::Reactivated { calls: calls.into(), owner_ended: None });
        let heart = again.then(answer_ask(0, AskVerdict::Always));
        heart.log.iter().filter(|record| record.kind() == "ask_answered").count()
    };
    assert_eq!([answered(None), answered(Some("a"))], [2, 1]);
}

#[test]
fn unrequested_approval_is_stale() {
    let mut heart = root(vec![(writes(), Some("a")), (reads(), None)]);
    let stale = Err(Rejection::Stale("an approval"));
    assert_eq!(heart.decide(allow(1)), stale, "the call has started");
    assert_eq!(heart.decide(allow(7)), stale, "unknown call");
    heart.decide(allow(0)).unwrap();
    assert_eq!(heart.decide(deny(0)), stale, "already answered");
    assert_eq!(heart.decide(Command::Deadline(Deadline::Ask(call(1, 0)))), Err(Rejection::Stale("a deadline")));
}

fn found(kinds: Vec<(u32, CallKind, bool)>) -> Command {
    let found = |(ix, kind, ask): (u32, CallKind, bool)| FoundCall {
        ask: NeededApproval::of_one(ask),
        access: Some(Box::new(access("a"))),
        ..FoundCall::plain(call(1, ix), kind)
    };
    Command::Reactivated { calls: kinds.into_iter().map(found).collect(), owner_ended: None }
}

#[test]
fn new_activation_repeats_only_open_asks() {
    let heart = child(vec![(writes(), Some("a")), (writes(), Some("b"))]).then(allow(0)).then(admitted());
    // The first call runs. The second still awaits approval.
    let mut again = heart.refolded();
    let decision = again.decide(found(vec![(1, writes(), true)])).unwrap();
    let deadlines = [
        Effect::AskPerson { call: call(1, 1) },
        Effect::Arm { deadline: Deadline::Ask(call(1, 1)), after_ms: 300_000 },
    ];
    assert!(decision.effects.windows(2).any(|effects| effects == deadlines), "{:?}", decision.effects);
    assert_eq!(short(&again, &Ok(decision)), "-0:unknown parked(ask) > Wm");
    assert_eq!(again.summary(allow(1)), "ask_answered parked(slot) Done > Wm");
    // The call was approved, but had not started when the activation was lost.
    let mut due = child(vec![(writes(), Some("a"))]).then(allow(0)).refolded();
    assert_eq!(due.summary(found(vec![(0, writes(), true)])), "> Wm");
    assert_eq!(due.summary(admitted()), "resumed +0 > W");
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
fn restart_does_not_prolong_a_recorded_ask_deadline() {
    let heart = child(vec![(writes(), Some("a"))]);
    // The ask was opened at 1,000,000 ms with a limit of 300,000 ms. The last clock was set back.
    let waits = [1_000_000, 1_299_999, 1_300_000, 9_000_000, 1].map(|now| rearmed_at(&heart, now));
    assert_eq!(waits, [300_000, 1, 0, 0, 300_000]);
    // An older journal has no deadline.
    let older = Heart::from_records(heart.state.id, without_deadlines(&heart.log));
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
fn approved_call_of_a_missing_tool_fails() {
    let mut heart = root(vec![(writes(), Some("a"))]).refolded();
    assert_eq!(heart.summary(found(vec![(0, CallKind::Invalid(Invalid::UnknownTool), false)])), "> Wm");
    assert_eq!(heart.summary(allow(0)), "ask_answered +0 -0:error turn Done > W");
}

#[test]
fn end_closes_an_open_ask_once() {
    let mut heart = root(vec![(writes(), Some("a")), (reads(), None)]);
    let decision = heart.decide(cancel()).unwrap();
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
            Record::AskAnswered { call: call(1, 0), verdict: AskVerdict::Deny, by: AnsweredBy::Closed },
            Record::CallFinished(Box::new(finished)),
        ]
    );
    assert_eq!(decision.effects[0], Effect::Disarm { deadline: Deadline::Ask(call(1, 0)) });
}

fn cancel_with_open_ask(rules: Rules) -> String {
    let mut heart = Heart::root().with_rules(rules).then(send(1, "go")).then(asking(1, vec![(writes(), Some("a"))]));
    heart.summary(cancel())
}

fn ask_in_a_run_with_slot(rules: Rules) -> String {
    let mut heart = Heart::child().with_rules(rules).then(admitted());
    heart.summary(asking(1, vec![(writes(), Some("a"))]))
}

fn deadline_effect_of_ask(rules: Rules) -> String {
    let mut heart = Heart::root().with_rules(rules).then(send(1, "go"));
    let decision = heart.decide(asking(1, vec![(writes(), Some("a"))])).unwrap();
    let arms = |effect: &&Effect| matches!(effect, Effect::Arm { deadline: Deadline::Ask(_), .. });
    format!("{:?}", decision.effects.iter().find(arms))
}

#[test]
fn ask_scenarios_hold_with_all_rules() {
    let none = Rules::ALL;
    assert_eq!(cancel_with_open_ask(none), "ask_answered -0:cancelled ended(cancelled) Done > E");
    assert_eq!(ask_in_a_run_with_slot(none), "answered ask_opened parked(ask) > Wm");
}

#[test]
fn every_seeded_bug_of_asks_is_detected() {
    use subtend_invariants::bugs::Bug;
    let shows = |bug, scenario: fn(Rules) -> String| assert_ne!(scenario(Rules::without(bug)), scenario(Rules::ALL));
    shows(Bug::AskLeftOpen, cancel_with_open_ask);
    shows(Bug::SlotKeptWhileAsking, ask_in_a_run_with_slot);
    shows(Bug::AskWithoutDeadline, deadline_effect_of_ask);
}

/// Checks that each ask is answered once, before its call starts or has a result, and before the run ends.
fn assert_answered_once(log: &[Record]) {
    let mut open: BTreeMap<CallId, bool> = BTreeMap::new();
    for record in log {
        match record {
            Record::AskOpened { call, .. } => assert_eq!(open.insert(*call, true), None, "a call has one ask"),
            Record::AskAnswered { call, .. } => {
                assert_eq!(open.insert(*call, false), Some(true), "an ask has one answer")
            }
            Record::CallStarted { call, .. } => {
                assert_ne!(open.get(call), Some(&true), "a call started with an open ask")
            }
            Record::CallFinished(finished) => {
                assert_ne!(open.get(&finished.call), Some(&true), "a call was closed with an open ask")
            }
            Record::RunEnded(_) | Record::RunHeld { .. } | Record::TurnStarted { .. } => {
                assert!(open.values().all(|open| !open), "an ask is still open");
            }
            _ => {}
        }
    }
}

/// Checks that writes start in the order of their answer, one at a time.
fn assert_writes_in_order(log: &[Record]) {
    let mut last: Option<CallId> = None;
    let mut running = None;
    for record in log {
        match record {
            Record::CallStarted { call, kind, .. } if **kind == writes() => {
                assert!(last.is_none_or(|last| last < *call), "{call} after {last:?}");
                assert_eq!(running, None, "two writes run at the same time");
                (last, running) = (Some(*call), Some(*call));
            }
            Record::CallFinished(finished) if running == Some(finished.call) => running = None,
            _ => {}
        }
    }
}

fn step(heart: &mut Heart, (what, a, b): (u8, u8, u8)) {
    let turn = heart.state.turn().map_or(1, |turn| turn.no.0);
    let at = call(turn, u32::from(a % 4));
    // The kind depends only on the call's id, so that a later activation resolves the same kind.
    let kind = |ix: u32| [reads(), writes(), background(), blocking(), writes()][(turn * 3 + ix) as usize % 5].clone();
    let resource = |ix: u32| [None, Some("a"), Some("b"), Some("a")][(turn + ix) as usize % 4];
    let command = match what % 12 {
        0 | 1 => asking(turn, (0..u32::from(a % 5)).map(|ix| (kind(ix), resource(ix))).collect()),
        2..=4 => {
            let verdict =
                [AskVerdict::Allow, AskVerdict::Deny, AskVerdict::Always, AskVerdict::Allow][usize::from(b % 4)];
            Command::AskAnswered { call: at, verdict, by: AnsweredBy::Person }
        }
        5 => Command::Deadline(Deadline::Ask(at)),
        6 => Command::Admitted { run: heart.state.last_run, owner_ended: None },
        7 => tool(turn, at.ix, "out"),
        8 => spawn(turn, Mode::Background, &[(at.ix, 0x4000 + u128::from(heart.state.next_seq.0))]),
        9 if b < 60 => interrupt(),
        9 if b < 90 => cancel(),
        9 => send(5_000 + u128::from(heart.state.next_seq.0), "more"),
        10 => {
            *heart = heart.refolded();
            let found = |ix| FoundCall {
                ask: NeededApproval::of_one(resource(ix).is_some()),
                ..FoundCall::plain(call(turn, ix), kind(ix))
            };
            let calls = (0..5).map(found);
            Command::Reactivated { calls: calls.collect(), owner_ended: None }
        }
        _ => answers(turn, "said"),
    };
    // The runtime sends verdicts only for child calls whose admission was requested.
    if matches!(command, Command::Spawn { .. }) && !awaits_admission(heart, at) {
        return;
    }
    let _ = heart.decide(command);
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
    fn every_ask_is_answered_once_in_random_histories(
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
                prop_assert!(run.is_none_or(|run| !run.slot), "a run that only awaits approvals has a slot");
            }
        }
        assert_answered_once(&heart.log);
        assert_writes_in_order(&heart.log);
    }
}
