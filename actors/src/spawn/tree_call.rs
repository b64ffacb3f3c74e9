//! Calls about runs that were opened before: checks, cancels, awaits and returns.

use subtend_session::call::CallKind;
use subtend_session::dialect::Dialect;
use subtend_session::dialect::jobs::Jobs;
use subtend_session::ids::{RunKey, RunNo, SessionId, Text};
use subtend_tools::dialect::{manage, minion, spawn};
use subtend_tools::plan_exit;
use uuid::Uuid;

use crate::spawn::offer::Offer;
use crate::spawn::proposing::proposal;

/// Returns the kind of a call about runs that were opened, before the session says which of them are meant.
pub(crate) fn kind_of(offer: &Offer, tool: &str, args: &str) -> Option<Result<CallKind, Text>> {
    let nobody = SessionId(Uuid::nil());
    let manages = offer.opens.has(Dialect::Task) || offer.opens.has(Dialect::SpawnTask);
    let kind = match tool {
        manage::CHECK if manages => manage::parse_check(args)
            .map(|check| CallKind::Check { run: RunKey { session: nobody, run: RunNo(0) }, wait: check.wait }),
        manage::CANCEL if manages => manage::parse_cancel(args).map(|_| CallKind::Cancel { child: nobody }),
        spawn::AWAIT if offer.opens.has(Dialect::Spawn) => {
            spawn::parse_await(args).map(|jobs| CallKind::Await { all: jobs == Jobs::All, runs: Vec::new() })
        }
        plan_exit::NAME => return proposal(offer, args),
        minion::RETURN if offer.returns => minion::check_return(args).map(|()| CallKind::Return),
        _ => return None,
    };
    Some(kind.map_err(|error| error.message.into()))
}
