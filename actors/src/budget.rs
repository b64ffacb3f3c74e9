//! Budgets of root runs: what a model call reserves of them, and what it is settled with.
//!
//! The session decides that something is to be reserved, and how many tokens (`TurnStarted.reserved`); the price of the model
//! makes money of them. The reservation is made after the backoff and the intent record, and before the call waits for a
//! place under its provider's quotas: a call that waits for its budget holds up nobody of another tree. It is settled by
//! what the call says that it cost. One that is dropped counts in full, unless the call never began.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use subtend_journal::ReadError;
use subtend_models::model::{Answer, ModelError};
use subtend_session::ids::{AttemptNo, RunKey, Text, TurnNo};
use subtend_session::limits::Limits;
use subtend_session::outcome::{Budget, ModelFail};
use subtend_session::record::Reserved;
use subtend_session::usage::Usage;
use subtend_supervision::{Currency, Reservation, Spend, SpendLimit};

use crate::calling::Called;
use crate::driver::Driver;
use crate::hub::Hub;
use crate::turn::Came;

mod recount;

/// What is to be reserved for the attempt that is about to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) turn: TurnNo,
    pub(crate) attempt: AttemptNo,
    pub(crate) reserved: Reserved,
}

/// What a call asks of its root run's budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    root: RunKey,
    /// What the session recorded.
    pub(crate) reserved: Reserved,
    want: Spend,
    limit: SpendLimit,
}

/// What is set aside for a call. Dropped it counts in full, unless the call never began or costs nothing.
pub(crate) struct SetAside {
    reservation: Option<Reservation<RunKey>>,
    begun: Arc<AtomicBool>,
    costs: bool,
}

impl Driver {
    /// What the attempt must reserve before its model is called: nothing in a tree without a budget.
    ///
    /// # Errors
    /// When money is limited and nothing is known of what the model costs: what cannot be bounded is not called.
    pub(crate) fn claim(&self, called: &Called, at: (TurnNo, AttemptNo)) -> Result<Option<Claim>, Budget> {
        let Some(due) = self.reserved.filter(|due| (due.turn, due.attempt) == at) else { return Ok(None) };
        let limit = limit_of(&self.state.limits);
        let Some(key) = self.run_key().filter(|_| !limit.is_none()) else { return Ok(None) };
        let cost_micro = match limit.cost_micro {
            Some(_) => self.hub.cost_at_most(called, &due.reserved).ok_or(Budget::Money)?,
            None => 0,
        };
        let want = Spend { tokens: tokens_of(&due.reserved), cost_micro };
        let root = self.hub.tokens.root(&key).unwrap_or(key);
        // While the run is in flight, and its root run with it: no account is opened that nobody closes.
        self.hub.budgets.open(root);
        Ok(Some(Claim { root, reserved: due.reserved, want, limit }))
    }
}

impl Hub {
    /// What `reserved` costs at most with the model that is called: by its own price, or the dearest of all. A model without
    /// a price that stays in the process costs nothing.
    pub(crate) fn cost_at_most(&self, called: &Called, reserved: &Reserved) -> Option<u64> {
        let member = called.member();
        if let Some(price) = self.prices.of_model(&member.name, &*member.model) {
            return Some(price.most(reserved));
        }
        if member.model.leaves_process() { self.prices.dearest(reserved) } else { Some(0) }
    }

    /// The claim for the same call of another model; `None` where money is counted and that model has no price.
    pub(crate) fn priced_anew(&self, claim: Claim, called: &Called) -> Option<Claim> {
        let cost_micro = match claim.limit.cost_micro {
            Some(_) => self.cost_at_most(called, &claim.reserved)?,
            None => 0,
        };
        Some(Claim { want: Spend { cost_micro, ..claim.want }, ..claim })
    }

    /// A model that sessions call `name` and whose calls have no price, though they may cost something.
    pub(crate) fn lacks_price(&self, name: &Text) -> Option<Text> {
        self.prices.lacking(&self.models, name)
    }

    /// Opens the accounts of a root run that goes on in another process, with what it used in the one before.
    ///
    /// An activation after a crash in this process finds them as they are: a reservation that its turn dropped was counted
    /// when it was dropped. A run that was queued when the host died has used nothing.
    pub(crate) fn restore_accounts(&self, run: RunKey) -> Result<(), ReadError> {
        if self.tokens.root(&run) != Some(run) {
            return Ok(());
        }
        let used = self.recount(run)?;
        self.ledger.restore(run, used.spawns);
        self.budgets.restore(run, used.spend);
        Ok(())
    }

    /// Sets aside what the call claims; waits, within the patience of budgets, while others of its tree have set aside what
    /// it needs.
    ///
    /// # Errors
    /// The budget that does not hold it any more.
    ///
    /// # Cancel safety
    /// Dropping the future sets nothing aside.
    pub(crate) async fn set_aside(
        &self,
        claim: Option<Claim>,
        begun: &Arc<AtomicBool>,
        costs: bool,
    ) -> Result<Option<SetAside>, Budget> {
        let Some(Claim { root, want, limit, reserved: _ }) = claim else { return Ok(None) };
        let reserved = self.budgets.reserve(root, want, limit).await.map_err(|which| match which {
            Currency::Tokens => Budget::Tokens,
            Currency::Money => Budget::Money,
        })?;
        Ok(Some(SetAside { reservation: Some(reserved), begun: Arc::clone(begun), costs }))
    }

    /// Fills in what the call cost in money, where it does not say so itself and there is a price for it. A cost that is not
    /// known, or not of all its parts, makes the usage unreliable.
    pub(crate) fn price(&self, called: &Called, came: &mut Came) {
        let usage = match came {
            Came::Answer(Answer { usage, .. }) | Came::Error(ModelError { usage: Some(usage), .. }) => usage,
            Came::Error(_) | Came::Panic(_) => return,
        };
        let member = called.member();
        if self.prices.is_empty() || usage.cost_micro.is_some() || usage.tokens() == 0 {
            return;
        }
        match self.prices.of_model(&member.name, &*member.model) {
            Some(price) => {
                let (micro, known) = price.cost(usage);
                usage.cost_micro = Some(micro);
                usage.unreliable |= !known;
            }
            None if member.model.leaves_process() => usage.unreliable = true,
            // A model in this process costs nothing, and that is known.
            None => usage.cost_micro = Some(0),
        }
    }
}

impl SetAside {
    /// The call came to this: that counts instead of what was set aside, as far as it is known. `told` says whether its tokens
    /// are: prices may be missing where those are known.
    ///
    /// What is not known is written into the usage, so that a recount from the records counts it in full too.
    pub(crate) fn settle(mut self, came: &mut Came, told: bool) {
        let Some(reservation) = self.reservation.take() else { return };
        let want = reservation.reserved();
        match came {
            Came::Answer(answer) => {
                let silent = self.costs && answer.usage.tokens() == 0;
                answer.usage.unreliable |= silent;
                reservation.settle(spend(&answer.usage, want, told && !silent));
            }
            Came::Error(error) => match failure(error.kind, error.usage) {
                // One that was turned away and says nothing is known to have cost nothing.
                Some(usage) => reservation.settle(spend(&usage, want, told || error.usage.is_none())),
                None if self.costs => {
                    error.usage = Some(Usage::UNKNOWN);
                    reservation.settle_unknown();
                }
                None => reservation.give_back(),
            },
            Came::Panic(_) if self.costs => reservation.settle_unknown(),
            Came::Panic(_) => reservation.give_back(),
        }
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        if self.costs && self.begun.load(Ordering::Relaxed) {
            reservation.settle_unknown();
        } else {
            reservation.give_back();
        }
    }
}

/// Whether the tokens of what came are known.
pub(crate) fn is_told(came: &Came) -> bool {
    match came {
        Came::Answer(answer) => !answer.usage.unreliable,
        Came::Error(error) => error.usage.is_some_and(|usage| !usage.unreliable),
        Came::Panic(_) => false,
    }
}

/// What a failed attempt cost, if that is known: one that the provider turned away cost nothing, also if it does not say so.
fn failure(kind: ModelFail, usage: Option<Usage>) -> Option<Usage> {
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
        // Of ours: it never began, else it would have said that it does not know.
        | ModelFail::Dropped => Some(Usage::default()),
        ModelFail::Unavailable | ModelFail::BadAnswer => None,
    }
}

/// What counts for a call that says it cost `usage`: of what it does not know at least what was set aside.
fn spend(usage: &Usage, want: Spend, told: bool) -> Spend {
    let nothing = told && usage.tokens() == 0;
    let cost_micro = usage.cost_micro.unwrap_or(if nothing { 0 } else { want.cost_micro });
    Spend {
        tokens: if told { usage.tokens() } else { usage.tokens().max(want.tokens) },
        cost_micro: if usage.unreliable { cost_micro.max(want.cost_micro) } else { cost_micro },
    }
}

fn tokens_of(reserved: &Reserved) -> u64 {
    reserved.input.saturating_add(reserved.output)
}

/// What a root run with these limits may spend.
pub(crate) fn limit_of(limits: &Limits) -> SpendLimit {
    SpendLimit { tokens: limits.tokens, cost_micro: limits.cost_micro }
}

#[cfg(test)]
#[cfg(feature = "fault-points")]
mod tests;
