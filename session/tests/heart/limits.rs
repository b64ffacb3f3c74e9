use crate::given::*;
use proptest::prelude::*;
use subtend_session::command::Description;
use subtend_session::decide::wake;
use subtend_session::limits::Parking;

use crate::guards::unfit;

const RUN: RunNo = RunNo(1);
const HOUR: u64 = 3_600_000;
/// The turn's limit of the tests.
const TURN: u64 = 600_000;
/// The reset of the limit, an hour after the clock of the tests.
const RESET: i64 = 4_600_000;

pub(crate) fn limited(turn: u32, attempt: u32, after_ms: u64) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        error: ModelFail::Rate,
        message: "the weekly limit is reached".into(),
        retry_after_ms: Some(after_ms),
        model: None,
        next: None,
        resets: Vec::new(),
        usage: None,
        queued_ms: 0,
    }))
}

fn reset(turn: u32) -> Command {
    Command::Deadline(Deadline::Limit(TurnNo(turn)))
}

fn at_reset() -> Clock {
    Clock { wall_ms: RESET, worked_ms: 100 }
}

/// Returns a child whose turn 2 streams, with the background child 0xB1 in flight by call 1.0.
fn streams() -> Heart {
    let heart = Heart::child().then(admitted()).then(calls(1, vec![background()]));
    heart.then(spawn(1, Mode::Background, &[(0, 0xB1)]))
}

/// Returns the same child, parked in turn 2.
fn parked() -> Heart {
    streams().then(limited(2, 1, HOUR))
}

fn root() -> Heart {
    Heart::root().then(send(1, "go"))
}

#[test]
fn limit_beyond_the_turn_parks_and_gives_the_slot_back() {
    let mut heart = streams();
    let decision = heart.decide(limited(2, 1, HOUR)).unwrap();
    let parks = Record::RunParked { run: RUN, why: Park::Limit { until: RESET }, worked_ms: 100 };
    assert_eq!(decision.records[1..], [parks]);
    assert_eq!(
        decision.effects,
        [
            Effect::Disarm { deadline: Deadline::Turn(TurnNo(2)) },
            Effect::ReleaseSlot { run: RUN },
            Effect::Disarm { deadline: Deadline::Run(RUN) },
            Effect::Arm { deadline: Deadline::Limit(TurnNo(2)), after_ms: HOUR },
            Effect::Unload,
        ]
    );
    assert_eq!(heart.state.run.as_ref().unwrap().limit_reset_at(), Some(RESET));
}

#[test]
fn only_a_retryable_error_beyond_the_turn_parks_the_run() {
    let message = |command: Command| root().summary(command);
    assert_eq!(message(limited(1, 1, 599_999)), "discarded turn#2 > W");
    assert_eq!(message(limited(1, 1, 600_000)), "discarded parked(limit) > Wm");
    let Command::AttemptFailed(failed) = limited(1, 1, HOUR) else { unreachable!() };
    let other = |error| Command::AttemptFailed(Box::new(AttemptFailed { error, ..(*failed).clone() }));
    assert_eq!(message(other(ModelFail::Unavailable)), "discarded parked(limit) > Wm");
    assert_eq!(message(other(ModelFail::Credit)), "discarded ended(failed) > E");
    let pooled = AttemptFailed { next: Some("b".into()), ..(*failed).clone() };
    assert_eq!(
        message(Command::AttemptFailed(Box::new(pooled))),
        "discarded turn#2 > W",
        "another model is tried first"
    );
}

/// Returns a failed attempt of the member `a` of a pool, with its retry-after and the resets of the other members.
pub(crate) fn member_limited(
    attempt: (u32, u32),
    error: ModelFail,
    own: Option<u64>,
    resets: &[(&str, u64)],
) -> Command {
    let resets = resets.iter().map(|(model, after_ms)| ((*model).into(), *after_ms)).collect();
    let Command::AttemptFailed(failed) = limited(attempt.0, attempt.1, 0) else { unreachable!() };
    let failed = AttemptFailed { error, retry_after_ms: own, model: Some("a".into()), resets, ..*failed };
    Command::AttemptFailed(Box::new(failed))
}

/// The consequence of a failed attempt: the run parks until the reset of a member, or calls a member, after a delay.
#[derive(Debug, PartialEq)]
enum Follows {
    Parks(Option<String>, u64),
    Calls(String, u64),
    Neither,
}

fn follows(error: ModelFail, own: Option<u64>, resets: &[(&str, u64)]) -> Follows {
    let mut heart = root();
    let decision = heart.decide(member_limited((1, 1), error, own, resets)).unwrap();
    let Some(Record::AttemptDiscarded(discarded)) = decision.records.first() else { panic!("{decision:?}") };
    let awaits = discarded.awaits.as_ref().map(ToString::to_string);
    let (state, delay) = (&heart.state, discarded.retry_delay_ms.unwrap_or(0));
    let found = decision.records.iter().find_map(|record| match record {
        Record::RunParked { why: Park::Limit { until }, .. } => {
            assert_eq!(state.turn().unwrap().awaits.as_ref().map(ToString::to_string), awaits);
            let after_ms = until.abs_diff(RESET.saturating_sub_unsigned(HOUR));
            assert_eq!(after_ms, delay);
            Some(Follows::Parks(awaits.clone(), after_ms))
        }
        Record::TurnStarted { model, .. } => {
            assert_eq!((&awaits, &state.turn().unwrap().awaits), (&None, &None), "only a park awaits a reset");
            Some(Follows::Calls(model.to_string(), delay))
        }
        _ => None,
    });
    found.unwrap_or(Follows::Neither)
}

/// Each line has the error and retry-after of the failed model, the resets of the other models, and the consequence.
#[test]
fn x13_pool_parks_until_its_earliest_reset_beyond_the_turn() {
    let parks = |member: &str, after_ms| Follows::Parks(Some(member.to_owned()), after_ms);
    let calls = |model: &str, after_ms| Follows::Calls(model.to_owned(), after_ms);
    let rate = ModelFail::Rate;
    assert_eq!(follows(rate, Some(2 * HOUR), &[("b", HOUR), ("c", 3 * HOUR)]), parks("b", HOUR));
    assert_eq!(follows(rate, Some(HOUR), &[("b", 2 * HOUR)]), parks("a", HOUR), "the failed model resets first");
    let within_turn = [("b", 30_000), ("c", 20_000)];
    assert_eq!(follows(rate, Some(HOUR), &within_turn), calls("c", 20_000), "two models reset within the turn");
    assert_eq!(follows(rate, Some(HOUR), &[("b", 2 * HOUR), ("c", TURN)]), parks("c", TURN));
    assert_eq!(follows(rate, Some(HOUR), &[("b", TURN - 1)]), calls("b", TURN - 1));
    assert_eq!(follows(ModelFail::Auth, None, &[("b", HOUR)]), parks("b", HOUR), "a refused key does not reset");
    assert_eq!(follows(ModelFail::Auth, None, &[("b", 1)]), calls("b", 1));
    assert_eq!(follows(ModelFail::Auth, Some(HOUR), &[]), Follows::Neither, "the run fails");
    assert_eq!(follows(ModelFail::InvalidRequest, None, &[("b", HOUR)]), Follows::Neither, "each model refuses it");
    let own = follows(rate, Some(30_000), &[("b", 1)]);
    assert_eq!(own, calls("scripted", 30_000), "the failed model is retried within the turn, as without a pool");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// A run parks only if no member resets within the turn, and then until the earliest reset.
    #[test]
    fn x13_park_names_the_member_that_resets_first(
        own in TURN..4 * TURN,
        others in proptest::collection::vec(0..4 * TURN, 0..4),
    ) {
        let others: Vec<(&str, u64)> = ["b", "c", "d"].into_iter().zip(others).collect();
        let all = || others.iter().copied().chain([("a", own)]);
        match follows(ModelFail::Rate, Some(own), &others) {
            Follows::Parks(Some(member), after_ms) => {
                prop_assert!(all().any(|found| found == (member.as_str(), after_ms)));
                prop_assert!(all().all(|(_, reset)| reset >= after_ms && reset >= TURN));
            }
            Follows::Calls(member, after_ms) => {
                prop_assert!(after_ms < TURN && others.contains(&(member.as_str(), after_ms)));
                prop_assert!(all().all(|(_, reset)| reset >= after_ms));
            }
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
}

/// Without a pool, and in records of earlier builds, a run waits for its own model.
#[test]
fn x13_park_without_a_pool_names_no_member() {
    let mut heart = root();
    let decision = heart.decide(limited(1, 1, HOUR)).unwrap();
    let json = serde_json::to_value(&decision.records[0]).unwrap();
    assert_eq!(json["attempt_discarded"].get("awaits"), None);
    let named = root().then(member_limited((1, 1), ModelFail::Rate, Some(HOUR), &[]));
    let refolded = named.refolded().state;
    assert_eq!(refolded.turn().unwrap().awaits.as_deref(), Some("a"), "the awaited model survives a restart");
    let mut resumes = named;
    resumes.decide_at(reset(1), at_reset()).unwrap();
    assert_eq!(resumes.state.turn().unwrap().awaits, None, "the repeated call awaits nothing");
}

#[test]
fn run_with_parking_off_fails_at_once_with_the_reason() {
    let off = Limits { park: Parking::Off, ..Limits::default() };
    let mut heart = Heart::root_with(off).then(send(1, "go"));
    assert_eq!(heart.summary(limited(1, 1, HOUR)), "discarded ended(failed) > E");
    let Some(Outcome::Failed { kind }) = heart.state.outcomes.last() else { panic!("it failed") };
    assert!(format!("{kind:?}").contains("the weekly limit is reached"), "{kind:?}");
}

/// Covers every command of the table, in its order.
#[test]
fn parked_run_handles_every_command() {
    let owner_ended = || Command::OwnerEnded { owner: owner_run(), outcome: OutcomeKind::Failed, keeps_queue: false };
    let deadline = Command::Deadline;
    let cells: Vec<(&str, Command, &str)> = vec![
        ("send", send(9, "more"), "accepted > Wm"),
        ("steer", steer(9, "left"), "accepted > Wm"),
        ("admitted", admitted(), "S"),
        ("model answered", answers(2, "late"), "S"),
        ("attempt failed", limited(2, 1, HOUR), "S"),
        ("tool finished", tool(2, 0, "late"), "S"),
        ("spawn", spawn(2, Mode::Background, &[(0, 0xB2)]), "S"),
        ("owned ended", ended(0xB1, call(1, 0)), "> Wm"),
        ("cancel", cancel(), "closing(cancelled) Done > Hc"),
        ("cancel of the tree", cancel_tree(), "closing(cancelled) Done > Hc"),
        ("interrupt", interrupt(), "held(interrupted) Done > Hi"),
        ("owner ended", owner_ended(), "closing(cancelled) > Hc"),
        ("owner cancels", owner_cancels(call(1, 0)), "closing(cancelled) > Hc"),
        ("deadline run", deadline(Deadline::Run(RUN)), "S"),
        ("deadline queue", deadline(Deadline::Queue(RUN)), "S"),
        ("deadline turn", deadline(Deadline::Turn(TurnNo(2))), "S"),
        ("deadline call", deadline(Deadline::Call(call(2, 0))), "S"),
        ("deadline wall cap", deadline(Deadline::WallCap(RUN)), "closing(timed_out) > Hc"),
        ("deadline grace", deadline(Deadline::Grace(RUN)), "S"),
        ("deadline limit, before the reset", reset(2), "> Wm"),
        ("deadline limit, another turn", reset(1), "S"),
        ("reactivated", Command::Reactivated { calls: vec![], owner_ended: None }, "> Wm"),
        (
            "reactivated, owner ended",
            Command::Reactivated { calls: vec![], owner_ended: Some(OutcomeKind::Lost) },
            "closing(cancelled) > Hc",
        ),
        ("restarts exhausted", Command::RestartsExhausted { command: None }, "closing(restarts_exhausted) > Hc"),
        ("lost", Command::Lost { owner_survives: false, keeps_queue: false }, "ended(lost) > E"),
        ("continue", continued(call(5, 0), None), "continue_refused > Wm"),
        ("background", Command::Background { call: call(1, 0) }, "Done > Wm"),
    ];
    let mut wrong = String::new();
    for (name, command, expected) in cells {
        let found = parked().summary(command);
        if found != expected {
            wrong += &format!("\n{name}: expected {expected}\n{:>width$} found {found}", "", width = name.len());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    let closes = parked().decide(Command::Close { by: Initiator::Person });
    assert!(matches!(closes, Err(Rejection::Working { .. })), "{closes:?}");
}

#[test]
fn reset_resumes_a_root_at_once_and_once() {
    let mut heart = root().then(limited(1, 1, HOUR));
    let decision = heart.decide_at(reset(1), at_reset()).unwrap();
    let names: Vec<String> = decision.records.iter().map(word).collect();
    assert_eq!(names, ["resumed", "turn#2"]);
    assert_eq!(
        decision.effects,
        [
            Effect::Arm { deadline: Deadline::Turn(TurnNo(1)), after_ms: 600_000 },
            Effect::CallModel { turn: TurnNo(1), attempt: AttemptNo(2), after_ms: 0 },
        ]
    );
    assert_eq!(heart.decide_at(reset(1), at_reset()), Err(Rejection::Stale("a deadline")), "the run resumed before");
    assert_eq!(heart.summary(answer(1, 2, Some("done"), vec![], subtend_session::record::Stop::End)), DONE);
}

const DONE: &str = "answered ended(completed) > E";

#[test]
fn reset_of_an_owned_run_waits_for_a_slot_first() {
    let mut heart = parked();
    let decision = heart.decide_at(reset(2), at_reset()).unwrap();
    assert_eq!(
        (short(&heart, &Ok(decision.clone())), slots(&decision)),
        ("parked(slot) > Wm".into(), vec!["request again"])
    );
    assert_eq!(heart.decide_at(reset(2), at_reset()), Err(Rejection::Stale("a deadline")));
    assert_eq!(heart.summary(steer(9, "left")), "accepted > Wm", "an input waits for the boundary");
    assert_eq!(heart.summary(admitted()), "resumed turn#2 > W");
}

#[test]
fn attempts_are_counted_from_one_after_a_reset() {
    let limits = Limits { attempts: 2, ..Limits::default() };
    let mut heart = Heart::root_with(limits).then(send(1, "go")).then(attempt_failed(1, 1, ModelFail::Unavailable));
    heart = heart.then(limited(1, 2, HOUR));
    heart.decide_at(reset(1), at_reset()).unwrap();
    assert_eq!(heart.summary(attempt_failed(1, 3, ModelFail::Unavailable)), "discarded turn#4 > W");
    assert_eq!(heart.summary(attempt_failed(1, 4, ModelFail::Unavailable)), "discarded ended(failed) > E");
}

#[test]
fn repeated_limit_parks_until_the_new_reset() {
    let mut heart = root().then(limited(1, 1, HOUR));
    heart.decide_at(reset(1), at_reset()).unwrap();
    heart.decide_at(limited(1, 2, HOUR), at_reset()).unwrap();
    assert_eq!(heart.state.run.as_ref().unwrap().limit_reset_at(), Some(RESET + 3_600_000));
}

#[test]
fn inputs_and_ends_wait_for_the_boundary_after_the_call() {
    let mut heart = parked().then(steer(9, "left")).then(ended(0xB1, call(1, 0)));
    heart.decide_at(reset(2), at_reset()).unwrap();
    heart = heart.then(admitted());
    assert_eq!(
        heart.summary(answer(2, 2, None, vec![reads()], subtend_session::record::Stop::Calls)),
        "answered +0 > W"
    );
    assert_eq!(heart.summary(tool(2, 0, "read")), "-0:ok taken turn > W");
}

#[test]
fn interrupted_run_continues_with_an_input_before_the_reset() {
    let mut heart = root().then(limited(1, 1, HOUR));
    let decision = heart.decide(interrupt()).unwrap();
    assert!(decision.effects.contains(&Effect::Disarm { deadline: Deadline::Limit(TurnNo(1)) }), "{decision:?}");
    assert_eq!(short(&heart, &Ok(decision)), "held(interrupted) ended(interrupted) Done > E");
    let mut held = parked().then(interrupt());
    assert_eq!(held.summary(steer(9, "left")), "accepted taken parked(slot) > Wr");
    assert_eq!(held.summary(admitted()), "resumed turn > W");
}

#[test]
fn fresh_activation_arms_the_reset_again() {
    let state = parked().refolded().state;
    let limit = |after_ms| Effect::Arm { deadline: Deadline::Limit(TurnNo(2)), after_ms };
    let cap = |after_ms| Effect::Arm { deadline: Deadline::WallCap(RUN), after_ms };
    assert_eq!(wake(&state, clock()), [cap(8_000_000), limit(HOUR)]);
    let late = Clock { wall_ms: RESET + 60_000, worked_ms: 0 };
    assert_eq!(wake(&state, late), [cap(4_340_000), limit(0)], "a reset that passed meanwhile is due at once");
}

#[test]
fn only_an_unanswered_call_is_parked_at_a_limit() {
    let parks = Record::RunParked { run: RUN, why: Park::Limit { until: RESET }, worked_ms: 0 };
    assert_eq!(unfit(&streams(), &parks), Some("no model call waits for a limit"));
    let child =
        Heart::child().then(admitted()).then(calls(1, vec![blocking()])).then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    assert_eq!(unfit(&child, &parks), Some("no model call waits for a limit"));
    assert_eq!(unfit(&parked(), &parks), Some("the run waits for that, or is held"));
    let started = |attempt| Record::TurnStarted {
        run: RUN,
        turn: TurnNo(2),
        attempt: AttemptNo(attempt),
        prompt: subtend_session::record::Prompt::Plain,
        reserved: None,
        model: "scripted".into(),
        compacts: None,
    };
    assert_eq!(unfit(&parked(), &started(2)), Some("the run is held or waits"), "the run must resume first");
}

/// An import takes 65,536 inputs of a session: more would keep the store from import. The control: the last one.
#[test]
fn endless_inputs_of_a_session_are_refused() {
    let after = |inputs: u128| {
        let mut heart = Heart::root();
        heart.state.accepted = (0..inputs).map(input_id).collect();
        heart.rules.decide(&mut heart.state, send(1 << 20, "go"), clock()).map(drop)
    };
    let why = "the session has had 16384 inputs, which is the limit: branch off from it, or open another session";
    assert_eq!([after(16_383), after(16_384)], [Ok(()), Err(Rejection::BadInput(why.to_owned()))]);
}

/// 1,300 merges in a minute made the page take more than 512 MiB. The control: the last accepted merge.
#[test]
fn endless_merges_of_metadata_are_refused() {
    let merge = |changes: &str| {
        Command::Describe(Box::new(Description::Metadata { changes: changes.into(), by: Initiator::Person }))
    };
    let after = |bytes: u64| {
        let mut heart = Heart::root();
        heart.state.metadata_bytes = bytes;
        heart.rules.decide(&mut heart.state, merge(r#"{"a":1}"#), clock()).map(drop)
    };
    let why = "metadata not merged: the session has recorded 16 MiB of metadata, which is the limit: branch off from it, or open another session";
    assert_eq!([after((16 << 20) - 1), after(16 << 20)], [Ok(()), Err(Rejection::BadInput(why.to_owned()))]);
    // Each record has the whole metadata.
    let merged = Heart::root().then(merge(r#"{"a":1}"#)).then(merge(r#"{"b":1}"#));
    assert_eq!(merged.state.metadata_bytes, 7 + 13);
}

/// 120 MiB of inputs, sent in two seconds, made a view take 940 MiB. The control: the last input that is accepted.
#[test]
fn inputs_of_a_session_have_bounded_bytes() {
    let after = |bytes: u64| {
        let mut heart = Heart::root();
        heart.state.input_bytes = bytes;
        heart.rules.decide(&mut heart.state, send(1, "go"), clock()).map(drop)
    };
    let why = "with it the inputs of the session have 33554433 bytes, the limit is 33554432: branch off from it, or open another session";
    assert_eq!([after((32 << 20) - 2), after((32 << 20) - 1)], [Ok(()), Err(Rejection::BadInput(why.to_owned()))]);
    // A control character takes six bytes in records and views.
    let sent = |text: &str| Heart::root().then(send(1, text)).state.input_bytes;
    assert_eq!([sent("hello"), sent("\u{1}\n")], [5, 8]);
}
