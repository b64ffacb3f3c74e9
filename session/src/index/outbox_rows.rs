//! Outbox rows, built from the record that causes them, so that live delivery and the start of the host build the same.

use super::RowKey;
use crate::command::Continue;
use crate::ids::{CallId, Hash, InputId, RunKey, RunNo, SessionId};
use crate::outcome::{FailKind, Initiator, Outcome, OutcomeKind};
use crate::place::{Owner, Place};
use crate::record::{ContinueAsked, ContinueRefusal, Notice, RunEnded, RunOpened};
use crate::usage::Usage;

/// Returns the notice for `ended` and its receiver, if any. `opened` is the record that opened the run. Needs no state,
/// so that the start of the host can deliver from records alone.
pub fn notice_from(
    child: SessionId,
    place: &Place,
    opened: &RunOpened,
    ended: &RunEnded,
) -> Option<(SessionId, Notice)> {
    let (to, key) = completion_row(place, &opened.owner, ended.run)?;
    let mut usage = ended.usage_self;
    usage.add(&ended.usage_owned);
    let (key, waking) = match key {
        RowKey::Call(call) => (Some(call), ended.outcome.wakes_owner()),
        RowKey::Run(_) => (None, false),
    };
    let notice = Notice {
        child,
        run: Some(ended.run),
        key,
        refused: None,
        outcome: ended.outcome.clone(),
        len: ended.len,
        hash: ended.hash,
        prefix: ended.text.clone().unwrap_or_default(),
        usage,
        turns: ended.turns,
        base_turns: opened.base_turns,
        waking,
        returned: ended.returned.is_some(),
    };
    Some((to, notice))
}

/// Returns the receiver of a run's end and its key: the owning session, else the parent.
pub(super) fn completion_row(place: &Place, owner: &Owner, run: RunNo) -> Option<(SessionId, RowKey)> {
    match owner {
        Owner::Run { session, call, .. } => Some((*session, RowKey::Call(*call))),
        Owner::Person | Owner::Detached { .. } => place.parent().map(|parent| (parent, RowKey::Run(run))),
        Owner::Host(_) => None,
    }
}

/// Returns the content of a `continue` row. `request` is the record in the journal of `session`, the owner. `opened` is the
/// record that opened the owner's run.
///
/// The caller sets `owner_ended` on delivery.
pub fn continue_from(session: SessionId, opened: &RunOpened, request: &ContinueAsked) -> Continue {
    Continue {
        owner: session,
        run: opened.run,
        key: request.call,
        input: continue_input(session, request.call),
        text: request.input.clone(),
        mode: request.mode,
        turns: request.turns,
        tools: request.tools.clone(),
        wall_cap_at: opened.wall_cap_at,
        owner_ended: None,
    }
}

/// Returns the input id of a `continue` row. It is the same on every delivery, so that the row takes effect once.
pub fn continue_input(owner: SessionId, key: CallId) -> InputId {
    let name = format!("continue {owner} {key}");
    InputId(uuid::Builder::from_custom_bytes(Hash::of(name.as_bytes()).0).into_uuid())
}

/// Returns the input id of the message that `call` sends: the same after a restart, so that it is accepted once.
pub fn message_input(sender: RunKey, call: CallId) -> InputId {
    let name = format!("message {} {} {call}", sender.session, sender.run);
    InputId(uuid::Builder::from_custom_bytes(Hash::of(name.as_bytes()).0).into_uuid())
}

/// Returns the notice of a refused continuation: `child` refused the request of the receiver's call `key`.
pub fn refusal_from(child: SessionId, key: CallId, why: ContinueRefusal) -> Notice {
    let outcome = Outcome::Failed { kind: FailKind::NotContinued { why } };
    without_run(child, key, outcome, Some(why))
}

fn without_run(child: SessionId, key: CallId, outcome: Outcome, refused: Option<ContinueRefusal>) -> Notice {
    Notice {
        child,
        run: None,
        key: Some(key),
        refused,
        waking: outcome.wakes_owner(),
        outcome,
        len: 0,
        hash: Hash::of(b""),
        prefix: Default::default(),
        usage: Usage::default(),
        turns: 0,
        base_turns: 0,
        returned: false,
    }
}

/// Returns the notice that an owner receives for an unreadable child, whose outcome is unknown.
pub fn unreadable_from(child: SessionId, key: CallId, why: &str) -> Notice {
    let outcome = Outcome::Failed { kind: FailKind::Unreadable { message: why.into() } };
    without_run(child, key, outcome, None)
}

/// Returns the cause of a `cancel` row: the model's call that its record names, or an interrupt if it names none.
pub fn cancel_by(call: Option<CallId>) -> Initiator {
    match call {
        Some(call) => Initiator::Model { call },
        None => Initiator::Owner { outcome: OutcomeKind::Interrupted },
    }
}
