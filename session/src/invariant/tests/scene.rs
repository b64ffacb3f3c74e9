//! One good world, and two instants before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::authority::Authority;
use crate::call::{CallEnd, CallKind};
use crate::ids::{AttemptNo, CallId, Epoch, Hash, InputId, Interned, MsgRef, RunNo, Seq, SessionId, Short, TurnNo};
use crate::index::{Row, RowKey, RowKind};
use crate::invariant::{Activation, Frame, Ledger, View, World};
use crate::limits::Limits;
use crate::message::Message;
use crate::outcome::Outcome;
use crate::place::{BranchKind, Mode, OnRestart, Owner, Place};
use crate::record::*;
use crate::state::{Call, CallPhase, Owned, Run, State, Turn};
use crate::usage::Usage;

pub(super) const ROOT: SessionId = SessionId(Uuid::from_u128(1));
pub(super) const CHILD: SessionId = SessionId(Uuid::from_u128(2));
pub(super) const CALL: CallId = CallId { turn: TurnNo(1), ix: 0 };
pub(super) const NOTICE_ROW: Row = Row { to: ROOT, from: CHILD, kind: RowKind::Notice, key: RowKey::Call(CALL) };

pub(super) fn created(place: Place) -> Record {
    Record::SessionCreated(Box::new(SessionCreated {
        place,
        short: Short("aaaaaa".into()),
        agent: "general".into(),
        agent_hash: Hash::of(b"general"),
        model: "scripted".into(),
        system: Interned::new("be brief".into()).expect("text is JSON"),
        ceiling: Interned::new(Arc::new(Authority::deny_all())).expect("plain data"),
        limits: Interned::new(Arc::new(Limits::default())).expect("plain data"),
        workspace: "/w".into(),
        inspectable: true,
        caller_line: false,
        dialects: Vec::new(),
        tools: None,
        on_restart: OnRestart::Fail,
        title: None,
        metadata: None,
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
    InputAccepted {
        id: InputId(Uuid::from_u128(n)),
        key: None,
        from: From::Person,
        lane: Lane::Send,
        text: "go".into(),
        agent_override: None,
        metadata: None,
        format: None,
        as_owner: Owner::Person,
    }
}

pub(super) fn opened(run: u32, owner: Owner) -> Record {
    Record::RunOpened(Box::new(RunOpened {
        run: RunNo(run),
        owner,
        inputs: Vec::new(),
        mode: Mode::Blocking,
        max_turns: 50,
        deadline_ms: None,
        wall_cap_at: None,
        on_restart: OnRestart::Fail,
        slot: true,
    }))
}

pub(super) fn turn(turn: u32, attempt: u32) -> Record {
    Record::TurnStarted {
        run: RunNo(1),
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        prompt: Prompt::Plain,
        reserved: None,
        model: "scripted".into(),
    }
}

pub(super) fn answered(turn: u32, attempt: u32, calls: usize) -> Record {
    let asked = Asked { provider_id: "x".into(), tool: "task".into(), args: "{}".into() };
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RunNo(1),
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        text: Some("done".into()),
        reasoning: None,
        calls: vec![asked; calls],
        stop: Stop::End,
        model: None,
        usage: Usage::default(),
        answers: Vec::new(),
        worked_ms: 0,
    }))
}

pub(super) fn ended(run: u32, outcome: Outcome) -> Record {
    Record::RunEnded(Box::new(RunEnded {
        run: RunNo(run),
        outcome,
        result: None,
        returned: None,
        text: Some("done".into()),
        len: 4,
        hash: Hash::of(b"done"),
        turns: 1,
        usage_self: Usage::default(),
        usage_owned: Usage::default(),
        worked_ms: 0,
        gave_up: None,
    }))
}

pub(super) fn notice(run: u32, outcome: Outcome) -> Notice {
    Notice {
        child: CHILD,
        run: Some(RunNo(run)),
        key: Some(CALL),
        outcome,
        len: 4,
        hash: Hash::of(b"done"),
        prefix: "do".into(),
        usage: Usage::default(),
        turns: 1,
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

pub(super) fn state(id: SessionId, birth: &Record) -> State {
    State::fold(id, [birth]).expect("a birth folds")
}

/// A run as it is right after its claim.
pub(super) fn run(record: &Record) -> Box<Run> {
    let Record::RunOpened(opened) = record else { panic!("a run is opened by RunOpened") };
    Box::new(Run {
        no: opened.run,
        opened: Arc::new((**opened).clone()),
        waiting: Vec::new(),
        started: true,
        slot: false,
        parked: None,
        hold: None,
        turns: 0,
        spent: 0,
        worked_ms: 0,
        turn: None,
        owned: BTreeMap::new(),
        cancels: 0,
        unanswered: Vec::new(),
        format: None,
        answer: None,
        partial: "".into(),
        usage_self: Usage::default(),
        usage_owned: Usage::default(),
        by_notices: false,
        deferred: Vec::new(),
    })
}

pub(super) fn turn_of(calls: Vec<Call>, open: u32) -> Box<Turn> {
    Box::new(Turn {
        no: TurnNo(2),
        attempt: AttemptNo(1),
        model: "offline".into(),
        tries: 1,
        prompt: Prompt::Plain,
        streaming: false,
        answered: None,
        calls,
        open,
        local: 0,
        writing: 0,
        waits: Vec::new(),
        returning: None,
        unstarted: 0,
    })
}

pub(super) fn call(kind: CallKind, phase: CallPhase) -> Call {
    Call { tool: "task".into(), args: "{}".into(), kind: Some(kind), phase }
}

/// A root that made a blocking child, took its end and completed; both quiet.
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
}

impl Scene {
    pub(super) fn good() -> Self {
        let root = vec![
            created(Place::Root),
            Record::InputAccepted(Box::new(input(1))),
            opened(1, Owner::Person),
            Record::RunStarted { run: RunNo(1), slot: false },
            turn(1, 1),
            answered(1, 1, 1),
            Record::ChildSpawned(Box::new(ChildSpawned {
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
            ended(1, Outcome::Completed),
        ];
        let child = vec![
            created(below(1)),
            opened(1, owned_by_root()),
            Record::RunStarted { run: RunNo(1), slot: true },
            turn(1, 1),
            answered(1, 1, 0),
            ended(1, Outcome::Completed),
        ];
        let mut root_state = state(ROOT, &root[0]);
        let shows = |seq| Message::Assistant { seq: Seq(seq), text: None, reasoning: None, calls: [].into() };
        root_state.transcript = Arc::new(vec![shows(6), shows(10)]);
        let mut child_state = state(CHILD, &child[0]);
        child_state.transcript = Arc::new(vec![shows(5)]);
        let frames = vec![
            Frame { first_seq: Seq(1), count: 5, epoch: Epoch(1) },
            Frame { first_seq: Seq(6), count: 6, epoch: Epoch(2) },
        ];
        let ledger = Ledger { per_root: 1, ..Ledger::default() };
        let activation = Some(Activation { epoch: Epoch(2), ..Activation::default() });
        Self { root, child, frames, root_state, child_state, folded: None, activation, rows: BTreeSet::new(), ledger }
    }

    /// The good scene cut before the root's second turn ends; nothing is in flight for it.
    pub(super) fn at_work() -> Self {
        let mut scene = Self::good();
        scene.root.truncate(9);
        scene.frames[1].count = 4;
        scene.root_state.transcript = Arc::new(scene.root_state.transcript.iter().take(1).cloned().collect());
        let mut run = run(&scene.root[2]);
        run.turn = Some(turn_of(Vec::new(), 0));
        scene.root_state.run = Some(run);
        scene
    }

    /// The good scene cut right after the birth of the child; both runs are in flight.
    pub(super) fn child_at_work() -> Self {
        let mut scene = Self::good();
        scene.root.truncate(7);
        scene.frames[1].count = 2;
        scene.child.truncate(4);
        let mut above = run(&scene.root[2]);
        let mut turn = turn_of(vec![call(CallKind::Child(Mode::Blocking), CallPhase::Started)], 1);
        turn.no = TurnNo(1);
        above.turn = Some(turn);
        above.owned.insert(CALL, Owned { child: CHILD, mode: Mode::Blocking, cancel_asked: false });
        scene.root_state.run = Some(above);
        scene.root_state.transcript = Arc::new(scene.root_state.transcript.iter().take(1).cloned().collect());
        let mut below = run(&scene.child[1]);
        let mut streaming = turn_of(Vec::new(), 0);
        (streaming.no, streaming.streaming) = (TurnNo(1), true);
        below.turn = Some(streaming);
        below.slot = true;
        scene.child_state.run = Some(below);
        scene.child_state.transcript = Arc::default();
        scene.ledger.used.insert(ROOT, 1);
        scene
    }

    pub(super) fn root_run(&mut self) -> &mut Run {
        self.root_state.run.as_mut().expect("the root is at work")
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
        judge(&World::new([(ROOT, root), (CHILD, child)], &self.rows, Some(&self.ledger), true))
    }
}
