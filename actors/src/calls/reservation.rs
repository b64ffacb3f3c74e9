use std::sync::Arc;

use subtend_session::ids::{AttemptNo, RunKey, TurnNo};
use subtend_session::limits::Limits;
use subtend_session::outcome::ModelFail;
use subtend_session::record::Reserved;
use subtend_session::usage::Usage;
use subtend_supervision::{Reservation, Spend, SpendLimit};

use super::model_call::{CallProgress, ModelOutcome};

#[derive(Clone, Copy, Debug)]
pub(crate) struct DueReservation {
    pub(crate) turn: TurnNo,
    pub(crate) attempt: AttemptNo,
    pub(crate) reserved: Reserved,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) root: RunKey,
    pub(crate) reserved: Reserved,
    pub(crate) want: Spend,
    pub(crate) limit: SpendLimit,
}

/// Holds the reservation of a call. On drop the reservation counts in full, unless the call never started or costs nothing.
pub(crate) struct ReservationGuard {
    pub(crate) reservation: Option<Reservation<RunKey>>,
    pub(crate) progress: Arc<CallProgress>,
    pub(crate) costs: bool,
}

impl ReservationGuard {
    /// Settles the call with its reported cost as far as known. `is_reported`: its tokens are known, even unpriced.
    /// The unknown part is written into the usage, so that a recount also counts it in full.
    pub(crate) fn settle(mut self, outcome: &mut ModelOutcome, is_reported: bool) {
        let Some(reservation) = self.reservation.take() else { return };
        let want = reservation.reserved();
        match outcome {
            ModelOutcome::Answer(answer) => {
                let silent = self.costs && answer.usage.tokens() == 0;
                answer.usage.unreliable |= silent;
                reservation.settle(spend(&answer.usage, want, is_reported && !silent));
            }
            ModelOutcome::Error(error) => match failure(error.kind, error.usage) {
                // A rejected call without a report costs nothing.
                Some(usage) => reservation.settle(spend(&usage, want, is_reported || error.usage.is_none())),
                None if self.costs => {
                    error.usage = Some(Usage::UNKNOWN);
                    reservation.settle_unknown();
                }
                None => reservation.give_back(),
            },
            ModelOutcome::Panic(_) if self.costs => reservation.settle_unknown(),
            ModelOutcome::Panic(_) => reservation.give_back(),
        }
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        if self.costs && self.progress.has_begun() {
            reservation.settle_unknown();
        } else {
            reservation.give_back();
        }
    }
}

pub(crate) fn is_usage_reported(outcome: &ModelOutcome) -> bool {
    match outcome {
        ModelOutcome::Answer(answer) => !answer.usage.unreliable,
        ModelOutcome::Error(error) => error.usage.is_some_and(|usage| !usage.unreliable),
        ModelOutcome::Panic(_) => false,
    }
}

/// Returns what a failed attempt cost, if known: a rejected call costs nothing, even without a report.
pub(crate) fn failure(kind: ModelFail, usage: Option<Usage>) -> Option<Usage> {
    if usage.is_some() {
        return usage;
    }
    match kind {
        ModelFail::Auth
        | ModelFail::Credit
        | ModelFail::Access
        | ModelFail::Rate
        | ModelFail::ContextOverflow
        | ModelFail::InvalidRequest
        // A local error: the call never started, or its usage is marked as unknown.
        | ModelFail::Dropped => Some(Usage::default()),
        ModelFail::Unavailable | ModelFail::BadAnswer => None,
    }
}

/// Returns the cost of a call with the reported `usage`. An unknown part counts at least as its reservation.
pub(crate) fn spend(usage: &Usage, want: Spend, is_reported: bool) -> Spend {
    let nothing = is_reported && usage.tokens() == 0;
    let cost_micro = usage.cost_micro.unwrap_or(if nothing { 0 } else { want.cost_micro });
    Spend {
        tokens: if is_reported { usage.tokens() } else { usage.tokens().max(want.tokens) },
        cost_micro: if usage.unreliable { cost_micro.max(want.cost_micro) } else { cost_micro },
    }
}

pub(crate) fn tokens_of(reserved: &Reserved) -> u64 {
    reserved.input.saturating_add(reserved.output)
}

pub(crate) fn limit_of(limits: &Limits) -> SpendLimit {
    SpendLimit { tokens: limits.tokens, cost_micro: limits.cost_micro }
}
