//! Budgets of root runs: the reservation of a model call, and its settlement.
//! The session decides how many tokens to reserve (`TurnStarted.reserved`), and the model's price converts them to
//! money. The reservation is made after the backoff and the intent record, and before the wait for a provider's permit.
//! So a call that waits for its budget does not block other trees. The reported cost settles the reservation. A dropped
//! call counts in full, unless it never started.

use std::sync::Arc;

use subtend_journal::ReadError;
use subtend_models::model::{Answer, ModelError};
use subtend_models::models::Models;
use subtend_session::ids::{RunKey, Text};
use subtend_session::outcome::Budget;
use subtend_session::record::Reserved;
use subtend_supervision::{Currency, Spend};

use crate::calls::model_call::{CallProgress, Called, ModelOutcome};
use crate::calls::model_calls::ModelCalls;
use crate::calls::reservation::{Claim, ReservationGuard};

mod recount;

impl ModelCalls {
    /// Returns the maximum cost of `reserved` with the called model, at its own price or else at the highest of all
    /// prices. An in-process model without a price costs nothing.
    pub(crate) fn cost_at_most(&self, called: &Called, reserved: &Reserved) -> Option<u64> {
        let member = called.member();
        if let Some(price) = self.prices.of_model(&member.name, &*member.model) {
            return Some(price.max_cost(reserved));
        }
        if member.model.leaves_process() { self.prices.highest_cost(reserved) } else { Some(0) }
    }

    /// Returns the same claim with the amount for another model; `None` if money is limited and no price is known.
    pub(crate) fn claim_for_model(&self, claim: Claim, called: &Called) -> Option<Claim> {
        let cost_micro = match claim.limit.cost_micro {
            Some(_) => self.cost_at_most(called, &claim.reserved)?,
            None => 0,
        };
        Some(Claim { want: Spend { cost_micro, ..claim.want }, ..claim })
    }

    /// Returns the first model behind `name`, a model or a pool, whose calls may cost something but have no price.
    pub(crate) fn unpriced_model_of(&self, models: &Models, name: &Text) -> Option<Text> {
        self.prices.unpriced_model(models, name)
    }

    /// Opens the accounts of a resumed root run, with its usage in the previous process.
    /// Not needed after the crash of an activation, whose accounts remain open with its dropped reservations charged.
    pub(crate) fn restore_accounts(&self, models: &Models, run: RunKey) -> Result<(), ReadError> {
        let used = self.recount(models, run)?;
        self.ledger.restore(run, used.spawns);
        self.budgets.restore(run, used.spend);
        Ok(())
    }

    /// Reserves the call's claim, cancel safe. Waits a bounded time while other calls of its tree hold what it needs.
    /// `costs` is false for an in-process model, whose calls cost nothing.
    pub(crate) async fn reserve(
        &self,
        claim: Option<Claim>,
        progress: &Arc<CallProgress>,
        costs: bool,
    ) -> Result<Option<ReservationGuard>, Budget> {
        let Some(Claim { root, want, limit, reserved: _ }) = claim else { return Ok(None) };
        let reserved = self.budgets.reserve(root, want, limit).await.map_err(|which| match which {
            Currency::Tokens => Budget::Tokens,
            Currency::Money => Budget::Money,
        })?;
        Ok(Some(ReservationGuard { reservation: Some(reserved), progress: Arc::clone(progress), costs }))
    }

    /// Adds the cost if the call does not report it and the model has a price. A partial cost makes usage unreliable.
    pub(crate) fn price(&self, called: &Called, outcome: &mut ModelOutcome) {
        let usage = match outcome {
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
            // An in-process model costs nothing.
            None => usage.cost_micro = Some(0),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "fault-points")]
mod tests;
