//! Tests that each predicate holds in a good world, and fails after one change of the world.

mod clients;
mod compactions;
mod durable;
mod legal;
mod messages;
mod order;
mod scene;
mod seen;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use scene::{
    CALL, CHILD, END, NOTICE_ROW, ROOT, SPAWNED, Scene, TAKEN, answered, below, created, ended, finished, input,
    notice, opened, taken, turn,
};
use subtend_session::authority::{Authority, RuleSet};
use subtend_session::ids::{AttemptNo, Epoch, RunKey, RunNo, Seq, TurnNo};
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::{Initiator, Outcome, OutcomeKind};
use subtend_session::place::{Owner, Place};
use subtend_session::record::{Carrier, Hold, Notice, Park, Record, TitleSet};
use subtend_session::state::{Ended, Queued};
use subtend_session::usage::Usage;

#[test]
fn sixty_one_invariants_have_distinct_ids() {
    let ids: BTreeSet<&str> = InvariantId::ALL.iter().map(|id| id.id()).collect();
    assert_eq!((InvariantId::ALL.len(), ids.len()), (61, 61));
    assert_eq!(InvariantId::S12.to_string(), "S-12");
    assert!(InvariantId::ALL.iter().all(|id| !id.text().is_empty()));
}

#[test]
fn good_worlds_violate_nothing() {
    for scene in [Scene::good(), Scene::child_at_work(), Scene::continued(), Scene::allowed(), Scene::asking()] {
        assert_eq!(scene.with(always), Ok(()));
        assert_eq!(scene.with(quiescent), Ok(()));
    }
    assert_eq!(Scene::at_work().with(always), Ok(()));
}

#[test]
fn partial_world_is_judged_only_by_its_contents() {
    let scene = Scene::good();
    let rows = BTreeSet::new();
    let alone = View { records: &scene.child, ..View::default() };
    let world = World::new([(CHILD, alone)], &rows, None, false);
    assert_eq!((always(&world), quiescent(&world)), (Ok(()), Ok(())));
}

#[test]
fn j10_erased_child_is_not_required_in_the_world() {
    for scene in [Scene::good(), Scene::continued(), Scene::allowed()] {
        let root = View { records: &scene.root, state: Some(&scene.root_state), ..View::default() };
        let rows = BTreeSet::new();
        let missed = World::new([(ROOT, root.clone())], &rows, None, true);
        assert!(always(&missed).is_err(), "an absent child is required");
        let erased = World::new([(ROOT, root)], &rows, None, true).without([CHILD]);
        assert_eq!((always(&erased), quiescent(&erased)), (Ok(()), Ok(())));
    }
}

/// The change, its base scene, and the invariants that detect it.
type Case = (&'static str, fn() -> Scene, fn(&mut Scene), &'static [InvariantId]);

const JOURNAL: &[Case] = &[
    ("a record is missing", Scene::good, |s| s.frames[1].first_seq = Seq(9), &[InvariantId::J2]),
    ("the tail is missing", Scene::good, |s| s.root.truncate(END), &[InvariantId::J2]),
    ("two creations", Scene::good, |s| s.root.push(created(Place::Root)), &[InvariantId::J2]),
    ("an older activation writes", Scene::good, |s| s.frames[1].epoch = Epoch(0), &[InvariantId::J6]),
    ("a fenced activation is alive", Scene::good, |s| s.activation = Some(Activation::default()), &[InvariantId::J6]),
    ("an end without its row", Scene::child_at_work, |s| s.child = Scene::good().child, &[InvariantId::J3]),
    (
        "a taken row that was not deleted",
        Scene::good,
        |s| _ = s.rows.insert(NOTICE_ROW),
        &[InvariantId::J3, InvariantId::N1],
    ),
    ("a row without an end", Scene::child_at_work, |s| _ = s.rows.insert(NOTICE_ROW), &[InvariantId::J3]),
    ("a call without the child's creation", Scene::child_at_work, |s| s.child.clear(), &[InvariantId::J3]),
    ("an erased session has records", Scene::good, |s| s.erased.push(CHILD), &[InvariantId::J10]),
    (
        "a title that differs from the fold",
        Scene::good,
        |s| {
            let mut folded = s.root_state.clone();
            folded.last_turn = TurnNo(9);
            s.folded = Some(folded);
        },
        &[InvariantId::J4],
    ),
];

const SESSION: &[Case] = &[
    ("a second end", Scene::good, |s| s.root.push(ended(1, Outcome::Lost)), &[InvariantId::S1, InvariantId::S2]),
    ("a run that waits for nothing", Scene::at_work, |_| (), &[InvariantId::S1, InvariantId::S4]),
    ("a turn after the end", Scene::good, |s| s.root.push(turn(3, 1)), &[InvariantId::S2, InvariantId::S10]),
    (
        "a notice names another outcome",
        Scene::good,
        |s| s.root[TAKEN] = taken(Carrier::Result, vec![notice(1, Outcome::Lost)]),
        &[InvariantId::S2, InvariantId::N2],
    ),
    (
        "a fixed outcome changes",
        Scene::good,
        |s| {
            let why = Box::new(Hold::Closing { outcome: Outcome::Lost, keeps_queue: false });
            s.root.insert(END, Record::RunHeld { run: RunNo(1), why });
        },
        &[InvariantId::S2],
    ),
    (
        "the state names another end",
        Scene::good,
        |s| {
            s.root_state.last = Some(Box::new(Ended {
                run: RunNo(1),
                owner: Owner::Person,
                outcome: Outcome::Lost,
                text: None,
                turns: 1,
                usage_self: Usage::default(),
                usage_owned: Usage::default(),
                max_turns: 50,
            }));
        },
        &[InvariantId::S2],
    ),
    (
        "a stream without a model call",
        Scene::at_work,
        |s| s.root_run().turn.as_mut().expect("a turn").streaming = true,
        &[InvariantId::S4],
    ),
    ("a slot without a request", Scene::at_work, |s| s.root_run().parked = Some(Park::Slot), &[InvariantId::S4]),
    (
        "two streams",
        Scene::at_work,
        |s| {
            let two = vec![(TurnNo(2), AttemptNo(1)), (TurnNo(2), AttemptNo(2))];
            s.activation.as_mut().expect("activated").models = two;
        },
        &[InvariantId::S7],
    ),
    ("a repeated attempt", Scene::at_work, |s| s.root.push(turn(2, 1)), &[InvariantId::S7]),
    (
        "a second answer to a turn",
        Scene::good,
        |s| s.root.insert(END, answered(2, 1, 0)),
        &[InvariantId::S7, InvariantId::E2],
    ),
    ("a run number is left out", Scene::good, |s| s.root.push(opened(3, Owner::Person)), &[InvariantId::S9]),
    (
        "two runs in flight",
        Scene::at_work,
        |s| s.root.push(opened(2, Owner::Person)),
        &[InvariantId::S9, InvariantId::S10],
    ),
    ("the state forgot its run", Scene::at_work, |s| s.root_state.run = None, &[InvariantId::S10]),
    (
        "open calls counted wrong",
        Scene::child_at_work,
        |s| s.root_run().turn.as_mut().expect("a turn").open = 0,
        &[InvariantId::S11],
    ),
    (
        "a closing run waits for nothing",
        Scene::at_work,
        |s| s.root_run().hold = Some(Hold::Closing { outcome: Outcome::Lost, keeps_queue: false }),
        &[InvariantId::S12, InvariantId::S4],
    ),
    (
        "a slot request without a reason",
        Scene::at_work,
        |s| s.root.push(Record::RunParked { run: RunNo(1), why: Park::Slot, worked_ms: 0 }),
        &[InvariantId::S12],
    ),
    (
        "an input waits at rest",
        Scene::at_work,
        |s| s.root_state.queue.push_back(Queued { input: Arc::new(input(7)), seq: Seq(9) }),
        &[InvariantId::S12],
    ),
    (
        "an interrupt that does not reach a blocking child",
        Scene::child_at_work,
        |s| s.root_run().hold = Some(Hold::Interrupted { by: Initiator::Person }),
        &[InvariantId::S12],
    ),
    (
        "a trace of an abandoned attempt",
        Scene::at_work,
        |s| {
            let stray = Message::Assistant { seq: Seq(9), text: None, reasoning: None, calls: [].into() };
            Arc::make_mut(&mut s.root_state.transcript).push(stray);
        },
        &[InvariantId::E2],
    ),
];

const TREE: &[Case] = &[
    ("a child unknown to its parent", Scene::good, |s| _ = s.root.remove(SPAWNED), &[InvariantId::T1]),
    ("a depth that is not one more", Scene::good, |s| s.child[0] = created(below(2)), &[InvariantId::T2]),
    ("two parents", Scene::good, |s| s.child.insert(2, s.root[SPAWNED].clone()), &[InvariantId::T2]),
    (
        "too deep",
        Scene::good,
        |s| s.child_state.limits = Arc::new(Limits { max_depth: 0, ..Limits::default() }),
        &[InvariantId::T2],
    ),
    ("a held slot is not counted", Scene::child_at_work, |s| s.ledger.owned.used.clear(), &[InvariantId::T3]),
    (
        "more slots than there are",
        Scene::child_at_work,
        |s| _ = s.ledger.owned.used.insert(ROOT, 2),
        &[InvariantId::T3],
    ),
    (
        "more slots than there are, counted before their sessions report them",
        Scene::good,
        |s| {
            s.ledger.lagging = true;
            s.ledger.owned.used.insert(ROOT, 2);
        },
        &[InvariantId::T3],
    ),
    (
        "a waiting run holds a slot",
        Scene::child_at_work,
        |s| {
            let run = s.child_state.run.as_mut().expect("the child works");
            run.turn = Some(scene::turn_of(Vec::new(), 0));
        },
        &[InvariantId::T3],
    ),
    ("a slot that was not returned", Scene::good, |s| _ = s.ledger.owned.used.insert(ROOT, 1), &[InvariantId::T3]),
    (
        "an effect after the token",
        Scene::child_at_work,
        |s| {
            s.ledger.fired = true;
            s.ledger.late_effects.insert(RunKey { session: CHILD, run: RunNo(1) });
        },
        &[InvariantId::T4],
    ),
    (
        "cancelled by a person without a cancel",
        Scene::good,
        |s| s.root[END] = ended(1, Outcome::Cancelled { by: Initiator::Person }),
        &[InvariantId::T5],
    ),
    (
        "cancelled by an owner that has not ended",
        Scene::child_at_work,
        |s| {
            let by = Initiator::Owner { outcome: OutcomeKind::Lost };
            s.child.push(ended(1, Outcome::Cancelled { by }));
        },
        &[InvariantId::T5],
    ),
    (
        "cancelled by a model that requested no cancel",
        Scene::child_at_work,
        |s| s.child.push(ended(1, Outcome::Cancelled { by: Initiator::Model { call: CALL } })),
        &[InvariantId::T5],
    ),
    (
        "a child continues under a cancelled owner",
        Scene::child_at_work,
        |s| s.root.push(ended(1, Outcome::Cancelled { by: Initiator::Person })),
        &[InvariantId::T5, InvariantId::T7],
    ),
    (
        "ended by an interrupt without a recorded cancel",
        Scene::child_at_work,
        |s| {
            let why = Box::new(Hold::Interrupted { by: Initiator::Person });
            s.root.push(Record::RunHeld { run: RunNo(1), why });
            let by = Initiator::Owner { outcome: OutcomeKind::Interrupted };
            s.child.push(ended(1, Outcome::Cancelled { by }));
        },
        &[InvariantId::T6],
    ),
    (
        "a background child ended by an interrupt",
        Scene::child_at_work,
        |s| {
            let Some(Record::ChildSpawned(spawned)) = s.root.get_mut(SPAWNED) else { panic!("the root spawns") };
            spawned.mode = subtend_session::place::Mode::Background;
            let why = Box::new(Hold::Interrupted { by: Initiator::Person });
            s.root.push(Record::RunHeld { run: RunNo(1), why });
            s.root.push(Record::CancelAsked { call: None, child: CHILD, key: CALL });
            let by = Initiator::Owner { outcome: OutcomeKind::Interrupted };
            s.child.push(ended(1, Outcome::Cancelled { by }));
        },
        &[InvariantId::T6],
    ),
    (
        "completed with a running child",
        Scene::child_at_work,
        |s| s.root.push(ended(1, Outcome::Completed)),
        &[InvariantId::T7],
    ),
    (
        "a ceiling above the parent's",
        Scene::good,
        |s| s.child_state.ceiling = Arc::new(Authority::of(RuleSet::only(subtend_session::authority::Verdict::Ask))),
        &[InvariantId::P1],
    ),
];

const NOTICE: &[Case] = &[
    (
        "two notices of one run",
        Scene::good,
        |s| s.root.insert(TAKEN + 1, taken(Carrier::Message, vec![notice(1, Outcome::Completed)])),
        &[InvariantId::N1, InvariantId::N3],
    ),
    (
        "an end without a notice",
        Scene::good,
        |s| {
            s.root[TAKEN] = finished(CALL);
            s.rows.insert(NOTICE_ROW);
        },
        &[InvariantId::N1],
    ),
    (
        "another length",
        Scene::good,
        |s| s.root[TAKEN] = taken(Carrier::Result, vec![Notice { len: 5, ..notice(1, Outcome::Completed) }]),
        &[InvariantId::N2],
    ),
    (
        "a prefix of another text",
        Scene::good,
        |s| {
            s.root[TAKEN] =
                taken(Carrier::Result, vec![Notice { prefix: "no".into(), ..notice(1, Outcome::Completed) }])
        },
        &[InvariantId::N2],
    ),
    (
        "a title of a session that is not a service",
        Scene::good,
        |s| {
            let set = TitleSet { title: "work".into(), by: Initiator::Host, of: Some(CHILD) };
            s.root.push(Record::TitleSet(Box::new(set)));
        },
        &[InvariantId::S3, InvariantId::N3],
    ),
    (
        "a title of the host over another",
        Scene::good,
        |s| {
            for by in [Initiator::Person, Initiator::Host] {
                s.root.push(Record::TitleSet(Box::new(TitleSet { title: "work".into(), by, of: None })));
            }
        },
        &[InvariantId::S3],
    ),
    ("a notice before the end", Scene::good, |s| s.child.truncate(7), &[InvariantId::N3]),
    ("a turn while a call is open", Scene::good, |s| _ = s.root.remove(TAKEN), &[InvariantId::N4]),
    ("a second result", Scene::good, |s| s.root.insert(TAKEN + 1, finished(CALL)), &[InvariantId::N4]),
];

fn cases() -> Vec<Case> {
    [JOURNAL, SESSION, TREE, NOTICE, durable::CASES, compactions::CASES, messages::CASES, order::CASES, seen::CASES]
        .concat()
}

#[test]
fn each_predicate_detects_its_violations() {
    for (what, scene, change, seen_by) in cases() {
        let mut scene = scene();
        change(&mut scene);
        for id in seen_by {
            let judged = scene.with(|world| id.check(world, true));
            assert_eq!(judged.map_err(|violation| violation.id), Err(*id), "{what}");
        }
    }
}

/// An invariant may have several predicates, so covering each id is not enough.
#[test]
fn every_predicate_fails_in_some_case() {
    let worlds: Vec<Scene> = cases()
        .into_iter()
        .map(|(_, scene, change, _)| {
            let mut scene = scene();
            change(&mut scene);
            scene
        })
        .collect();
    let never_fails =
        |predicate: &Predicate| worlds.iter().all(|scene| scene.with(|world| (predicate.check)(world).is_ok()));
    let all = ALWAYS.iter().chain(QUIESCENT).enumerate();
    let unseen: Vec<(usize, InvariantId)> =
        all.filter(|(_, predicate)| never_fails(predicate)).map(|(at, predicate)| (at, predicate.id)).collect();
    assert_eq!(unseen, Vec::new());
}

#[test]
fn world_counts_only_if_a_claim_is_examined() {
    let (coverage, rows) = (Coverage::default(), BTreeSet::new());
    assert_eq!(coverage.judge(&World::new([], &rows, None, true), true), Ok(()));
    let of_nothing: Vec<_> =
        coverage.counts().filter(|(_, count)| *count != Count { judged: 1, relevant: 0 }).collect();
    assert!(of_nothing.is_empty(), "{of_nothing:?}");
    let scene = Scene::good();
    assert_eq!(scene.with(|world| coverage.judge(world, false)), Ok(()));
    let count = |name| coverage.counts().find(|(predicate, _)| predicate.name == name).map(|(_, count)| count);
    assert_eq!(count("session::one_end_per_run"), Some(Count { judged: 2, relevant: 1 }));
    assert_eq!(count("session::all_runs_end"), Some(Count { judged: 1, relevant: 0 }), "not at rest");
}

#[test]
fn refusal_after_the_shutdown_is_legal() {
    let mut scene = Scene::good();
    scene.observed.shutdown = Some(observed::Shutdown { asked: When::default(), returned: None, grace_ms: 0 });
    let (at, queue, answer) = (When { order: 1, ms: 0 }, "inbox".into(), observed::QueueAnswer::Stopped);
    scene.observed.queues.push(observed::ObservedQueue { session: ROOT, queue, at, len: 0, bound: 0, answer });
    let judged = [InvariantId::V5, InvariantId::B1].map(|id| scene.with(|world| id.check(world, false)));
    assert_eq!(judged, [Ok(()), Ok(())]);
}

#[test]
fn every_invariant_has_a_predicate() {
    let judged: BTreeSet<InvariantId> = ALWAYS.iter().chain(QUIESCENT).map(|predicate| predicate.id).collect();
    let not: Vec<InvariantId> = InvariantId::ALL.iter().copied().filter(|id| !judged.contains(id)).collect();
    assert_eq!(not, Vec::new());
}

#[test]
fn violation_names_invariant_session_and_fact() {
    let mut scene = Scene::good();
    scene.ledger.owned.used.insert(ROOT, 1);
    let violation = scene.with(quiescent).expect_err("a slot is not returned");
    assert_eq!(
        violation.to_string(),
        "T-3 does not hold in session 00000000-0000-0000-0000-000000000001: 0 hold a slot, 1 are in use \
         (live runs never exceed the slots, and a slot is returned exactly once)"
    );
}
