//! Budgets of root runs: what a model call reserves of them, and what it is settled with.
//!
//! The session decides that something is to be reserved, and how many tokens (`TurnStarted.reserved`); the price of the model
//! makes money of them. The reservation is made after the backoff and the intent record, and before the call waits for a
//! place under its provider's quotas: a call that waits for its budget holds up nobody of another tree. It is settled by
//! what the call says that it cost. One that is dropped counts in full, unless the call never began.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use subtend_journal::ReadError;
use subtend_models::model::{Answer, ModelError};
use subtend_models::models::Models;
use subtend_session::ids::{RunKey, Text};
use subtend_session::outcome::Budget;
use subtend_session::record::Reserved;
use subtend_supervision::{Currency, Spend};

use crate::calls::model_call::{Called, ModelOutcome};
use crate::calls::model_calls::ModelCalls;
use crate::calls::reservation::{Claim, SetAside};

mod recount;

impl ModelCalls {
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
    pub(crate) fn lacks_price(&self, models: &Models, name: &Text) -> Option<Text> {
        self.prices.lacking(models, name)
    }

    /// Opens the accounts of a root run that goes on in another process, with what it used in the one before.
    ///
    /// An activation after a crash in this process finds them as they are: a reservation that its turn dropped was counted
    /// when it was dropped. A run that was queued when the host died has used nothing.
    pub(crate) fn restore_accounts(&self, models: &Models, run: RunKey) -> Result<(), ReadError> {
        let used = self.recount(models, run)?;
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
    pub(crate) fn price(&self, called: &Called, came: &mut ModelOutcome) {
        let usage = match came {
            ModelOutcome::Answer(Answer { usage, .. }) | ModelOutcome::Error(ModelError { usage: Some(usage), .. }) => {
                usage
            }
            ModelOutcome::Error(_) | ModelOutcome::Panic(_) => return,
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

#[cfg(test)]
#[cfg(feature = "fault-points")]
mod tests;
