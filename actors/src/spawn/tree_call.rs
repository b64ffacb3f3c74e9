//! Calls about existing runs: checks, cancels, awaits and returns.

use subtend_session::call::CallKind;
use subtend_session::dialect::Dialect;
use subtend_session::dialect::jobs::Jobs;
use subtend_session::ids::{RunKey, RunNo, SessionId, Text};
use subtend_tools::background;
use subtend_tools::dialect::{manage, minion, spawn};
use subtend_tools::plan_exit;
use uuid::Uuid;

use crate::calls::in_flight::Parsed;
use crate::spawn::proposing::proposal;
use crate::spawn::tool_set::ToolSet;

/// Parses a call about existing runs, before the session resolves its tasks. `manage` says whether `task` comes with check and cancel.
pub(crate) fn read(
    offer: &ToolSet,
    manage: bool,
    tool: &str,
    args: &str,
) -> Option<Result<(CallKind, Option<Parsed>), Text>> {
    let unknown = SessionId(Uuid::nil());
    let manages = (manage && offer.opens.has(Dialect::Task)) || offer.opens.has(Dialect::SpawnTask);
    let kind = match tool {
        manage::CHECK if manages => manage::parse_check(args).map(|check| {
            let run = RunKey { session: unknown, run: RunNo(0) };
            (CallKind::Check { run, wait: check.wait }, Some(Parsed::Check(check)))
        }),
        manage::CANCEL if manages => {
            manage::parse_cancel(args).map(|task| (CallKind::Cancel { child: unknown }, Some(Parsed::Cancel(task))))
        }
        spawn::AWAIT if offer.opens.has(Dialect::Spawn) => spawn::parse_await(args).map(|jobs| {
            let kind = CallKind::Await { all: jobs == Jobs::All, runs: Vec::new() };
            (kind, Some(Parsed::Await(jobs)))
        }),
        background::PROCESS => {
            let named =
                background::stopped_process(args).filter(|_| offer.specs.iter().any(|spec| *spec.name == *tool))?;
            Ok((CallKind::Cancel { child: unknown }, Some(Parsed::Stop(named.into()))))
        }
        plan_exit::NAME => return proposal(offer, args),
        minion::RETURN if offer.returns => minion::check_return(args).map(|()| (CallKind::Return, None)),
        _ => return None,
    };
    Some(kind.map_err(|error| error.message.into()))
}
