//! Fixtures: sessions, commands, and short names for them.

pub(crate) use std::sync::Arc;

pub(crate) use subtend_invariants::bugs::Rules;
pub(crate) use subtend_session::authority::{Access, Authority, RuleSet, Verdict};
pub(crate) use subtend_session::call::{CallEnd, CallKind, Invalid, ToolErrorKind};
pub(crate) use subtend_session::command::{
    Answered, AttemptFailed, BranchPlan, ChildPlan, Clock, Command, Deadline, FoundCall, Plan, Refusal, ResolvedCall,
    SpawnVerdict, SwitchTo,
};
pub(crate) use subtend_session::context::{context, visible};
pub(crate) use subtend_session::dialect::Dialect;
pub(crate) use subtend_session::effect::{Decision, Effect, Rejection, Reply};
pub(crate) use subtend_session::ids::{
    AttemptNo, CallId, Hash, InputId, Interned, MsgRef, RunKey, RunNo, Seq, SessionId, TurnNo,
};
pub(crate) use subtend_session::index::{Before, Row, RowKey, RowKind, Stamp, changes, refusal_from};
pub(crate) use subtend_session::limits::Limits;
pub(crate) use subtend_session::message::Message;
pub(crate) use subtend_session::outcome::{Budget, FailKind, Initiator, ModelFail, Outcome, OutcomeKind, Part};
pub(crate) use subtend_session::place::{BranchKind, Mode, OnRestart, Owner, Place, Worktree};
pub(crate) use subtend_session::record::{
    AgentOverride, AnsweredBy, AskVerdict, CallFinished, ContinueRefusal, InputAccepted, Lane, Notice, Park,
    QueueChange, Record, RunOpened, SessionCreated, Stop, ToolCall,
};
pub(crate) use subtend_session::state::{CallPhase, Phase, State};
pub(crate) use subtend_session::usage::Usage;

use subtend_session::call::{CallResult, ToolEffect};
pub(crate) use subtend_session::command::NeededApproval;
use subtend_session::command::{Continue, ContinuePlan};
use subtend_session::creation;
use subtend_session::ids::Short;
use subtend_session::index::continue_input;
use subtend_session::record::{Carrier, From, Hold, SpawnGranted};
use uuid::Uuid;

mod shown;
pub(crate) use shown::{column, short, slots, word};

pub(crate) const ME: u128 = 0x0100;
pub(crate) const OWNER: u128 = 0x0200;

pub(crate) fn session(n: u128) -> SessionId {
    SessionId(Uuid::from_u128(n))
}

pub(crate) fn input_id(n: u128) -> InputId {
    InputId(Uuid::from_u128(n))
}

pub(crate) fn call(turn: u32, ix: u32) -> CallId {
    CallId { turn: TurnNo(turn), ix }
}

pub(crate) fn clock() -> Clock {
    Clock { wall_ms: 1_000_000, worked_ms: 100 }
}

pub(crate) fn authority() -> Arc<Authority> {
    Arc::new(Authority::of(RuleSet { default: Verdict::Allow, rules: Vec::new() }))
}

pub(crate) fn created(place: Place, limits: Limits) -> SessionCreated {
    SessionCreated {
        returns: false,
        joins: false,
        rolls_back: false,
        in_full: None,
        source: Default::default(),
        place,
        short: Short("me".into()),
        agent: "general".into(),
        agent_hash: Hash::of(b"general"),
        model: "scripted".into(),
        system: Interned::new(Arc::from("You work.")).unwrap(),
        ceiling: Interned::new(authority()).unwrap(),
        limits: Interned::new(Arc::new(limits)).unwrap(),
        workspace: "/work".into(),
        turns: None,
        worktree: None,
        inspectable: false,
        on_restart: OnRestart::Fail,
        caller_line: false,
        dialects: Vec::new(),
        tools: None,
        task: false,
        title: None,
        inherited: Default::default(),
        metadata: None,
        servers: Vec::new(),
        imported: None,
    }
}

/// A session with all its records.
#[derive(Clone, Debug)]
pub(crate) struct Heart {
    pub(crate) state: State,
    pub(crate) log: Vec<Record>,
    pub(crate) rules: Rules,
}

impl Heart {
    pub(crate) fn from_records(id: SessionId, records: Vec<Record>) -> Self {
        Self { state: State::fold(id, &records).unwrap(), log: records, rules: Rules::ALL }
    }

    /// Returns a root without a run.
    pub(crate) fn root_with(limits: Limits) -> Self {
        let session = creation::root(session(ME), created(Place::Root, limits));
        Self::from_records(session.session, session.records)
    }

    pub(crate) fn root() -> Self {
        Self::root_with(Limits::default())
    }

    /// Returns a queued child of depth 1 that needs a slot and has a deadline.
    pub(crate) fn child_with(limits: Limits, max_turns: u32) -> Self {
        let owner = Owner::Run { session: session(OWNER), run: RunNo(1), call: call(1, 0) };
        let place = Place::Child {
            parent: session(OWNER),
            root: session(OWNER),
            kind: BranchKind::Subagent,
            user_msg: MsgRef { session: session(OWNER), seq: Seq(5) },
            assistant_msg: None,
            call: Some(call(1, 0)),
            depth: 1,
        };
        let input = InputAccepted { as_owner: owner.clone(), ..input(1, "task", Lane::Send) };
        let opened = RunOpened {
            run: RunNo(1),
            owner,
            inputs: vec![input.id],
            mode: Mode::Background,
            max_turns,
            base_turns: 0,
            deadline_ms: Some(480_000),
            wall_cap_at: Some(9_000_000),
            on_restart: OnRestart::Fail,
            slot: true,
        };
        Self::from_records(
            session(ME),
            vec![
                Record::SessionCreated(Box::new(created(place, limits))),
                Record::InputAccepted(Box::new(input)),
                Record::RunOpened(Box::new(opened)),
            ],
        )
    }

    pub(crate) fn child() -> Self {
        Self::child_with(Limits::default(), 50)
    }

    /// Decides a command, appends its records, and checks that the journal folds to the state.
    pub(crate) fn decide(&mut self, command: Command) -> Result<Decision, Rejection> {
        self.decide_at(command, clock())
    }

    pub(crate) fn decide_at(&mut self, command: Command, clock: Clock) -> Result<Decision, Rejection> {
        let before = self.state.clone();
        match self.rules.decide(&mut self.state, command, clock) {
            Ok(decision) => {
                self.log.extend(decision.records.iter().cloned());
                self.assert_refolds();
                Ok(decision)
            }
            Err(rejection) => {
                assert_eq!(self.state, before, "a rejection does not change the state");
                Err(rejection)
            }
        }
    }

    pub(crate) fn then(mut self, command: Command) -> Self {
        self.decide(command).unwrap();
        self
    }

    pub(crate) fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Decides a command and returns the decision in short form.
    pub(crate) fn summary(&mut self, command: Command) -> String {
        let decided = self.decide(command);
        short(self, &decided)
    }

    /// Returns the session as if it had been created in `worktree`.
    pub(crate) fn in_worktree(mut self, worktree: Option<Worktree>) -> Self {
        if let Some(Record::SessionCreated(created)) = self.log.first_mut() {
            created.worktree = worktree;
        }
        self.refolded()
    }

    /// Appends a record directly, without a command.
    pub(crate) fn recorded(mut self, record: Record) -> Self {
        self.state.apply(&record);
        self.log.push(record);
        self.assert_refolds();
        self
    }

    /// Folds the journal again, as after a crash.
    pub(crate) fn refolded(&self) -> Self {
        let state = State::fold(self.state.id, &self.log).unwrap();
        Self { state, log: self.log.clone(), rules: self.rules }
    }

    pub(crate) fn assert_refolds(&self) {
        // A seeded bug writes invalid journals.
        if self.rules.are_broken() {
            return;
        }
        let folded = State::fold(self.state.id, &self.log).unwrap();
        let mut durable = self.state.clone();
        durable.forget_volatile();
        assert_eq!(folded, durable, "the journal folds to the state");
    }
}

pub(crate) fn input(n: u128, text: &str, lane: Lane) -> InputAccepted {
    InputAccepted::new(input_id(n), From::Person, lane, text, Owner::Person)
}

pub(crate) fn send(n: u128, text: &str) -> Command {
    Command::Submit(Box::new(input(n, text, Lane::Send)))
}

pub(crate) fn steer(n: u128, text: &str) -> Command {
    Command::Submit(Box::new(input(n, text, Lane::Steer)))
}

pub(crate) fn admitted() -> Command {
    Command::Admitted { run: RunNo(1), owner_ended: None }
}

pub(crate) fn resolved(kind: CallKind) -> ResolvedCall {
    let tool_call = ToolCall { provider_id: "p".into(), tool: "tool".into(), args: "{\"result\":\"given\"}".into() };
    ResolvedCall { asked: tool_call, kind, note: None, access: None, ask: NeededApproval::None }
}

pub(crate) fn reads() -> CallKind {
    CallKind::Local(ToolEffect::ReadOnly)
}

pub(crate) fn writes() -> CallKind {
    CallKind::Local(ToolEffect::SideEffect)
}

pub(crate) fn blocking() -> CallKind {
    CallKind::Child(Mode::Blocking)
}

pub(crate) fn background() -> CallKind {
    CallKind::Child(Mode::Background)
}

/// Returns a proposal that the agent `build` continues.
pub(crate) fn proposal() -> CallKind {
    CallKind::Propose(Arc::new(AgentOverride {
        agent: "build".into(),
        agent_hash: Hash::of(b"build"),
        model: "maker".into(),
        system: "You build.".into(),
        turns: None,
    }))
}

pub(crate) fn answer(turn: u32, attempt: u32, text: Option<&str>, kinds: Vec<CallKind>, stop: Stop) -> Command {
    Command::ModelAnswered(Box::new(Answered {
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        text: text.map(Into::into),
        reasoning: None,
        calls: kinds.into_iter().map(resolved).collect(),
        stop,
        model: None,
        usage: Usage { input: 10, output: 5, ..Usage::default() },
        queued_ms: 0,
    }))
}

pub(crate) fn answers(turn: u32, text: &str) -> Command {
    answer(turn, 1, Some(text), Vec::new(), Stop::End)
}

pub(crate) fn calls(turn: u32, kinds: Vec<CallKind>) -> Command {
    answer(turn, 1, None, kinds, Stop::Calls)
}

pub(crate) fn attempt_failed(turn: u32, attempt: u32, error: ModelFail) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        error,
        message: "no".into(),
        retry_after_ms: None,
        model: None,
        next: None,
        resets: Vec::new(),
        usage: None,
        queued_ms: 0,
    }))
}

pub(crate) fn tool(turn: u32, ix: u32, content: &str) -> Command {
    Command::ToolFinished { call: call(turn, ix), result: Box::new(CallResult::ok(content)), worked_ms: 7 }
}

pub(crate) fn owner_run() -> RunKey {
    RunKey { session: session(OWNER), run: RunNo(1) }
}

pub(crate) fn plan(n: u128, mode: Mode) -> ChildPlan {
    ChildPlan {
        dialect: subtend_session::dialect::Dialect::Task,
        label: None,
        skipped: Vec::new(),
        warnings: Vec::new(),
        child: session(n),
        input: input_id(n),
        prompt: "do".into(),
        created: created(Place::Root, Limits::default()),
        manifest: authority(),
        mode,
        max_turns: 10,
        deadline_ms: Some(480_000),
        on_restart: OnRestart::Fail,
        detached_ms: None,
        grant: SpawnGranted { spawns_left: 3 },
    }
}

/// Grants the child calls `(ix, session)` of a turn.
pub(crate) fn spawn(turn: u32, mode: Mode, children: &[(u32, u128)]) -> Command {
    let verdict = |(ix, n): &(u32, u128)| SpawnVerdict {
        call: call(turn, *ix),
        verdict: Ok(Plan::Child(Box::new(plan(*n, mode)))),
    };
    Command::Spawn { turn: TurnNo(turn), verdicts: children.iter().map(verdict).collect() }
}

/// Grants the continue calls `(ix, session)` of a turn.
pub(crate) fn continue_children(turn: u32, mode: Mode, children: &[(u32, u128)]) -> Command {
    let plan = |n| ContinuePlan {
        turns: None,
        tools: None,
        child: session(n),
        text: "continue".into(),
        mode,
        grant: SpawnGranted { spawns_left: 3 },
    };
    let verdict =
        |(ix, n): &(u32, u128)| SpawnVerdict { call: call(turn, *ix), verdict: Ok(Plan::Continue(Box::new(plan(*n)))) };
    Command::Spawn { turn: TurnNo(turn), verdicts: children.iter().map(verdict).collect() }
}

/// Returns the `continue` row of the owner's call `key`.
pub(crate) fn continued(key: CallId, owner_ended: Option<OutcomeKind>) -> Command {
    Command::Continue(Box::new(Continue {
        turns: None,
        tools: None,
        owner: session(OWNER),
        run: RunNo(1),
        key,
        input: continue_input(session(OWNER), key),
        text: "continue".into(),
        mode: Mode::Blocking,
        wall_cap_at: Some(8_000_000),
        owner_ended,
    }))
}

/// Returns the `cancel` row of the owner's call `key`, by its model.
pub(crate) fn owner_cancels(key: CallId) -> Command {
    Command::OwnerCancels { owner: session(OWNER), key, by: Initiator::Model { call: call(4, 0) } }
}

pub(crate) fn cancel_tree() -> Command {
    Command::Cancel { run: None, by: Initiator::Person, keeps_queue: true }
}

pub(crate) fn notice(child: u128, key: CallId, outcome: Outcome, text: &str) -> Notice {
    Notice {
        returned: false,
        child: session(child),
        run: Some(RunNo(1)),
        key: Some(key),
        waking: outcome.wakes_owner(),
        refused: None,
        outcome,
        len: text.len() as u64,
        hash: Hash::of(text.as_bytes()),
        prefix: text.into(),
        usage: Usage { input: 1, output: 1, ..Usage::default() },
        turns: 1,
        base_turns: 0,
    }
}

pub(crate) fn ended(child: u128, key: CallId) -> Command {
    Command::OwnedEnded(vec![notice(child, key, Outcome::Completed, "done")])
}

pub(crate) fn persons_end(child: u128, run: u32) -> Notice {
    Notice { run: Some(RunNo(run)), key: None, waking: false, ..notice(child, call(1, 0), Outcome::Completed, "aside") }
}

pub(crate) fn cancel() -> Command {
    Command::Cancel { run: None, by: Initiator::Person, keeps_queue: false }
}

pub(crate) fn interrupt() -> Command {
    Command::Interrupt { by: Initiator::Person }
}
