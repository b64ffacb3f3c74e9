//! What an outbox row says, made from the record that obliges to it: told live and found by the boot scan, it says the same.

use super::RowKey;
use crate::command::Continue;
use crate::ids::{CallId, Hash, InputId, RunNo, SessionId};
use crate::outcome::{By, FailKind, Outcome, OutcomeKind};
use crate::place::{Owner, Place};
use crate::record::{ContinueAsked, ContinueRefusal, Notice, RunEnded, RunOpened};
use crate::usage::Usage;

/// The notice that `ended` obliges to, and to whom; `None` where nobody is to hear of it.
///
/// Needs no state of the child, so that the boot can tell of ends from their records alone: `opened` is the run's birth, `place`
/// that of the session's.
pub fn notice_from(
    child: SessionId,
    place: &Place,
    opened: &RunOpened,
    ended: &RunEnded,
) -> Option<(SessionId, Notice)> {
    let (to, key) = told(place, &opened.owner, ended.run)?;
    let mut usage = ended.usage_self;
    usage.add(&ended.usage_owned);
    let (key, waking) = match key {
        RowKey::Call(call) => (Some(call), ended.outcome.wakes()),
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

/// Who hears of the end of a run, under which key: its owning session, or the parent where a person or nobody owns it.
pub(super) fn told(place: &Place, owner: &Owner, run: RunNo) -> Option<(SessionId, RowKey)> {
    match owner {
        Owner::Run { session, call, .. } => Some((*session, RowKey::Call(*call))),
        Owner::Person | Owner::Detached { .. } => place.parent().map(|parent| (parent, RowKey::Run(run))),
        Owner::Host(_) => None,
    }
}

/// What a `continue` row asks for: `asked` is its record, in the journal of `session`, and `opened` the run that it is of.
///
/// Whether that run is over by now is for whoever delivers the row to say.
pub fn continue_from(session: SessionId, opened: &RunOpened, asked: &ContinueAsked) -> Continue {
    Continue {
        owner: session,
        run: opened.run,
        key: asked.call,
        input: continue_input(session, asked.call),
        text: asked.input.clone(),
        mode: asked.mode,
        turns: asked.turns,
        tools: asked.tools.clone(),
        wall_cap_at: opened.wall_cap_at,
        owner_over: None,
    }
}

/// The id of the input that a `continue` row of `owner` brings: the same however often it is delivered, so that it is carried
/// out once (rule 5).
pub fn continue_input(owner: SessionId, key: CallId) -> InputId {
    let name = format!("continue {owner} {key}");
    InputId(uuid::Builder::from_custom_bytes(Hash::of(name.as_bytes()).0).into_uuid())
}

/// The notice that a refusal to go on obliges to: `child` refused the row of a call, `key`, of its receiver.
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
        waking: outcome.wakes(),
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

/// The end that an owner is told of a child that cannot be read any more: nobody knows how it ended.
pub fn unreadable_from(child: SessionId, key: CallId, why: &str) -> Notice {
    let outcome = Outcome::Failed { kind: FailKind::Unreadable { message: why.into() } };
    without_run(child, key, outcome, None)
}

/// The cause that a `cancel` row names: its `CancelAsked` has the call of the model that asked; an interrupt has none.
pub fn cancel_by(call: Option<CallId>) -> By {
    match call {
        Some(call) => By::Model { call },
        None => By::Owner { outcome: OutcomeKind::Interrupted },
    }
}
