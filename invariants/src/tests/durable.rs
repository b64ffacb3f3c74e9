//! Violations in journals: a good world with one change, without observations.

use super::Case;
use super::scene::*;
use crate::InvariantId;
use subtend_session::ids::Short;
use subtend_session::limits::Limits;
use subtend_session::outcome::{Budget, ModelFail, TimeLimit};
use subtend_session::place::Worktree;
use subtend_session::record::*;
use subtend_session::usage::Usage;

/// Ends the root's active run in its second turn with this outcome.
fn ends(scene: &mut Scene, outcome: Outcome) {
    scene.root.push(ended_after(1, outcome, 1));
}

fn spawned(scene: &mut Scene) -> &mut ChildSpawned {
    let Some(Record::ChildSpawned(spawned)) = scene.root.get_mut(SPAWNED) else { panic!("the root spawns") };
    spawned
}

fn created_child(scene: &mut Scene) -> &mut SessionCreated {
    let Some(Record::SessionCreated(created)) = scene.child.first_mut() else { panic!("the child was created") };
    created
}

fn run_of_child(scene: &mut Scene) -> &mut RunOpened {
    let Some(Record::RunOpened(opened)) = scene.child.get_mut(2) else { panic!("the child has a run") };
    opened
}

fn end_of_root(scene: &mut Scene) -> &mut RunEnded {
    let Some(Record::RunEnded(ended)) = scene.root.last_mut() else { panic!("the root ends") };
    ended
}

fn limited(scene: &mut Scene, limits: Limits) {
    let limits = Arc::new(limits);
    scene.root_state.limits = limits.clone();
    scene.child_state.limits = limits;
}

fn reserve(scene: &mut Scene, at: usize, tokens: u64) {
    let Some(Record::TurnStarted { reserved, .. }) = scene.root.get_mut(at) else { panic!("a turn starts") };
    *reserved = Some(Box::new(Reserved { input: tokens, output: 0 }));
    let used = Usage { input: tokens, ..Usage::default() };
    let Some(Record::TurnAnswered(answer)) = scene.root.get_mut(at + 1) else { panic!("a turn is answered") };
    answer.usage = used;
    end_of_root(scene).usage_self.add(&used);
}

fn branch(at: u64, by: Initiator) -> Record {
    let (child, short, agent) = (CHILD, Short("cccccc".into()), "explore".into());
    Record::BranchCreated(Box::new(BranchCreated { child, short, agent, kind: BranchKind::Human, at: Seq(at), by }))
}

fn access() -> Box<Access> {
    Box::new(Access { action: "fs.write".into(), resource: "a".into() })
}

fn asks(row: Row) -> Row {
    Row { kind: RowKind::Ask, ..row }
}

pub(super) const CASES: &[Case] = &[
    (
        "a call starts where none may",
        Scene::good,
        |s| s.root.insert(END + 1, started(CALL, CallKind::Return)),
        &[InvariantId::S3],
    ),
    (
        "a closed session takes an input",
        Scene::good,
        |s| s.root.extend([Record::SessionClosed { by: Initiator::Person }, accepted(9)]),
        &[InvariantId::S3],
    ),
    (
        "a deleted session continues",
        Scene::good,
        |s| s.root.extend([Record::SessionDeleted { by: Initiator::Person }, accepted(9)]),
        &[InvariantId::S3],
    ),
    (
        "a refusal as closed by an open session",
        Scene::good,
        |s| s.child.push(Record::ContinueRefused { owner: ROOT, key: LATER_CALL, why: ContinueRefusal::Closed }),
        &[InvariantId::S3, InvariantId::J3],
    ),
    ("an ask row without an ask", Scene::good, |s| _ = s.rows.insert(asks(super::NOTICE_ROW)), &[InvariantId::J3]),
    ("an answered ask whose row remains", Scene::asking, |s| s.rows.clear(), &[InvariantId::J3, InvariantId::S4]),
    (
        "a branch that was not created",
        Scene::good,
        |s| {
            s.root.push(branch(2, Initiator::Person));
            let Some(Record::BranchCreated(created)) = s.root.last_mut() else { panic!("a branch") };
            created.child = subtend_session::ids::SessionId(uuid::Uuid::from_u128(77));
        },
        &[InvariantId::J3],
    ),
    ("out of turns with turns left", Scene::at_work, |s| ends(s, Outcome::OutOfTurns), &[InvariantId::S8]),
    (
        "truncated, but the answer was whole",
        Scene::good,
        |s| {
            s.root[END] = ended_after(1, Outcome::Failed { kind: FailKind::Truncated }, 2);
        },
        &[InvariantId::S8],
    ),
    (
        "empty, but the answer has text",
        Scene::good,
        |s| {
            s.root[END] = ended_after(1, Outcome::Failed { kind: FailKind::Empty }, 2);
        },
        &[InvariantId::S8],
    ),
    (
        "failed by a model that did not",
        Scene::at_work,
        |s| {
            let kind = FailKind::Model { error: ModelFail::Auth, message: "".into() };
            ends(s, Outcome::Failed { kind });
        },
        &[InvariantId::S8],
    ),
    (
        "failed for its workspace, but its model was called",
        Scene::at_work,
        |s| ends(s, Outcome::Failed { kind: FailKind::Workspace { message: "".into() } }),
        &[InvariantId::S8],
    ),
    (
        "interrupted, but never held",
        Scene::at_work,
        |s| ends(s, Outcome::Interrupted { by: Initiator::Person }),
        &[InvariantId::S8],
    ),
    (
        "timed out at a cap that does not exist",
        Scene::at_work,
        |s| ends(s, Outcome::TimedOut { what: TimeLimit::WallCap }),
        &[InvariantId::S8],
    ),
    (
        "queued for too long, but started",
        Scene::at_work,
        |s| ends(s, Outcome::TimedOut { what: TimeLimit::Queue }),
        &[InvariantId::S8],
    ),
    (
        "out of a budget that does not exist",
        Scene::at_work,
        |s| ends(s, Outcome::OutOfBudget { which: Budget::Tokens }),
        &[InvariantId::S8],
    ),
    (
        "ended by the sweep while it worked",
        Scene::child_at_work,
        |s| {
            s.child.push(ended(1, Outcome::Cancelled { by: Initiator::Sweep }));
        },
        &[InvariantId::S8],
    ),
    (
        "completed on an answer that requests calls",
        Scene::at_work,
        |s| {
            s.root.push(answered(2, 1, 1));
            ends(s, Outcome::Completed);
        },
        &[InvariantId::S8],
    ),
    (
        "cancelled by a call that cancelled another",
        Scene::child_at_work,
        |s| {
            s.root.push(Record::CancelAsked { call: Some(LATER_CALL), child: CHILD, key: CALL });
            s.child.push(ended(1, Outcome::Cancelled { by: Initiator::Model { call: CALL } }));
        },
        &[InvariantId::S8],
    ),
    (
        "a run without a request",
        Scene::continued,
        |s| {
            s.root.retain(|record| !matches!(record, Record::ContinueAsked(_)));
        },
        &[InvariantId::S9],
    ),
    (
        "a run that is opened by a call twice",
        Scene::continued,
        |s| {
            let Some(Record::RunOpened(opened)) = s.child.get_mut(9) else { panic!("it continues") };
            opened.owner = owned_by_root();
        },
        &[InvariantId::S9],
    ),
    (
        "a second key while the first is open",
        Scene::continued,
        |s| {
            let taken = s.root.remove(TAKEN);
            s.root.insert(13, taken);
        },
        &[InvariantId::S9],
    ),
    (
        "a call of another run",
        Scene::continued,
        |s| {
            let Some(Record::TurnAnswered(answer)) = s.root.get_mut(11) else { panic!("it answers") };
            answer.run = RunNo(7);
        },
        &[InvariantId::S9],
    ),
    (
        "a queue that should stay queued, but opens the next run",
        Scene::good,
        |s| {
            let hold = Hold::Closing { outcome: Outcome::Completed, keeps_queue: true };
            s.root.insert(END, Record::RunHeld { run: RunNo(1), why: Box::new(hold) });
        },
        &[InvariantId::S12],
    ),
    (
        "a queued input after an end",
        Scene::good,
        |s| s.root.insert(END, accepted(9)),
        &[InvariantId::S12, InvariantId::V2],
    ),
    (
        "a branch without a record in its parent",
        Scene::good,
        |s| {
            let place = subtend_session::place::Place::Child {
                parent: ROOT,
                root: ROOT,
                kind: BranchKind::Human,
                user_msg: subtend_session::ids::MsgRef { session: ROOT, seq: Seq(2) },
                assistant_msg: None,
                call: None,
                depth: 0,
            };
            s.child[0] = super::created(place);
        },
        &[InvariantId::T1],
    ),
    (
        "a child in the worktree of a session that is not its ancestor",
        Scene::good,
        |s| created_child(s).worktree = Some(Worktree { of: CHILD, from: Some(CHILD) }),
        &[InvariantId::T2],
    ),
    (
        "a branch at a record that does not exist",
        Scene::good,
        |s| s.root.push(branch(99, Initiator::Person)),
        &[InvariantId::T2],
    ),
    (
        "a person's run on an owned slot",
        Scene::child_at_work,
        |s| {
            let run = s.child_state.run.as_mut().expect("the child is active");
            Arc::make_mut(&mut run.opened).owner = Owner::Person;
        },
        &[InvariantId::T3],
    ),
    ("more slots than the host has", Scene::child_at_work, |s| s.ledger.global = Some(0), &[InvariantId::T3]),
    (
        "a detached run without a cap",
        Scene::child_at_work,
        |s| {
            run_of_child(s).owner = Owner::Detached { by_host: true };
        },
        &[InvariantId::T6],
    ),
    (
        "a detached run that ends with its parent",
        Scene::child_at_work,
        |s| {
            let opened = run_of_child(s);
            (opened.owner, opened.wall_cap_at) = (Owner::Detached { by_host: true }, Some(9));
            let by = Initiator::Owner { outcome: subtend_session::outcome::OutcomeKind::Cancelled };
            s.child.push(ended(1, Outcome::Cancelled { by }));
        },
        &[InvariantId::T6],
    ),
    (
        "a notice with another refusal",
        Scene::good,
        |s| {
            let refused = Some(ContinueRefusal::Closed);
            s.root[TAKEN] =
                taken(Carrier::Result, vec![Notice { run: None, refused, ..notice(1, Outcome::Completed) }]);
        },
        &[InvariantId::N2],
    ),
    ("a run that no input opened", Scene::good, |s| run_of_child(s).inputs.clear(), &[InvariantId::N5]),
    (
        "a notice in the middle of a model call",
        Scene::good,
        |s| {
            let taken =
                taken(Carrier::Message, vec![Notice { key: None, waking: false, ..notice(1, Outcome::Completed) }]);
            s.root.insert(END - 1, taken);
        },
        &[InvariantId::N5],
    ),
    ("a turn without a cause at a rest point", Scene::good, |s| s.root.insert(END, turn(3, 1)), &[InvariantId::N5]),
    (
        "woken, but idle",
        Scene::at_work,
        |s| {
            s.root.truncate(TAKEN);
            s.root.extend([finished(CALL), turn(2, 1), answered(2, 1, 0)]);
            s.root.push(taken(Carrier::Message, vec![notice(1, Outcome::Completed)]));
        },
        &[InvariantId::N5],
    ),
    ("usage without an attempt", Scene::good, |s| end_of_root(s).usage_self.input = 1, &[InvariantId::E3]),
    ("an answer that is not counted", Scene::good, |s| end_of_root(s).turns = 1, &[InvariantId::E3]),
    (
        "more tokens than the limit",
        Scene::good,
        |s| {
            limited(s, Limits { tokens: Some(100), ..Limits::default() });
            reserve(s, 5, 60);
            reserve(s, 10, 60);
        },
        &[InvariantId::E3],
    ),
    (
        "a cap that owned runs lack",
        Scene::good,
        |s| {
            let Some(Record::RunOpened(opened)) = s.root.get_mut(2) else { panic!("the root has a run") };
            opened.wall_cap_at = Some(5);
            run_of_child(s).wall_cap_at = Some(6);
        },
        &[InvariantId::E4],
    ),
    ("an input that is forgotten", Scene::good, |s| s.root.push(accepted(9)), &[InvariantId::V2]),
    ("an input that is taken twice", Scene::at_work, |s| s.root.push(inputs(1, 1, 2)), &[InvariantId::V2]),
    (
        "a queue beyond its bound",
        Scene::at_work,
        |s| {
            limited(s, Limits { queue: 1, ..Limits::default() });
            s.root.extend([accepted(8), accepted(9)]);
        },
        &[InvariantId::B1],
    ),
    (
        "a call that the ceiling denies",
        Scene::good,
        |s| {
            let access = Box::new(Access { action: "fs.write".into(), resource: "secret".into() });
            let Some(Record::CallStarted { access: denied, .. }) = s.root.get_mut(7) else { panic!("a call starts") };
            *denied = Some(access);
        },
        &[InvariantId::P4],
    ),
    (
        "two asks for one call",
        Scene::allowed,
        |s| {
            let ask = s.root[12].clone();
            s.root.insert(14, ask);
        },
        &[InvariantId::P5],
    ),
    (
        "allowed by a deadline",
        Scene::allowed,
        |s| {
            s.root[13] = Record::AskAnswered { call: LATER_CALL, verdict: AskVerdict::Allow, by: AnsweredBy::Deadline };
        },
        &[InvariantId::P5],
    ),
    (
        "started despite a deny",
        Scene::allowed,
        |s| {
            s.root[13] = Record::AskAnswered { call: LATER_CALL, verdict: AskVerdict::Deny, by: AnsweredBy::Person };
            s.root.insert(15, accepted(9));
        },
        &[InvariantId::P5],
    ),
    ("closed with an open ask", Scene::asking, |s| s.root.push(finished(LATER_CALL)), &[InvariantId::P5]),
    (
        "an \"always\" of another session",
        Scene::good,
        |s| _ = s.child_state.always.insert(("write".into(), *access())),
        &[InvariantId::P5],
    ),
    (
        "a model's input that names an agent",
        Scene::good,
        |s| {
            let Record::InputAccepted(input) = asked_by(2, CALL) else { panic!("an input") };
            let named = AgentOverride {
                agent: "root".into(),
                agent_hash: subtend_session::ids::Hash::of(b"root"),
                model: "m".into(),
                system: "do all".into(),
                turns: None,
            };
            s.child[1] =
                Record::InputAccepted(Box::new(InputAccepted { agent_override: Some(Arc::new(named)), ..*input }));
        },
        &[InvariantId::P6],
    ),
    (
        "a proposal that no person approved",
        Scene::good,
        |s| {
            let other = AgentOverride {
                agent: "build".into(),
                agent_hash: subtend_session::ids::Hash::of(b"build"),
                model: "m".into(),
                system: "do all".into(),
                turns: None,
            };
            let Some(Record::CallStarted { kind, .. }) = s.root.get_mut(7) else { panic!("a call starts") };
            **kind = CallKind::Propose(Arc::new(other));
            s.root[TAKEN] = finished(CALL);
        },
        &[InvariantId::P6],
    ),
    (
        "a person's input that names an owner",
        Scene::good,
        |s| {
            let as_owner = owned_by_root();
            s.root[1] = Record::InputAccepted(Box::new(InputAccepted { as_owner, ..input(1) }));
        },
        &[InvariantId::P6],
    ),
    ("a continued session that is not a child", Scene::continued, |s| spawned(s).child = ROOT, &[InvariantId::P6]),
    (
        "a cancelled session that is not a child",
        Scene::good,
        |s| {
            s.root.insert(TAKEN, Record::CancelAsked { call: None, child: ROOT, key: CALL });
        },
        &[InvariantId::P6],
    ),
    ("a child of an agent that is denied", Scene::good, |s| spawned(s).agent = "killer".into(), &[InvariantId::P6]),
    (
        "a child that works elsewhere",
        Scene::good,
        |s| {
            let Some(Record::SessionCreated(created)) = s.child.get_mut(0) else { panic!("not a creation") };
            created.workspace = "/".into();
        },
        &[InvariantId::P6],
    ),
    (
        "a branch that a model created",
        Scene::good,
        |s| s.root.push(branch(2, Initiator::Model { call: CALL })),
        &[InvariantId::P6],
    ),
    ("a first run that a person owns", Scene::good, |s| run_of_child(s).owner = Owner::Person, &[InvariantId::P6]),
    (
        "a call without an ask",
        Scene::good,
        |s| {
            let Some(Record::CallStarted { access: recorded_access, .. }) = s.root.get_mut(7) else {
                panic!("a call starts")
            };
            *recorded_access = Some(access());
        },
        &[InvariantId::P7],
    ),
];
