//! A run cancels one run that it owns, and itself continues. The owner records the request, and an outbox row carries it to
//! the child.

use super::draft::Draft;
use crate::call::{CallEnd, CallKind, ToolErrorKind};
use crate::dialect::id_for_model;
use crate::effect::{Effect, Rejection};
use crate::ids::{CallId, SessionId};
use crate::index::{self, RowKey};
use crate::outcome::{Initiator, Outcome};
use crate::place::Owner;
use crate::record::{Hold, Record};
use crate::render;

/// Ends the run in flight if the call `key` of `owner` opened it. The row of the cancel exists until the owner takes the
/// notice of the cancelled run, so it may arrive again during a later run that another call of the owner opened.
pub(super) fn on_owner_cancels(
    draft: &mut Draft<'_>,
    owner: SessionId,
    key: CallId,
    by: Initiator,
) -> Result<(), Rejection> {
    let opened =
        |owner_of: &Owner| matches!(owner_of, Owner::Run { session, call, .. } if *session == owner && *call == key);
    let Some(run) = draft.run().filter(|run| opened(&run.opened.owner)) else {
        return Err(Rejection::Stale("the cancel of an owned run"));
    };
    if !matches!(run.hold, Some(Hold::Closing { .. })) {
        draft.end(Outcome::Cancelled { by });
    }
    Ok(())
}

/// Decides a call that requests the cancel. Refuses it unless the calling run owns the run in flight of `child`.
pub(super) fn ask(draft: &mut Draft<'_>, call: CallId, child: SessionId) {
    let kind = CallKind::Cancel { child };
    let Some(known) = draft.state.children.get(&child) else {
        let text = format!("Unknown task {child}: use the id that you were given.");
        return draft.refuse(call, kind, ToolErrorKind::NotFound, text.into());
    };
    let (dialect, name) = (known.dialect, id_for_model(known.dialect, child, &known.short));
    let owned = draft.run().zip(known.key);
    let Some((run, key, is_requested)) =
        owned.and_then(|(run, key)| run.owned.get(&key).map(|owned| (run.no, key, owned.cancel_asked)))
    else {
        let text = format!("Not cancelled: task {name} has no active run that you started.");
        return draft.refuse(call, kind, ToolErrorKind::Refused, text.into());
    };
    if draft.state.arrived.contains(child, RowKey::Call(key)) {
        let text = match dialect.fetch_tool() {
            Some(tool) => format!("Not cancelled: task {name} has ended already; read its result with `{tool}`."),
            None => format!("Not cancelled: task {name} has ended already; its result follows."),
        };
        return draft.refuse(call, kind, ToolErrorKind::Refused, text.into());
    }
    draft.emit(Record::CallStarted { call, kind: Box::new(kind), timeout_ms: None, access: None });
    if !is_requested {
        draft.emit(Record::CancelAsked { call: Some(call), child, key });
        draft.effect(Effect::CancelChild { run, child, key, by: index::cancel_by(Some(call)) });
    }
    draft.finish_call(call, CallEnd::Ok, render::cancel_result(dialect, &name));
}
