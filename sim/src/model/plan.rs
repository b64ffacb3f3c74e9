//! The smallest possible sessions, inputs and calls for the model checker.

use std::sync::Arc;

use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
use subtend_session::call::{CallKind, Invalid, ToolEffect, ToolErrorKind};
use subtend_session::command::{
    BranchPlan, ChildPlan, ContinuePlan, Description, FoundCall, NeededApproval, Plan, Refusal, RegeneratePlan,
    ResolvedCall, SpawnVerdict,
};
use subtend_session::context;
use subtend_session::creation;
use subtend_session::effect::NewSession;
use subtend_session::ids::{AttemptNo, CallId, Hash, InputId, Interned, RunKey, Seq, SessionId, Text, TurnNo};
use subtend_session::index::message_input;
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::Initiator;
use subtend_session::place::{BranchKind, Mode, OnRestart, Owner, Place, Service};
use subtend_session::record::{
    From, InputAccepted, Lane, SessionCreated, SpawnGranted, SummarySet, TitleSet, ToolCall,
};
use subtend_session::state::{Call, CallPhase, State};
use uuid::Uuid;

use super::SystemModel;

pub(super) const ROOT: SessionId = SessionId(Uuid::from_u128(1));

/// Returns the child created by `call` of `parent`, whose id is derived from both.
pub(super) fn child_of(parent: SessionId, call: CallId) -> SessionId {
    let place = u128::from(call.turn.0) << 4 | u128::from(call.ix.saturating_add(1));
    SessionId(Uuid::from_u128(parent.0.as_u128() << 8 | place))
}

fn limits(model: &SystemModel) -> Limits {
    Limits {
        max_depth: u32::from(model.size.depth),
        live_runs: u32::from(model.size.slots),
        live_person_runs: u32::from(model.size.person_slots),
        turns: u32::from(model.size.turns),
        attempts: 2,
        wall_ms: None,
        ..Limits::default()
    }
}

/// Returns an authority that allows everything, except that writing needs an approval.
fn ceiling() -> Authority {
    let rule = Rule { action: "fs.write".into(), resource: "*".into(), verdict: Verdict::Ask };
    Authority::of(RuleSet { default: Verdict::Allow, rules: vec![rule] })
}

/// Returns a body with its hash. A body that cannot be hashed gets the hash of the empty text.
fn intern<T: serde::Serialize + ?Sized>(body: Arc<T>) -> Interned<T> {
    Interned::new(Arc::clone(&body)).unwrap_or(Interned { hash: Hash::of(b""), body: Some(body) })
}

fn created(model: &SystemModel, place: Place, session: SessionId) -> SessionCreated {
    SessionCreated {
        returns: false,
        joins: false,
        rolls_back: false,
        in_full: None,
        source: Default::default(),
        place,
        short: session.short(),
        agent: "general".into(),
        agent_hash: Hash::of(b"general"),
        model: "model".into(),
        system: intern(Arc::from("work")),
        ceiling: intern(Arc::new(ceiling())),
        limits: intern(Arc::new(limits(model))),
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
    }
}

pub(super) fn root(model: &SystemModel) -> NewSession {
    creation::root(ROOT, created(model, Place::Root, ROOT))
}

/// Returns an input to the root. In sizes with overflows, it is long enough for a compaction to save space.
pub(super) fn input(model: &SystemModel, n: u8) -> InputAccepted {
    let input = given(u128::from(n) << 64);
    if model.size.overflows == 0 { input } else { InputAccepted { text: "go ".repeat(1_000).into(), ..input } }
}

pub(super) fn input_to_child(n: u8) -> InputAccepted {
    given(u128::from(n) << 80)
}

/// Returns a message from the run `from`. The call that sends it is not modelled.
pub(super) fn message(from: RunKey, n: u8) -> InputAccepted {
    let RunKey { session, run } = from;
    let call = CallId { turn: TurnNo(1), ix: u32::from(n) };
    InputAccepted {
        id: message_input(from, call),
        from: From::Model { session, run, call },
        lane: Lane::Steer,
        as_owner: Owner::Run { session, run, call },
        ..given(0)
    }
}

fn given(id: u128) -> InputAccepted {
    InputAccepted::new(InputId(Uuid::from_u128(id)), From::Person, Lane::Send, "go", Owner::Person)
}

fn first_said(state: &State) -> Option<Seq> {
    context::visible(state).iter().find_map(|message| match message {
        Message::User { seq, .. } => Some(*seq),
        Message::Assistant { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    })
}

pub(super) fn branches(state: &State) -> bool {
    first_said(state).is_some()
}

/// Returns a person's branch at the first message. `n` branches remain, and determine its id.
pub(super) fn branch(model: &SystemModel, state: &State, n: u8) -> BranchPlan {
    let child = SessionId(Uuid::from_u128(u128::from(n) << 100));
    BranchPlan {
        child,
        kind: BranchKind::Human,
        at: first_said(state),
        created: created(model, Place::Root, child),
        manifest: Arc::new(Authority::allow_all()),
        by: Initiator::Person,
        is_task: false,
    }
}

/// Returns a service session of the host. `n` services remain, and determine its id.
pub(super) fn service(model: &SystemModel, n: u8) -> BranchPlan {
    let child = SessionId(Uuid::from_u128(u128::from(n) << 116));
    BranchPlan {
        child,
        kind: BranchKind::Service,
        at: None,
        created: SessionCreated { inspectable: false, ..created(model, Place::Root, child) },
        manifest: Arc::new(Authority::allow_all()),
        by: Initiator::Host,
        is_task: false,
    }
}

/// Returns the service session that summarises for an attempt of `session`.
pub(super) fn compaction_service(
    model: &SystemModel,
    session: SessionId,
    (turn, attempt): (TurnNo, AttemptNo),
) -> BranchPlan {
    let place = u128::from(turn.0) << 8 | u128::from(attempt.0);
    let child = SessionId(Uuid::from_u128(session.0.as_u128() << 64 | place << 32));
    BranchPlan {
        child,
        created: SessionCreated { inspectable: false, ..created(model, Place::Root, child) },
        ..service(model, 0)
    }
}

pub(super) fn input_to_service(session: SessionId) -> InputAccepted {
    let owner = Owner::Host(Service::Title);
    InputAccepted { id: InputId(session.0), from: From::Host, as_owner: owner, ..given(0) }
}

/// Returns the result of a service session: a title, or a summary for a session that has a title.
pub(super) fn description(of: SessionId, titled: bool) -> Description {
    if titled {
        return Description::Summary(SummarySet { text: "done".into(), upto: Seq(1), of });
    }
    Description::Title(TitleSet { title: "work".into(), by: Initiator::Host, of: Some(of) })
}

/// Returns a regeneration of the last answer. `n` regenerations remain, and determine its id.
pub(super) fn regenerate(model: &SystemModel, n: u8) -> RegeneratePlan {
    let child = SessionId(Uuid::from_u128(u128::from(n) << 108));
    RegeneratePlan {
        child,
        input: InputId(child.0),
        of: None,
        created: created(model, Place::Root, child),
        manifest: Arc::new(Authority::allow_all()),
        by: Initiator::Person,
    }
}

/// Returns the verdict on one child call. `remaining` is the number of children and of continues that may still start.
pub(super) fn verdict(model: &SystemModel, state: &State, call: CallId, remaining: (u8, u8)) -> SpawnVerdict {
    let refuse = |message: &str| Err(Refusal { kind: ToolErrorKind::Limit, message: message.into() });
    let verdict = match state.call(call).map(|open_call| kind(&open_call.tool, &open_call.args)) {
        Some(CallKind::Child(mode)) if remaining.0 > 0 => {
            Ok(Plan::Child(Box::new(plan(model, state, call, mode, remaining.0))))
        }
        Some(CallKind::Continue(mode)) if remaining.1 > 0 => match first_child(state) {
            Some(child) => Ok(Plan::Continue(Box::new(ContinuePlan {
                turns: None,
                tools: None,
                child,
                text: "again".into(),
                mode,
                grant: SpawnGranted::default(),
            }))),
            None => refuse("unknown task"),
        },
        Some(
            CallKind::Child(_)
            | CallKind::Continue(_)
            | CallKind::Local(_)
            | CallKind::Await { .. }
            | CallKind::Check { .. }
            | CallKind::Cancel { .. }
            | CallKind::Return
            | CallKind::Propose(_)
            | CallKind::Invalid(_),
        ) => refuse("no spawns remain"),
        None => refuse("the call is not pending"),
    };
    SpawnVerdict { call, verdict }
}

/// Returns the first child of a session. Calls always refer to that child.
pub(super) fn first_child(state: &State) -> Option<SessionId> {
    state.children.iter().find(|(_, child)| child.call.is_some()).map(|(id, _)| *id)
}

fn plan(model: &SystemModel, state: &State, call: CallId, mode: Mode, remaining: u8) -> ChildPlan {
    let child = child_of(state.id, call);
    ChildPlan {
        dialect: subtend_session::dialect::Dialect::Task,
        label: None,
        skipped: Vec::new(),
        warnings: Vec::new(),
        child,
        input: InputId(child.0),
        prompt: "do".into(),
        created: created(model, Place::Root, child),
        manifest: Arc::new(Authority::allow_all()),
        mode,
        max_turns: u32::from(model.size.child_turns),
        deadline_ms: Some(480_000),
        on_restart: OnRestart::Fail,
        detached_ms: None,
        grant: SpawnGranted { spawns_left: u32::from(remaining).saturating_sub(1) },
    }
}

fn mode(args: &str) -> Mode {
    if args == "blocking" { Mode::Blocking } else { Mode::Background }
}

/// Classifies a call by its tool and arguments only, so that each activation gets the same result.
pub(super) fn kind(tool: &str, args: &str) -> CallKind {
    match tool {
        "task" => CallKind::Child(mode(args)),
        "continue" => CallKind::Continue(mode(args)),
        "write" => CallKind::Local(ToolEffect::SideEffect),
        "cancel" => match Uuid::parse_str(args) {
            Ok(child) => CallKind::Cancel { child: SessionId(child) },
            Err(_) => CallKind::Invalid(Invalid::BadArgs),
        },
        _ => CallKind::Local(ToolEffect::ReadOnly),
    }
}

fn access(tool: &str) -> Option<Box<Access>> {
    (tool == "write").then(|| Box::new(Access { action: "fs.write".into(), resource: "a".into() }))
}

/// Returns whether a call needs an approval in this state.
fn asks(state: &State, tool: &str) -> NeededApproval {
    NeededApproval::of_one(access(tool).is_some_and(|access| {
        state.ceiling.verdict(&access) == Verdict::Ask && !state.always.contains(&(tool.into(), *access))
    }))
}

pub(super) fn resolve_call(state: &State, tool: &str, args: &str) -> ResolvedCall {
    let text = |text: &str| -> Text { text.into() };
    ResolvedCall {
        asked: ToolCall { provider_id: text(""), tool: text(tool), args: text(args) },
        kind: kind(tool, args),
        note: None,
        access: access(tool),
        ask: asks(state, tool),
    }
}

/// Returns the calls that have not started, as a new activation finds them.
pub(super) fn found(state: &State) -> Vec<FoundCall> {
    let Some(turn) = state.turn() else { return Vec::new() };
    let waits = |call: &Call| matches!(call.phase, CallPhase::Unstarted | CallPhase::Asked(_));
    let calls = (0_u32..).zip(&turn.calls).filter(|(_, call)| waits(call));
    let find = |(ix, call): (u32, &Call)| FoundCall {
        call: CallId { turn: turn.no, ix },
        kind: kind(&call.tool, &call.args),
        access: access(&call.tool),
        ask: asks(state, &call.tool),
    };
    calls.map(find).collect()
}
