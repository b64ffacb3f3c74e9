//! The fold, over random journals and random command sequences.

use std::collections::{BTreeMap, BTreeSet};

use crate::given::*;
use proptest::prelude::*;
use serde_json::Value;
use subtend_session::command::ContinuePlan;
use subtend_session::record::*;
use subtend_session::state::FoldError;
use uuid::Uuid;

use crate::arbitrary::{kind_of, record_of};
use crate::limits::{limited, member_limited};

/// One random step: an action, and two numbers that select its arguments.
type RandomStep = (u8, u8, u8);

/// A random command sequence for a session and its owned children, each of which ends once.
struct Life {
    heart: Heart,
    next: u128,
    owned: Vec<(SessionId, CallId)>,
}

impl Life {
    fn command(&mut self, (what, a, b): RandomStep) -> Command {
        let run = self.heart.state.run.as_ref().map_or(RunNo(1), |run| run.no);
        let turn = self.heart.state.turn();
        let (no, attempt) = turn.map_or((TurnNo(1), AttemptNo(1)), |turn| (turn.no, turn.attempt));
        let stray = TurnNo(no.0 + u32::from(b == 255));
        let call = CallId { turn: no, ix: u32::from(a % 4) };
        self.next += 1;
        match what % 31 {
            0 => send(self.next, "more"),
            1 => steer(self.next, "left"),
            2..=4 => Command::Admitted { run, owner_ended: (a == 0).then_some(OutcomeKind::Cancelled) },
            5..=7 => {
                let kinds = (0..a % 5).map(|n| kind_of(b.wrapping_add(n.wrapping_mul(7)))).collect();
                answer(stray.0, attempt.0, (a > 9).then_some("text"), kinds, Stop::Calls)
            }
            8 => {
                let stop = [Stop::Length, Stop::Refused, Stop::Other, Stop::End][usize::from((b % 8).min(3))];
                answer(stray.0, attempt.0, (a > 60).then_some("said"), Vec::new(), stop)
            }
            9 if a > 200 => {
                let resets = [("b", u64::from(b) * 6_000), ("c", 1_000_000)];
                member_limited((stray.0, attempt.0), ModelFail::Rate, Some(900_000), &resets)
            }
            9 if a > 150 => limited(stray.0, attempt.0, 600_000 + u64::from(b)),
            9 => attempt_failed(stray.0, attempt.0, if a > 20 { ModelFail::Unavailable } else { ModelFail::Auth }),
            10 | 11 => tool(no.0, call.ix, "out"),
            12 | 13 | 23 => self.spawn(no, b),
            14..=16 => self.end(a, b),
            17 if a < 30 => cancel(),
            17 if a > 200 => interrupt(),
            17 => answer(no.0, attempt.0, Some("said"), Vec::new(), Stop::End),
            18 if a < 20 => {
                Command::OwnerEnded { owner: owner_run(), outcome: OutcomeKind::Failed, keeps_queue: b % 2 == 0 }
            }
            18 => Command::OwnedEnded(vec![persons_end(0xB0, u32::from(a % 3))]),
            19 => Command::Deadline(match a {
                0..10 => Deadline::Run(run),
                10..20 => Deadline::WallCap(run),
                20..30 => Deadline::Turn(no),
                30..40 => Deadline::Queue(run),
                40..100 => Deadline::Grace(run),
                100..150 => Deadline::Limit(no),
                150.. => Deadline::Call(call),
            }),
            20 => Command::Reactivated {
                calls: (0..5)
                    .map(|ix| FoundCall::plain(CallId { turn: no, ix }, kind_of(b.wrapping_add(ix as u8))))
                    .collect(),
                owner_ended: (a == 0).then_some(OutcomeKind::Lost),
            },
            21 if a < 10 => Command::RestartsExhausted { command: None },
            21 => Command::ToolPanicked { call, message: "boom".into() },
            22 if a < 10 => Command::Lost { owner_survives: b > 100, keeps_queue: false },
            24.. => self.session_command(what % 31, a, b),
            _ => Command::TurnPanicked { turn: no, attempt, part: Part::Model, message: "boom".into() },
        }
    }

    /// Returns a command from an owner, a person or the host that concerns the whole session.
    fn session_command(&mut self, what: u8, a: u8, b: u8) -> Command {
        let key = CallId { turn: TurnNo(50 + u32::from(a % 8)), ix: 0 };
        let owned = self.owned.get(usize::from(a) % self.owned.len().max(1)).map(|(_, key)| *key);
        let queued = self.heart.state.queue.get(usize::from(b % 3)).map(|queued| queued.input.id);
        let by = Initiator::Person;
        match what {
            24 | 25 => continued(key, (b < 40).then_some(OutcomeKind::Cancelled)),
            26 => owner_cancels(key),
            27 => Command::Background { call: owned.filter(|_| b > 30).unwrap_or(key) },
            28 if a < 40 => Command::ChangeQueue { change: QueueChange::Cleared, by },
            28 => {
                let removed = vec![queued.unwrap_or(input_id(9_999))];
                Command::ChangeQueue { change: QueueChange::Removed(removed), by }
            }
            29 if a < 4 => Command::Delete { by },
            29 if a < 90 => Command::Close { by },
            29 if a < 140 => cancel_tree(),
            29 if a > 200 => Command::RollBack { run: (b > 60).then_some(RunNo(u32::from(b % 4))), by },
            _ => Command::Submit(Box::new(InputAccepted {
                from: if b > 128 { From::Host } else { From::Person },
                turns: (a > 128).then_some(u32::from(b % 4) + 1),
                ..input(self.next, "by the host", Lane::Send)
            })),
        }
    }

    fn spawn(&mut self, turn: TurnNo, b: u8) -> Command {
        let unstarted = |phase: &CallPhase| *phase == CallPhase::Unstarted;
        let calls = self.heart.state.turn().map(|turn| turn.calls.clone()).unwrap_or_default();
        let due = calls.iter().zip(0..).filter(|(call, _)| unstarted(&call.phase)).map(|(_, ix)| ix);
        // The runtime sends verdicts only for child calls.
        let waits: BTreeSet<u32> = self
            .heart
            .state
            .due
            .reads
            .iter()
            .copied()
            .chain(self.heart.state.due.writes.iter().map(|(ix, _)| *ix))
            .chain(self.heart.state.due.waits.iter().map(|(ix, _)| *ix))
            .collect();
        let verdicts = due.filter(|ix| !waits.contains(ix)).take(usize::from(b % 3) + 1).map(|ix| {
            self.next += 1;
            let mode = if b.is_multiple_of(2) { Mode::Blocking } else { Mode::Background };
            let refusal = Refusal { kind: ToolErrorKind::Limit, message: "none left".into() };
            // Ids are drawn from few values, so that references often match.
            let child = if b.is_multiple_of(3) { 0xB0 + self.next % 4 } else { 0x1000 + self.next };
            let children = &self.heart.state.children;
            let quiet = children.iter().filter(|(_, known)| known.key.is_none()).map(|(id, _)| *id);
            let any = children.keys().copied();
            let existing = quiet.chain(any).next();
            let verdict = match b {
                231.. => Err(refusal),
                110.. => Ok(Plan::Continue(Box::new(ContinuePlan {
                    turns: None,
                    tools: None,
                    child: existing.unwrap_or(session(child)),
                    text: "continue".into(),
                    mode,
                    grant: SpawnGranted { spawns_left: 1 },
                }))),
                100.. => Ok(Plan::Child(Box::new(ChildPlan { detached_ms: Some(9), ..plan(child, mode) }))),
                _ => Ok(Plan::Child(Box::new(plan(child, mode)))),
            };
            SpawnVerdict { call: CallId { turn, ix }, verdict }
        });
        Command::Spawn { turn, verdicts: verdicts.collect() }
    }

    fn end(&mut self, a: u8, b: u8) -> Command {
        if self.owned.is_empty() {
            return ended(0xDEAD, call(1, 0));
        }
        let (child, key) = self.owned[usize::from(a) % self.owned.len()];
        let outcome = if b > 60 { Outcome::Completed } else { Outcome::Cancelled { by: Initiator::Person } };
        let before = self.owned.iter().take_while(|(_, other)| *other != key).filter(|(other, _)| *other == child);
        let run = RunNo(1 + before.count() as u32);
        let one = match b {
            0..12 if run > RunNo(1) => refusal_from(child, key, ContinueRefusal::InFlight),
            _ => Notice { child, run: Some(run), ..notice(0, key, outcome, "done") },
        };
        Command::OwnedEnded(if b.is_multiple_of(5) { vec![one.clone(), one] } else { vec![one] })
    }

    fn step(&mut self, step: RandomStep) {
        let command = self.command(step);
        let crashes = matches!(command, Command::Reactivated { .. } | Command::Lost { .. });
        if crashes {
            self.heart = self.heart.refolded();
        }
        // A limit's deadline always fires after its reset.
        let late = Clock { wall_ms: i64::MAX, ..clock() };
        let due = if matches!(command, Command::Deadline(Deadline::Limit(_))) { late } else { clock() };
        if let Ok(decision) = self.heart.decide_at(command, due) {
            self.observe(&decision);
        }
    }

    fn observe(&mut self, decision: &Decision) {
        for record in &decision.records {
            match record {
                Record::ChildSpawned(spawned) if !spawned.detached => self.owned.push((spawned.child, spawned.call)),
                Record::ContinueAsked(request) => self.owned.push((request.child, request.call)),
                _ => {}
            }
        }
        for session in &decision.new_sessions {
            State::fold(session.session, &session.records).expect("a new session folds");
        }
    }
}

/// Checks that a journal opens no run in a closed or deleted session, and that a kept queue opens none before another
/// input. Each `continue` row opens one run or is refused (S-9).
fn assert_closed_and_deleted_rules(log: &[Record]) {
    let (mut closed, mut deleted, mut keeps_queue) = (false, false, false);
    let mut answered = BTreeSet::new();
    for record in log {
        let owed = matches!(record, Record::NoticeTaken(_) | Record::ContinueRefused { .. });
        assert!(!deleted || owed, "{record:?} in a deleted session");
        match record {
            Record::SessionClosed { .. } => closed = true,
            Record::SessionReopened { .. } => closed = false,
            Record::SessionDeleted { .. } => deleted = true,
            Record::InputAccepted(_) => keeps_queue = false,
            Record::RunEnded(ended) => keeps_queue = ended.keeps_queue,
            Record::RunOpened(opened) => {
                assert!(!closed && !keeps_queue, "{opened:?} in a closed session, or from a kept queue");
                if let Owner::Run { session, call, .. } = &opened.owner {
                    assert!(answered.insert((*session, *call)), "a row opens one run");
                }
            }
            Record::ContinueRefused { owner, key, .. } => {
                assert!(answered.insert((*owner, *key)), "a row is answered once");
            }
            _ => {}
        }
    }
}

/// Checks rule 6: in an owner's journal, a child is continued only after the ends of its earlier runs were taken.
fn assert_one_key_at_a_time(log: &[Record]) {
    let mut open = BTreeMap::new();
    for record in log {
        let (child, key) = match record {
            Record::ChildSpawned(spawned) if !spawned.detached => (spawned.child, spawned.call),
            Record::ContinueAsked(request) => (request.child, request.call),
            Record::CancelAsked { child, key, .. } => {
                assert_eq!(open.get(child), Some(key), "only an owned run in flight is cancelled");
                continue;
            }
            Record::NoticeTaken(taken) => {
                for item in taken.items.iter().filter(|item| item.key.is_some()) {
                    assert_eq!(open.remove(&item.child), item.key, "one notice for the one key");
                }
                continue;
            }
            _ => continue,
        };
        assert_eq!(open.insert(child, key), None, "{child} has one owned run at a time");
    }
}

/// Checks S-1, S-10, N-1 and N-4 over a journal.
fn assert_journal_is_sound(log: &[Record]) {
    let mut ends = BTreeMap::new();
    let mut in_flight = None;
    let mut noticed = BTreeSet::new();
    let mut open: BTreeMap<CallId, bool> = BTreeMap::new();
    for record in log {
        match record {
            Record::RunOpened(opened) => assert_eq!(in_flight.replace(opened.run), None, "one run at a time"),
            Record::RunEnded(ended) => {
                assert_eq!(in_flight.take(), Some(ended.run), "only the run in flight ends");
                *ends.entry(ended.run).or_insert(0) += 1;
                assert!(open.values().all(|open| !open), "an end leaves no call open");
            }
            Record::TurnStarted { .. } => assert!(open.values().all(|open| !open), "every call has its result first"),
            Record::TurnAnswered(answered) => {
                open =
                    (0..answered.calls.len()).map(|ix| (CallId { turn: answered.turn, ix: ix as u32 }, true)).collect();
            }
            Record::CallFinished(finished) => {
                assert_eq!(open.insert(finished.call, false), Some(true), "a call has one result");
            }
            Record::NoticeTaken(taken) => {
                for item in &taken.items {
                    assert!(noticed.insert((item.child, item.key, item.run)), "a row is taken once");
                }
                let closed = match taken.carrier {
                    Carrier::Result => taken.items[0].key,
                    Carrier::Await { call } => Some(call),
                    Carrier::Message => None,
                };
                if let Some(call) = closed {
                    assert_eq!(open.insert(call, false), Some(true), "a call has one result");
                }
            }
            _ => {}
        }
    }
    assert!(ends.values().all(|n| *n == 1));
}

/// Checks N-4 over the transcript: the results of an answer's calls follow it directly, in order.
fn assert_results_follow_calls(state: &State) {
    let mut messages = state.transcript.iter().peekable();
    while let Some(message) = messages.next() {
        let Message::Assistant { calls, .. } = message else { continue };
        for ix in 0..calls.len() as u32 {
            match messages.next() {
                Some(Message::Result { call, .. }) => assert_eq!(call.ix, ix),
                None => {
                    assert!(state.turn().is_some_and(|turn| turn.open > 0), "results are missing");
                    return;
                }
                Some(other) => panic!("{other:?} is between a call and its result"),
            }
        }
    }
}

fn run_steps(heart: Heart, steps: Vec<RandomStep>) {
    let mut life = Life { heart, next: 100, owned: Vec::new() };
    for step in steps {
        life.step(step);
        assert_results_follow_calls(&life.heart.state);
    }
    assert_journal_is_sound(&life.heart.log);
    assert_closed_and_deleted_rules(&life.heart.log);
    assert_one_key_at_a_time(&life.heart.log);
}

pub(crate) fn small() -> Limits {
    Limits { turns: 3, queue: 3, local_calls: 2, attempts: 2, ..Limits::default() }
}

fn named_sessions(record: &Record) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    record.named_sessions(&mut |session| _ = named.insert(session.to_string()));
    named
}

/// Returns all ids in the JSON of a record except those of inputs.
fn ids_in_json(record: &Record) -> BTreeSet<String> {
    fn collect(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::String(text) if Uuid::try_parse(text).is_ok() && text.contains('-') => _ = into.insert(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| collect(value, into)),
            Value::Object(fields) => {
                let is_input = |name: &str| ["id", "ids", "inputs", "answers", "removed"].contains(&name);
                fields.iter().filter(|(name, _)| !is_input(name)).for_each(|(_, value)| collect(value, into));
            }
            _ => {}
        }
    }
    let mut ids = BTreeSet::new();
    collect(&serde_json::to_value(record).unwrap(), &mut ids);
    ids
}

/// Covers the kinds and fields that random records lack.
#[test]
fn named_sessions_include_place_worktree_and_branch() {
    let message = |n: u128| MsgRef { session: session(n), seq: Seq(2) };
    let place = Place::Child {
        parent: session(1),
        root: session(2),
        kind: BranchKind::Subagent,
        user_msg: message(3),
        assistant_msg: Some(message(4)),
        call: None,
        depth: 1,
    };
    let worktree = Some(Worktree { of: session(5), from: Some(session(6)) });
    let creation = Record::SessionCreated(Box::new(SessionCreated { worktree, ..created(place, small()) }));
    let branch = Record::BranchCreated(Box::new(BranchCreated {
        child: session(7),
        short: session(7).short(),
        agent: "general".into(),
        kind: BranchKind::Human,
        at: Seq(2),
        by: Initiator::Person,
    }));
    for (record, count) in [(creation, 6), (branch, 1)] {
        let named = named_sessions(&record);
        assert_eq!((named.len(), &named), (count, &ids_in_json(&record)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn root_state_equals_its_fold_in_random_histories(steps in proptest::collection::vec(any::<RandomStep>(), 0..120)) {
        run_steps(Heart::root_with(small()), steps);
    }

    #[test]
    fn child_state_equals_its_fold_in_random_histories(steps in proptest::collection::vec(any::<RandomStep>(), 0..120)) {
        run_steps(Heart::child_with(small(), 3), steps);
    }

    #[test]
    fn every_record_survives_json(seed in any::<[u8; 12]>()) {
        let record = record_of(seed);
        let json = serde_json::to_string(&record).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Record>(&json).unwrap(), &record, "{}", json);
        let name = format!("\"{}\"", record.kind());
        prop_assert!(json.starts_with(&format!("{{{name}")), "{} in {}", name, json);
    }

    #[test]
    fn named_sessions_of_a_record_are_all_ids_in_its_json(seed in any::<[u8; 12]>()) {
        let record = record_of(seed);
        prop_assert_eq!(named_sessions(&record), ids_in_json(&record), "{:?}", record);
    }

    #[test]
    fn fold_of_random_records_is_a_state_or_a_typed_error(seeds in proptest::collection::vec(any::<[u8; 12]>(), 0..40)) {
        let creation = Record::SessionCreated(Box::new(created(Place::Root, small())));
        let random: Vec<Record> = seeds.into_iter().map(record_of).collect();
        let whole: Vec<Record> = std::iter::once(creation.clone()).chain(random.iter().cloned()).collect();
        let _ = State::fold(session(ME), &random);
        let _ = State::fold(session(ME), &whole);
        // Applied one by one, records that do not fit are ignored.
        let mut state = State::fold(session(ME), [&creation]).unwrap();
        let mut legal = vec![creation];
        for record in random {
            let before = state.clone();
            state.apply(&record);
            if state.next_seq == before.next_seq {
                prop_assert_eq!(&state, &before);
            } else {
                legal.push(record);
            }
        }
        prop_assert_eq!(State::fold(session(ME), &legal).unwrap(), state);
    }
}

#[test]
fn invalid_journal_is_a_typed_error() {
    let id = session(ME);
    let heart = Heart::root().then(send(1, "go"));
    assert_eq!(State::fold(id, []), Err(FoldError::Empty { session: id }));
    assert_eq!(State::fold(id, &heart.log[1..]), Err(FoldError::NotCreation { session: id, found: "input_accepted" }));
    let Record::SessionCreated(created) = &heart.log[0] else { panic!("no creation record") };
    let stripped = SessionCreated { limits: created.limits.stripped(), ..(**created).clone() };
    let fold = State::fold(id, &[Record::SessionCreated(Box::new(stripped))]);
    assert_eq!(fold, Err(FoldError::NoBody { session: id, what: "limits" }));
    let twice: Vec<Record> = heart.log.iter().chain(heart.log.last()).cloned().collect();
    let error = State::fold(id, &twice).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("session {id}, record 7: turn_started does not fit: attempts are numbered one by one")
    );
}

#[test]
fn notice_is_listed_once_in_a_message() {
    let heart = Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![background(), background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)]))
        .then(answers(2, "later"));
    let named = |children: [(u128, CallId); 2]| {
        let items = children.map(|(child, key)| notice(child, key, Outcome::Completed, "done")).to_vec();
        let taken = Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message }));
        State::fold(session(ME), heart.log.iter().chain([&taken])).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(named([(0xB1, call(1, 0)), (0xB2, call(1, 1))]), Ok(()));
    let twice = named([(0xB1, call(1, 0)), (0xB1, call(1, 0))]);
    assert!(twice.as_ref().is_err_and(|error| error.ends_with("does not fit: a notice is listed twice")), "{twice:?}");
}

#[test]
fn records_and_messages_stay_small() {
    assert!(size_of::<Record>() <= 80, "{}", size_of::<Record>());
    assert!(size_of::<Message>() <= 64, "{}", size_of::<Message>());
}
