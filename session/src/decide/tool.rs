//! A local tool finished.

use super::draft::Draft;
use crate::call::{CallEnd, CallKind, CallResult};
use crate::command::Deadline;
use crate::effect::Rejection;
use crate::ids::CallId;
use crate::record::{CallFinished, Record};
use crate::render;
use crate::sabotage::Bug;
use crate::state::{CallPhase, Phase};

pub(super) fn finished(
    draft: &mut Draft<'_>,
    call: CallId,
    result: CallResult,
    worked_ms: u64,
) -> Result<(), Rejection> {
    let careless = draft.bug(Bug::StaleAccepted) && draft.state.call(call).is_some();
    if !runs(draft, call) && !careless {
        return Err(Rejection::Stale("a tool's result"));
    }
    let interrupted = matches!(draft.state.phase(), Phase::HeldInterrupted | Phase::HeldOutOfTurns);
    let end = if interrupted { CallEnd::Interrupted } else { result.end };
    let len = result.content.len() as u64;
    let content = render::cut(&result.content, draft.state.limits.tool_result_bytes);
    let truncated_from = result.truncated_from.or((content.len() as u64 != len).then_some(len));
    let finished = CallFinished { call, end, content, truncated_from, worked_ms };
    draft.emit(Record::CallFinished(Box::new(finished)));
    draft.disarm(Deadline::Call(call));
    let last = draft.run().is_some_and(|run| !run.has_local_work());
    if !(last && draft.bug(Bug::NoCheckAfterLast)) {
        draft.check();
    }
    Ok(())
}

/// Whether `call` is a started local call without a result.
pub(super) fn runs(draft: &Draft<'_>, call: CallId) -> bool {
    let local = |kind: &CallKind| kind.is_local();
    draft.state.call(call).is_some_and(|call| call.phase == CallPhase::Started && call.kind.as_ref().is_some_and(local))
}
