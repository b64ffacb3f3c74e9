//! Births, prompts and calls of the model: as small as they can be.

use std::sync::Arc;

use subtend_session::authority::Authority;
use subtend_session::birth;
use subtend_session::call::{CallKind, ToolEffect, ToolErrorKind};
use subtend_session::command::{AskedCall, ChildPlan, Refusal, SpawnVerdict};
use subtend_session::effect::Birth;
use subtend_session::ids::{CallId, Hash, InputId, Interned, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::place::{Mode, OnRestart, Owner, Place};
use subtend_session::record::{Asked, From, InputAccepted, Lane, Record, SessionCreated, SpawnGranted};
use subtend_session::sabotage::Sabotage;
use subtend_session::state::{FoldError, State};
use uuid::Uuid;

use super::Whole;
use crate::fault::Fault;

/// The one root.
pub(super) const ROOT: SessionId = SessionId(Uuid::from_u128(1));

/// The child that `call` of `parent` makes: its id tells where it came from.
pub(super) fn child_of(parent: SessionId, call: CallId) -> SessionId {
    let place = u128::from(call.turn.0) << 4 | u128::from(call.ix.saturating_add(1));
    SessionId(Uuid::from_u128(parent.0.as_u128() << 8 | place))
}

fn limits(whole: &Whole) -> Limits {
    Limits {
        max_depth: u32::from(whole.size.depth),
        live_runs: u32::from(whole.size.slots),
        turns: u32::from(whole.size.turns),
        attempts: 2,
        wall_ms: None,
        ..Limits::default()
    }
}

/// A body named by its hash; one that cannot be named has the hash of nothing.
fn interned<T: serde::Serialize + ?Sized>(body: Arc<T>) -> Interned<T> {
    Interned::new(Arc::clone(&body)).unwrap_or(Interned { hash: Hash::of(b""), body: Some(body) })
}

fn created(whole: &Whole, place: Place, session: SessionId) -> SessionCreated {
    SessionCreated {
        place,
        short: session.short(),
        agent: "general".into(),
        agent_hash: Hash::of(b"general"),
        model: "model".into(),
        system: interned(Arc::from("work")),
        ceiling: interned(Arc::new(Authority::allow_all())),
        limits: interned(Arc::new(limits(whole))),
        workspace: "/w".into(),
        inspectable: true,
        caller_line: false,
        dialects: Vec::new(),
        tools: None,
        on_restart: OnRestart::Fail,
        title: None,
        metadata: None,
    }
}

/// The birth of the root.
pub(super) fn root(whole: &Whole) -> Birth {
    birth::root(ROOT, created(whole, Place::Root, ROOT))
}

/// A person's input, the `n`th that is left.
pub(super) fn input(n: u8) -> InputAccepted {
    InputAccepted {
        id: InputId(Uuid::from_u128(u128::from(n) << 64)),
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

/// What the registry and the ledger say of one child call.
pub(super) fn verdict(whole: &Whole, state: &State, call: CallId, left: u8) -> SpawnVerdict {
    let refuse = |message: &str| Err(Refusal { kind: ToolErrorKind::Limit, message: message.into() });
    let asked = state.call(call);
    let verdict = match asked.map(|asked| mode(&asked.args)) {
        Some(mode) if left > 0 => Ok(Box::new(plan(whole, state, call, mode, left))),
        Some(_) => refuse("no spawn is left"),
        None => refuse("the call is not there any more"),
    };
    SpawnVerdict { call, verdict }
}

fn plan(whole: &Whole, state: &State, call: CallId, mode: Mode, left: u8) -> ChildPlan {
    let child = child_of(state.id, call);
    ChildPlan {
        child,
        input: InputId(child.0),
        prompt: "do".into(),
        created: created(whole, Place::Root, child),
        manifest: Arc::new(Authority::allow_all()),
        mode,
        max_turns: u32::from(whole.size.child_turns),
        deadline_ms: Some(480_000),
        on_restart: OnRestart::Fail,
        grant: SpawnGranted { spawns_left: u32::from(left).saturating_sub(1) },
    }
}

fn mode(args: &str) -> Mode {
    if args == "blocking" { Mode::Blocking } else { Mode::Background }
}

/// What a call is, from what the model wrote: the same in every activation.
pub(super) fn kind(tool: &str, args: &str) -> CallKind {
    if tool == "task" { CallKind::Child(mode(args)) } else { CallKind::Local(ToolEffect::ReadOnly) }
}

/// A call as a model would ask for it.
pub(super) fn asked(tool: &str, args: &str) -> AskedCall {
    let text = |text: &str| -> Text { text.into() };
    AskedCall {
        asked: Asked { provider_id: text(""), tool: text(tool), args: text(args) },
        kind: kind(tool, args),
        note: None,
    }
}

/// A session as its journal tells it, with the rules switched off that the seeded bug switches off.
pub(super) fn fold(whole: &Whole, session: SessionId, records: &[Record]) -> Result<State, FoldError> {
    let mut state = State::fold(session, records)?;
    state.sabotage = sabotage(whole.fault);
    Ok(state)
}

fn sabotage(fault: Fault) -> Sabotage {
    match fault {
        Fault::Heart(bug) => Sabotage::none().with(bug),
        Fault::None | Fault::World(_) => Sabotage::none(),
    }
}
