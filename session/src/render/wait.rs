//! Results of `await` and `check` calls that take no new end of a run.

use std::sync::Arc;

use crate::call::{CallKind, CallResult};
use crate::dialect::{Dialect, jobs};
use crate::ids::{CallId, RunKey, Text};
use crate::index::RowKey;
use crate::record::Notice;
use crate::render::{spawn, spawn_task};
use crate::state::{Owned, State};

/// Returns the result of an `await` or `check` without a new end: ends delivered before, and runs in flight.
pub(crate) fn wait_result(state: &State, call: CallId, kind: &CallKind, now_ms: i64) -> CallResult {
    if let Some(open) = state.call(call).filter(|open| *open.tool == *jobs::AWAIT) {
        return CallResult::ok(spawn::jobs(state, &open.args, &[]));
    }
    if let CallKind::Check { run, .. } = kind
        && let Some(child) = state.children.get(&run.session).filter(|child| child.dialect == Dialect::SpawnTask)
    {
        return match &child.given {
            Some(given) if state.awaited_key(run).is_none() => {
                match (child.dropped_text(), state.recalled.get(&run.session)) {
                    (Some(given), Some(text)) => {
                        let whole = Notice { prefix: Arc::clone(text), ..given.clone() };
                        spawn_task::end_result(&whole, child, &state.limits)
                    }
                    (Some(_) | None, _) => spawn_task::end_result(given, child, &state.limits),
                }
            }
            None if state.awaited_key(run).is_none() => CallResult::ok(spawn_task::detached_status(run.session)),
            Some(_) | None => {
                let queued = state.queued_children.contains(&run.session);
                CallResult::ok(spawn_task::unfinished_status(run.session, queued, now_ms))
            }
        };
    }
    CallResult::ok(status(state, kind))
}

fn status(state: &State, kind: &CallKind) -> Text {
    let named = match kind {
        CallKind::Await { all: true, .. } => {
            let owned = state.run.iter().flat_map(|run| run.owned.values());
            owned.map(|owned: &Owned| state.owned_run(owned.child)).collect()
        }
        CallKind::Await { all: false, runs } => runs.clone(),
        CallKind::Check { run, .. } => vec![*run],
        CallKind::Local(_)
        | CallKind::Child(_)
        | CallKind::Continue(_)
        | CallKind::Cancel { .. }
        | CallKind::Return
        | CallKind::Propose(_)
        | CallKind::Invalid(_) => Vec::new(),
    };
    if named.is_empty() {
        return "You have no running tasks.".into();
    }
    let line = |run: &RunKey| match state.children.get(&run.session) {
        None => format!("[{}] not found\n", run.session),
        Some(child) if has_ended(state, run) => format!("[{}] ended; its result was given before\n", child.short),
        Some(child) if state.queued_children.contains(&run.session) => {
            format!("[{}] queued: waiting for a slot\n", child.short)
        }
        Some(child) => format!("[{}] still running\n", child.short),
    };
    named.iter().map(line).collect::<String>().into()
}

/// Returns whether the run is no longer owned, or its end has arrived. Ignores later runs of the child.
pub(crate) fn has_ended(state: &State, awaited: &RunKey) -> bool {
    let key = state.awaited_key(awaited);
    key.is_none_or(|key| state.arrived.contains(awaited.session, RowKey::Call(key)))
}
