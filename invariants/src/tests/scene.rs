//! A good world, and two earlier instants of it.

pub(crate) use std::sync::Arc;

pub(crate) use subtend_session::authority::Access;
pub(crate) use subtend_session::call::CallKind;
pub(crate) use subtend_session::ids::{AttemptNo, RunNo, Seq, SessionId, TurnNo};
pub(crate) use subtend_session::index::{Row, RowKind};
pub(crate) use subtend_session::message::Message;
pub(crate) use subtend_session::outcome::{FailKind, Initiator, Outcome};
pub(crate) use subtend_session::place::{BranchKind, Owner};
pub(crate) use subtend_session::record::{InputAccepted, Record};

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::{Activation, Frame, Ledger, Observed, Pool, View, World};
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::call::{CallEnd, ToolEffect};
use subtend_session::ids::{CallId, Epoch, Hash, InputId, Interned, MsgRef, Short};
use subtend_session::index::RowKey;
use subtend_session::limits::Limits;
use subtend_session::place::{Mode, OnRestart, Place};
use subtend_session::record::*;
use subtend_session::state::{Call, Run, State, Turn};
use subtend_session::usage::Usage;

pub(super) const ROOT: SessionId = SessionId(Uuid::from_u128(1));
pub(super) const CHILD: SessionId = SessionId(Uuid::from_u128(2));
pub(super) const CALL: CallId = CallId { turn: TurnNo(1), ix: 0 };
pub(super) const LATER_CALL: CallId = CallId { turn: TurnNo(2), ix: 0 };
pub(super) const NOTICE_ROW: Row = Row { to: ROOT, from: CHILD, kind: RowKind::Notice, key: RowKey::Call(CALL) };

/// Requires approval for everything except tasks. Allows writing `b`, and denies one file and one agent.
pub(super) fn ceiling() -> Authority {
    let rule =
        |action: &str, resource: &str, verdict| Rule { action: action.into(), resource: resource.into(), verdict };
    let rules = vec![
        rule("task:*", "*", Verdict::Allow),
        rule("task:killer", "*", Verdict::Deny),
        rule("fs.write", "b", Verdict::Allow),
        rule("fs.write", "secret", Verdict::Deny),
    ];
    Authority::of(RuleSet { default: Verdict::Ask, rules })
}

pub(super) fn created(place: Place) -> Record {
    Record::SessionCreated(Box::new(SessionCreated {
        returns: false,
        joins: false,
        rolls_back: false,
        in_full: None,
        source: Default::default(),
        place,
        short: Short("aaaaaa".into()),
        agent: "general".into(),
        agent_hash: Hash::of(b"general"),
        model: "scripted".into(),
        system: Interned::new("be brief".into()).expect("text is JSON"),
        ceiling: Interned::new(Arc::new(ceiling())).expect("plain data"),
        limits: Interned::new(Arc::new(Limits::default())).expect("plain data"),
        workspace: "/w".into(),
        turns: None,
        worktree: None,
        inspectable: true,
        caller_line: false,
        dialects: Vec::new(),
        tools: None,
        on_restart: OnRestart::Fail,
        task: false,
        title: None,
        inherited: Default::default(),
        metadata: None,
        servers: Vec::new(),
        imported: None,
    }))
}

pub(super) fn below(depth: u32) -> Place {
    Place::Child {
        parent: ROOT,
        root: ROOT,
        kind: BranchKind::Subagent,
        user_msg: MsgRef { session: ROOT, seq: Seq(2) },
        assistant_msg: None,
        call: Some(CALL),
        depth,
    }
}

pub(super) fn owned_by_root() -> Owner {
    Owner::Run { session: ROOT, run: RunNo(1), call: CALL }
}

pub(super) fn input(n: u128) -> InputAccepted {
    InputAccepted::new(InputId(Uuid::from_u128(n)), From::Person, Lane::Send, "go", Owner::Person)
}

pub(super) fn opened(run: u32, owner: Owner) -> Record {
    opened_with(run, owner, Vec::new())
}

pub(super) fn opened_with(run: u32, owner: Owner, inputs: Vec<InputId>) -> Record {
    Record::RunOpened(Box::new(RunOpened {
        run: RunNo(run),
        owner,
        inputs,
        mode: Mode::Blocking,
        max_turns: 50,
        base_turns: 0,
        deadline_ms: None,
        wall_cap_at: None,
        on_restart: OnRestart::Fail,
        slot: true,
    }))
}

pub(super) fn id(n: u128) -> InputId {
    InputId(Uuid::from_u128(n))
}

pub(super) fn accepted(n: u128) -> Record {
    Record::InputAccepted(Box::new(input(n)))
}

/// Returns the input that the root's call `call` sends to its child.
pub(super) fn asked_by(n: u128, call: CallId) -> Record {
    let from = From::Model { session: ROOT, run: RunNo(1), call };
    let as_owner = Owner::Run { session: ROOT, run: RunNo(1), call };
    Record::InputAccepted(Box::new(InputAccepted { from, as_owner, ..input(n) }))
}

pub(super) fn inputs(n: u128, run: u32, turn: u32) -> Record {
    Record::InputsTaken { ids: vec![id(n)], run: RunNo(run), turn: TurnNo(turn) }
}

pub(super) fn started(call: CallId, kind: CallKind) -> Record {
    Record::CallStarted { call, kind: Box::new(kind), timeout_ms: None, access: None }
}

pub(super) fn turn(turn: u32, attempt: u32) -> Record {
    turn_in(1, turn, attempt)
}

pub(super) fn turn_in(run: u32, turn: u32, attempt: u32) -> Record {
    Record::TurnStarted {
        run: RunNo(run),
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        prompt: Prompt::Plain,
        reserved: None,
        model: "scripted".into(),
        compacts: None,
    }
}

pub(super) fn answered(turn: u32, attempt: u32, calls: usize) -> Record {
    answered_in(1, turn, attempt, calls)
}

pub(super) fn answered_in(run: u32, turn: u32, attempt: u32, calls: usize) -> Record {
    let tool_call = ToolCall { provider_id: "x".into(), tool: "task".into(), args: "{}".into() };
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RunNo(run),
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        text: Some("done".into()),
        reasoning: None,
        calls: vec![tool_call; calls],
        stop: Stop::End,
        model: None,
        usage: Usage::default(),
        answers: Vec::new(),
        worked_ms: 0,
        queued_ms: 0,
    }))
}

pub(super) fn ended(run: u32, outcome: Outcome) -> Record {
    ended_after(run, outcome, 1)
}

pub(super) fn ended_after(run: u32, outcome: Outcome, turns: u32) -> Record {
    Record::RunEnded(Box::new(RunEnded {
        run: RunNo(run),
        outcome,
        result: None,
        returned: None,
        text: Some("done".into()),
        len: 4,
        hash: Hash::of(b"done"),
        turns,
        usage_self: Usage::default(),
        usage_owned: Usage::default(),
        worked_ms: 0,
        keeps_queue: false,
        gave_up: None,
    }))
}

pub(super) fn notice(run: u32, outcome: Outcome) -> Notice {
    Notice {
        returned: false,
        child: CHILD,
        run: Some(RunNo(run)),
        key: Some(CALL),
        refused: None,
        outcome,
        len: 4,
        hash: Hash::of(b"done"),
        prefix: "do".into(),
        usage: Usage::default(),
        turns: 1,
        base_turns: 0,
        waking: true,
    }
}

pub(super) fn taken(carrier: Carrier, items: Vec<Notice>) -> Record {
    Record::NoticeTaken(Box::new(NoticeTaken { items, carrier }))
}

pub(super) fn finished(call: CallId) -> Record {
    Record::CallFinished(Box::new(CallFinished {
        call,
        end: CallEnd::Ok,
        content: "ok".into(),
        truncated_from: None,
        worked_ms: 0,
    }))
}

pub(super) fn turn_of(calls: Vec<Call>, open: u32) -> Box<Turn> {
    Box::new(Turn {
        no: TurnNo(2),
        attempt: AttemptNo(1),
        asked: 0,
        limited: None,
        awaits: None,
        model: "offline".into(),
        tries: 1,
        prompt: Prompt::Plain,
        streaming: false,
        compacting: None,
        overflowed: false,
        compaction_failed: false,
        answered: None,
        calls,
        open,
        local: 0,
        writing: 0,
        waits: Default::default(),
        returning: None,
        unstarted: 0,
    })
}

/// Record positions in the root of [`Scene::good`].
pub(super) const SPAWNED: usize = 8;
pub(super) const TAKEN: usize = 9;
pub(super) const END: usize = 12;

/// A root that created a blocking child, took its end and completed. Both sessions are quiet.
pub(super) struct Scene {
    pub(super) root: Vec<Record>,
    pub(super) child: Vec<Record>,
    pub(super) frames: Vec<Frame>,
    pub(super) root_state: State,
    pub(super) child_state: State,
    pub(super) folded: Option<State>,
    pub(super) activation: Option<Activation>,
    pub(super) rows: BTreeSet<Row>,
    pub(super) ledger: Ledger,
    pub(super) observed: Observed,
    pub(super) erased: Vec<SessionId>,
}

impl Scene {
    /// Returns a root and its child with these records, without work in flight.
    pub(super) fn of(root: Vec<Record>, child: Vec<Record>) -> Self {
        let fold = |id, records: &[Record]| State::fold(id, records).expect("a legal journal");
        let (root_state, child_state) = (fold(ROOT, &root), fold(CHILD, &child));
        let second = u32::try_from(root.len().saturating_sub(7)).expect("a short journal");
        let frames = vec![
            Frame { first_seq: Seq(1), count: 7, epoch: Epoch(1) },
            Frame { first_seq: Seq(8), count: second, epoch: Epoch(2) },
        ];
        let owned = Pool { per_root: 1, ..Pool::default() };
        let persons = Pool { per_root: 2, ..Pool::default() };
        let ledger = Ledger { owned, persons, ..Ledger::default() };
        let activation = Some(Activation { epoch: Epoch(2), ..Activation::default() });
        let (rows, observed, erased) = (BTreeSet::new(), Observed::default(), Vec::new());
        Self { erased, root, child, frames, root_state, child_state, folded: None, activation, rows, ledger, observed }
    }

    fn journals() -> (Vec<Record>, Vec<Record>) {
        let root = vec![
            created(Place::Root),
            accepted(1),
            opened_with(1, Owner::Person, vec![id(1)]),
            Record::RunStarted { run: RunNo(1), slot: false },
            inputs(1, 1, 1),
            turn(1, 1),
            answered(1, 1, 1),
            started(CALL, CallKind::Child(Mode::Blocking)),
            Record::ChildSpawned(Box::new(ChildSpawned {
                bytes: 0,
                inspectable: false,
                dialect: subtend_session::dialect::Dialect::Task,
                label: None,
                skipped: Vec::new(),
                warnings: Vec::new(),
                call: CALL,
                child: CHILD,
                short: Short("bbbbbb".into()),
                agent: "explore".into(),
                mode: Mode::Blocking,
                detached: false,
                depth: 1,
                grant: SpawnGranted::default(),
            })),
            taken(Carrier::Result, vec![notice(1, Outcome::Completed)]),
            turn(2, 1),
            answered(2, 1, 0),
            ended_after(1, Outcome::Completed, 2),
        ];
        let child = vec![
            created(below(1)),
            asked_by(2, CALL),
            opened_with(1, owned_by_root(), vec![id(2)]),
            Record::RunStarted { run: RunNo(1), slot: true },
            inputs(2, 1, 1),
            turn(1, 1),
            answered(1, 1, 0),
            ended(1, Outcome::Completed),
        ];
        (root, child)
    }

    pub(super) fn good() -> Self {
        let (root, child) = Self::journals();
        Self::of(root, child)
    }

    /// Returns the good scene up to the root's second turn, which has no work in flight.
    pub(super) fn at_work() -> Self {
        let (mut root, child) = Self::journals();
        root.truncate(11);
        let mut scene = Self::of(root, child);
        scene.root_run().turn = Some(turn_of(Vec::new(), 0));
        scene
    }

    /// Returns the good scene up to the creation of the child. Both runs are in flight.
    pub(super) fn child_at_work() -> Self {
        let (mut root, mut child) = Self::journals();
        root.truncate(9);
        child.truncate(6);
        let mut scene = Self::of(root, child);
        scene.ledger.owned.used.insert(ROOT, 1);
        scene
    }

    /// Returns the good scene, whose root continues the child before it answers.
    pub(super) fn continued() -> Self {
        let (mut root, mut child) = Self::journals();
        root.truncate(11);
        root.extend([
            answered(2, 1, 1),
            started(LATER_CALL, CallKind::Continue(Mode::Blocking)),
            Record::ContinueAsked(Box::new(ContinueAsked {
                turns: None,
                tools: None,
                call: LATER_CALL,
                child: CHILD,
                input: "continue".into(),
                mode: Mode::Blocking,
            })),
            taken(Carrier::Result, vec![Notice { key: Some(LATER_CALL), ..notice(2, Outcome::Completed) }]),
            turn(3, 1),
            answered(3, 1, 0),
            ended_after(1, Outcome::Completed, 3),
        ]);
        child.extend([
            asked_by(3, LATER_CALL),
            opened_with(2, Owner::Run { session: ROOT, run: RunNo(1), call: LATER_CALL }, vec![id(3)]),
            Record::RunStarted { run: RunNo(2), slot: true },
            inputs(3, 2, 2),
            turn_in(2, 2, 1),
            answered_in(2, 2, 1, 0),
            ended(2, Outcome::Completed),
        ]);
        Self::of(root, child)
    }

    /// Returns the good scene with an approved call before the root's answer.
    pub(super) fn allowed() -> Self {
        let (mut root, child) = Self::journals();
        root.truncate(11);
        root.extend([
            answered(2, 1, 1),
            Record::AskOpened {
                call: LATER_CALL,
                action: "fs.write".into(),
                resource: "a".into(),
                root: ROOT,
                deadline_at: None,
            },
            Record::AskAnswered { call: LATER_CALL, verdict: AskVerdict::Allow, by: AnsweredBy::Person },
            started(LATER_CALL, CallKind::Local(ToolEffect::SideEffect)),
            finished(LATER_CALL),
            turn(3, 1),
            answered(3, 1, 0),
            ended_after(1, Outcome::Completed, 3),
        ]);
        Self::of(root, child)
    }

    /// Returns the scene of [`Scene::allowed`] while the ask is open.
    pub(super) fn asking() -> Self {
        let scene = Self::allowed();
        let mut scene = Self::of(scene.root[..13].to_vec(), scene.child);
        scene.rows.insert(Row { to: ROOT, from: ROOT, kind: RowKind::Ask, key: RowKey::Call(LATER_CALL) });
        scene
    }

    pub(super) fn root_run(&mut self) -> &mut Run {
        self.root_state.run.as_mut().expect("the root is active")
    }

    pub(super) fn with<T>(&self, judge: impl FnOnce(&World<'_>) -> T) -> T {
        let root = View {
            records: &self.root,
            frames: &self.frames,
            state: Some(&self.root_state),
            folded: self.folded.as_ref(),
            activation: self.activation.clone(),
        };
        let streams = self.child_state.run.iter().map(|_| (TurnNo(1), AttemptNo(1))).collect();
        let child = View {
            records: &self.child,
            frames: &[],
            state: Some(&self.child_state),
            folded: None,
            activation: Some(Activation { epoch: Epoch(1), models: streams, ..Activation::default() }),
        };
        let world = World::new([(ROOT, root), (CHILD, child)], &self.rows, Some(&self.ledger), true);
        judge(&world.without(self.erased.iter().copied()).with_observations(&self.observed))
    }
}
