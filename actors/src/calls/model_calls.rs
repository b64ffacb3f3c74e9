//! Model calls of all sessions: permits, the choice of the model, and cost.

use std::sync::Arc;
use std::time::Duration;

use subtend_journal::Journal;
use subtend_models::estimate;
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_models::models::Models;
use subtend_models::throttle::{Permit, Throttles};
use subtend_session::ids::{Lsn, RunKey, SessionId, Text};
use subtend_session::outcome::{Budget, ModelFail};
use subtend_session::settings::Settings;
use subtend_supervision::{Budgets, Lease, Ledger};
use subtend_tools::background::AGENT;
use tokio_util::sync::CancellationToken;

use crate::calls::limits::ParkedRuns;
use crate::calls::model_call::{self, CallLimits, CallProgress, Called, Calling, LastDelta, ModelOutcome};
use crate::calls::prices::Prices;
use crate::calls::reservation::{Claim, is_usage_reported};
use crate::hooks::{Hooks, ModelChoice, catch_hook_panic};
use crate::values::address::Address;

/// The shared state of model calls of one runtime, independent of sessions.
pub(crate) struct ModelCalls {
    /// The rate limits of providers, over all sessions.
    pub(crate) throttles: Throttles,
    /// Wakes calls that wait for a permit, after a provider has sent a retry-after.
    pub(crate) cooled: tokio::sync::Notify,
    pub(crate) parked: ParkedRuns,
    pub(crate) prices: Prices,
    pub(crate) ledger: Ledger<RunKey>,
    pub(crate) budgets: Budgets<RunKey>,
    /// Waits for durable intents, and recounts accounts.
    pub(crate) journal: Journal,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    /// Fires when the grace of a shutdown ends.
    pub(crate) halt: CancellationToken,
    /// The store's lease: calls may start while it is held.
    pub(crate) lease: Lease,
}

pub(crate) struct Later {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) request: Request,
    pub(crate) deltas: Deltas,
    pub(crate) after_ms: u64,
    pub(crate) intent: Option<Lsn>,
    pub(crate) claim: Option<Claim>,
}

pub(crate) enum ModelCallStart {
    Now(Calling),
    Later(Box<Later>),
}

#[derive(Default)]
pub(crate) struct OtherModels {
    /// The next healthy model.
    pub(crate) next: Option<Text>,
    /// Models that wait for a reset, with the milliseconds until it.
    pub(crate) resets: Vec<(Text, u64)>,
}

impl ModelCalls {
    /// Applies a failure of `called` to later calls: pools skip it, and a retry-after applies to every session. Returns the other models of the pool
    /// that may continue this turn.
    pub(crate) fn on_model_failed(&self, of: SessionId, called: &Called, error: &ModelError) -> OtherModels {
        let asked_for = error.retry_after_ms.or_else(|| (error.kind == ModelFail::Rate).then_some(1_000));
        if let (Some(ms), Some(quota)) = (asked_for, called.member.model.quotas().first()) {
            self.throttles.pause(quota, ms);
            self.cooled.notify_waiters();
        }
        // The probe ends after the pause is set, so that no other run probes in between.
        self.parked.answered(of);
        // Pools skip the failed model even if the call named it directly.
        called.set.models.failed(&called.member.name, error.kind, error.retry_after_ms);
        if !called.pool {
            return OtherModels::default();
        }
        let (models, name, failed) = (&called.set.models, &called.requested_model, &called.member.name);
        let others = models.resets(name).into_iter().filter(|(member, _)| member.name != *failed);
        let resets = others.map(|(member, after_ms)| (member.name, after_ms)).collect();
        OtherModels { next: models.after(name, failed), resets }
    }

    /// Returns the model that a call of `name` would use and the ms until its limit resets; `None` if it accepts calls.
    pub(crate) fn reset_of(&self, models: &Models, name: &Text) -> Option<(Text, u64)> {
        let member = models.pick(name).member;
        let after_ms = self.throttles.paused_ms(&ParkedRuns::limit_of(&*member.model))?;
        Some((member.name, after_ms))
    }

    /// Lowers the cap of `request` to that of the called model. This happens at the call, since a hook may have chosen another model.
    pub(crate) fn cap(&self, called: &Called, request: &mut Request) {
        let member = called.member();
        let name = if called.is_fallback { member.model.name() } else { &*member.name };
        let of_model = Settings { output_tokens: called.set.caps.named(name), ..Settings::default() };
        request.settings = request.settings.under(&of_model);
    }

    /// Returns the model name to record for an answer: the member of the pool, or the name that the provider reported.
    pub(crate) fn on_model_answered(&self, of: SessionId, called: &Called, answer: &Answer) -> Option<Text> {
        self.parked.answered(of);
        if called.pool {
            called.set.models.answered(&called.member.name);
        }
        called.recorded_name().or_else(|| answer.model.clone())
    }

    /// Lets the host choose the model of an attempt, within the turn's deadline; a failing hook changes nothing.
    pub(crate) async fn resolve(&self, at: &Address, called: Called, call: ModelCallStart) -> (Called, ModelCallStart) {
        let Some(hooks) = self.hooks.as_ref().filter(|_| *called.requested_model != *AGENT) else {
            return (called, call);
        };
        let mut later = match call {
            ModelCallStart::Later(later) => later,
            ModelCallStart::Now(_) => return (called, call),
        };
        let choice = ModelChoice {
            session: at.session,
            root: at.root,
            agent: Arc::clone(&later.request.agent),
            run: at.run,
            turn: at.turn,
            attempt: at.attempt,
            model: Arc::clone(&called.member.name),
        };
        let name = match catch_hook_panic(|| hooks.resolve_model(choice)).await {
            Ok(Some(name)) if name != called.member.name => name,
            Ok(_) => return (called, ModelCallStart::Later(later)),
            Err(panic) => {
                tracing::error!(session = %at.session, %panic, "a hook panicked; calling the session's own model");
                return (called, ModelCallStart::Later(later));
            }
        };
        if name.starts_with("pool:") && !called.set.models.has_pool(&name) {
            tracing::warn!(session = %at.session, %name, "a hook named an unknown pool; calling the session's own model");
            return (called, ModelCallStart::Later(later));
        }
        // The chosen name is recorded, because the session's own name does not show it.
        let set = Arc::clone(&called.set);
        let picked = set.models.pick(&name);
        let requested_model = Arc::clone(&name);
        let named = Called { requested_model, set, member: picked.member, pool: true, is_fallback: picked.is_fallback };
        if let Some(claim) = later.claim {
            let Some(claim) = self.claim_for_model(claim, &named) else {
                tracing::warn!(session = %at.session, %name, "a hook named a model without a price; calling the session's own model");
                return (called, ModelCallStart::Later(later));
            };
            later.claim = Some(claim);
        }
        later.request.model = Arc::clone(&named.member.name);
        later.model = Arc::clone(&named.member.model);
        (named, ModelCallStart::Later(later))
    }

    /// Makes the call once it may start, and returns its outcome.
    /// Dropping the future releases its permit or queue position, and the reservation of a call that never started.
    pub(crate) async fn call(
        &self,
        call: ModelCallStart,
        called: &Called,
        last_delta: LastDelta,
        limits: CallLimits,
        progress: &Arc<CallProgress>,
    ) -> Result<ModelOutcome, Budget> {
        match call {
            ModelCallStart::Now(calling) => {
                progress.begin();
                let mut outcome = model_call::watch_stall(calling, last_delta, limits).await;
                self.price(called, &mut outcome);
                Ok(outcome)
            }
            // Boxed, so that an immediate call does not carry the state of the waits.
            ModelCallStart::Later(later) => {
                Box::pin(self.call_after_waits(*later, called, last_delta, limits, progress)).await
            }
        }
    }

    /// Makes a call after its waits: for the backoff, the intent record, the budget and the rate limits.
    async fn call_after_waits(
        &self,
        later: Later,
        called: &Called,
        last_delta: LastDelta,
        limits: CallLimits,
        progress: &Arc<CallProgress>,
    ) -> Result<ModelOutcome, Budget> {
        let Later { model, mut request, deltas, after_ms, intent, claim } = later;
        self.cap(called, &mut request);
        if after_ms > 0 {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
        }
        if let Some(lsn) = intent
            && self.journal.wait(lsn).await.is_err()
        {
            // The journal is poisoned: nothing leaves the process any more.
            std::future::pending::<()>().await;
        }
        // Reserved before the permit: a call that waits for its tree's budget must not hold a permit of others.
        let guard = self.reserve(claim, progress, model.leaves_process()).await?;
        // The permit is awaited before the call, so that the wait does not count as the model's silence.
        let queued = progress.queued();
        let permit = match self.acquire_permit(&*model, &request, limits).await {
            Ok(permit) => permit,
            Err(error) => return Ok(ModelOutcome::Error(error)),
        };
        drop(queued);
        if self.halt.is_cancelled() || !self.lease.is_valid() {
            // The runtime stops and releases all waits for permits. None of these calls may start.
            std::future::pending::<()>().await;
        }
        progress.begin();
        let mut outcome = model_call::watch_stall(
            model_call::call(&model, request, deltas, limits.calls_per_answer),
            last_delta,
            limits,
        )
        .await;
        match &outcome {
            ModelOutcome::Answer(Answer { usage, .. }) if !usage.unreliable && usage.tokens() > 0 => {
                permit.settle(usage.tokens())
            }
            ModelOutcome::Error(ModelError { usage: Some(usage), .. }) => permit.settle(usage.tokens()),
            // The cost is unknown, so the estimate counts.
            ModelOutcome::Answer(_) | ModelOutcome::Error(_) | ModelOutcome::Panic(_) => drop(permit),
        }
        let is_reported = is_usage_reported(&outcome);
        self.price(called, &mut outcome);
        if let Some(guard) = guard {
            guard.settle(&mut outcome, is_reported);
        }
        Ok(outcome)
    }

    /// Waits for a permit of `model`. Fails if the provider pauses for longer than the turn, even if the retry-after
    /// arrives during the wait. A pool then uses its next model; without a pool the run ends with that cause.
    async fn acquire_permit(
        &self,
        model: &dyn Model,
        request: &Request,
        limits: CallLimits,
    ) -> Result<Permit, ModelError> {
        let quotas = model.quotas();
        let entering = self.throttles.enter(quotas, estimate::tokens(request));
        tokio::pin!(entering);
        loop {
            let cooled = self.cooled.notified();
            tokio::pin!(cooled);
            // Registered before the check, so that a later notice is not missed.
            cooled.as_mut().enable();
            let left = quotas.iter().filter_map(|quota| self.throttles.paused_ms(quota)).max();
            if let Some(ms) = left.filter(|ms| *ms >= limits.turn_ms) {
                let message =
                    format!("rate limited by the provider; it accepts calls again in {} s", ms.div_ceil(1_000));
                return Err(ModelError { retry_after_ms: Some(ms), ..ModelError::new(ModelFail::Rate, message) });
            }
            tokio::select! {
                biased;
                permit = &mut entering => return Ok(permit),
                () = cooled => {}
            }
        }
    }
}
