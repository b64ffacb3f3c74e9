//! Model calls of all sessions: permits, the choice of the model, and cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use subtend_journal::Journal;
use subtend_models::estimate;
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_models::throttle::{Permit, Throttles};
use subtend_session::ids::{Lsn, RunKey, SessionId, Text};
use subtend_session::outcome::{Budget, ModelFail};
use subtend_session::settings::Settings;
use subtend_supervision::{Budgets, Lease, Ledger};
use subtend_tools::background::AGENT;
use tokio_util::sync::CancellationToken;

use crate::calls::limits::ParkedRuns;
use crate::calls::model_call::{self, Called, Calling, ModelOutcome, Patience, Pulse};
use crate::calls::prices::Prices;
use crate::calls::reservation::{Claim, is_told};
use crate::hooks::{Hooks, ModelChoice, guarded};
use crate::values::address::Address;

/// The shared state of model calls of one runtime, independent of sessions.
pub(crate) struct ModelCalls {
    /// The rate limits of providers, over all sessions.
    pub(crate) throttles: Throttles,
    /// Notifies calls that wait for a permit of a retry-after.
    pub(crate) cooled: tokio::sync::Notify,
    pub(crate) parked: ParkedRuns,
    pub(crate) prices: Prices,
    pub(crate) ledger: Ledger<RunKey>,
    pub(crate) budgets: Budgets<RunKey>,
    /// For durable intents, and for recounts of accounts.
    pub(crate) journal: Journal,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    /// Fires when the grace of a shutdown ends.
    pub(crate) halt: CancellationToken,
    /// While it runs, calls may start.
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

impl ModelCalls {
    /// Applies a failure of `called` to later calls: pools skip it, and a retry-after holds for every session. Returns the model to use instead in
    /// this turn.
    pub(crate) fn model_failed(&self, of: SessionId, called: &Called, error: &ModelError) -> Option<Text> {
        let asked_for = error.retry_after_ms.or_else(|| (error.kind == ModelFail::Rate).then_some(1_000));
        if let (Some(ms), Some(quota)) = (asked_for, called.member.model.quotas().first()) {
            self.throttles.cool(quota, ms);
            self.cooled.notify_waiters();
        }
        // After the cooling, so that no other run probes in between.
        self.parked.answered(of);
        // Also after a call by its own name: its pools must not wait for it.
        called.set.models.failed(&called.member.name, error.kind, error.retry_after_ms);
        if !called.pool {
            return None;
        }
        called.set.models.after(&called.requested_model, &called.member.name)
    }

    /// Lowers the cap of `request` to that of the called model. Applied at the call: a hook may have chosen another model.
    pub(crate) fn cap(&self, called: &Called, request: &mut Request) {
        let member = called.member();
        let name = if called.stands_in { member.model.name() } else { &*member.name };
        let of_model = Settings { output_tokens: called.set.caps.named(name), ..Settings::default() };
        request.settings = request.settings.under(&of_model);
    }

    /// Returns the recorded name of the model of an answer: the member of the pool, else the provider's name.
    pub(crate) fn model_answered(&self, of: SessionId, called: &Called, answer: &Answer) -> Option<Text> {
        self.parked.answered(of);
        if called.pool {
            called.set.models.answered(&called.member.name);
        }
        called.shown().or_else(|| answer.model.clone())
    }

    /// Lets the host choose the model of an attempt; a failing hook changes nothing. The turn's deadline applies.
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
        let name = match guarded(|| hooks.resolve_model(choice)).await {
            Ok(Some(name)) if name != called.member.name => name,
            Ok(_) => return (called, ModelCallStart::Later(later)),
            Err(panic) => {
                tracing::error!(session = %at.session, %panic, "a hook panicked: the session's own model is asked");
                return (called, ModelCallStart::Later(later));
            }
        };
        if name.starts_with("pool:") && !called.set.models.has_pool(&name) {
            tracing::warn!(session = %at.session, %name, "a hook named a pool that is not there: the session's own model is asked");
            return (called, ModelCallStart::Later(later));
        }
        // Recorded, because the session's own name does not show it.
        let set = Arc::clone(&called.set);
        let picked = set.models.pick(&name);
        let requested_model = Arc::clone(&name);
        let named = Called { requested_model, set, member: picked.member, pool: true, stands_in: picked.stands_in };
        if let Some(claim) = later.claim {
            let Some(claim) = self.priced_anew(claim, &named) else {
                tracing::warn!(session = %at.session, %name, "a hook named a model without a price: the session's own is asked");
                return (called, ModelCallStart::Later(later));
            };
            later.claim = Some(claim);
        }
        later.request.model = Arc::clone(&named.member.name);
        later.model = Arc::clone(&named.member.model);
        (named, ModelCallStart::Later(later))
    }

    /// Makes the call when it may start, and waits for its outcome.
    ///
    /// Dropped when the run is stopped: its permit or queue position is released, and so is the reservation of a call that never started.
    pub(crate) async fn call(
        &self,
        call: ModelCallStart,
        called: &Called,
        pulse: Pulse,
        patience: Patience,
        begun: &Arc<AtomicBool>,
    ) -> Result<ModelOutcome, Budget> {
        match call {
            ModelCallStart::Now(calling) => {
                begun.store(true, Ordering::Relaxed);
                let mut outcome = model_call::watched(calling, pulse, patience).await;
                self.price(called, &mut outcome);
                Ok(outcome)
            }
            // Boxed, so that an immediate call does not carry the waits.
            ModelCallStart::Later(later) => Box::pin(self.come_later(*later, called, pulse, patience, begun)).await,
        }
    }

    /// Makes a call after its waits: for a retry, its intent, its budget and its rates.
    async fn come_later(
        &self,
        later: Later,
        called: &Called,
        pulse: Pulse,
        patience: Patience,
        begun: &Arc<AtomicBool>,
    ) -> Result<ModelOutcome, Budget> {
        let Later { model, mut request, deltas, after_ms, intent, claim } = later;
        self.cap(called, &mut request);
        if after_ms > 0 {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
        }
        if let Some(lsn) = intent
            && self.journal.wait(lsn).await.is_err()
        {
            // A poisoned journal: nothing leaves the process any more.
            std::future::pending::<()>().await;
        }
        // Before the wait for a permit: a call that waits for its tree's budget must not hold a permit that others could use.
        let set_aside = self.set_aside(claim, begun, model.leaves_process()).await?;
        // Silence counts from the call: a wait for a permit is not the model's.
        let pass = match self.place(&*model, &request, patience).await {
            Ok(pass) => pass,
            Err(error) => return Ok(ModelOutcome::Error(error)),
        };
        if self.halt.is_cancelled() || !self.lease.runs() {
            // The runtime stops and releases all waits for permits: none of these calls may start.
            std::future::pending::<()>().await;
        }
        begun.store(true, Ordering::Relaxed);
        let mut outcome =
            model_call::watched(model_call::call(&model, request, deltas, patience.calls_per_answer), pulse, patience)
                .await;
        match &outcome {
            ModelOutcome::Answer(Answer { usage, .. }) if !usage.unreliable && usage.tokens() > 0 => {
                pass.settle(usage.tokens())
            }
            ModelOutcome::Error(ModelError { usage: Some(usage), .. }) => pass.settle(usage.tokens()),
            // The cost is unknown: the estimate counts.
            ModelOutcome::Answer(_) | ModelOutcome::Error(_) | ModelOutcome::Panic(_) => drop(pass),
        }
        let is_reported = is_told(&outcome);
        self.price(called, &mut outcome);
        if let Some(set_aside) = set_aside {
            set_aside.settle(&mut outcome, is_reported);
        }
        Ok(outcome)
    }

    /// Waits for a permit of `model`. Fails if a retry-after is longer than the turn, also one that another session receives meanwhile: then a pool
    /// uses its next model, and a run without one ends with the cause.
    async fn place(&self, model: &dyn Model, request: &Request, patience: Patience) -> Result<Permit, ModelError> {
        let quotas = model.quotas();
        let entering = self.throttles.enter(quotas, estimate::tokens(request));
        tokio::pin!(entering);
        loop {
            let cooled = self.cooled.notified();
            tokio::pin!(cooled);
            // Registered before the check, so that a later notice is not missed.
            cooled.as_mut().enable();
            let left = quotas.iter().filter_map(|quota| self.throttles.cooling_ms(quota)).max();
            if let Some(ms) = left.filter(|ms| *ms >= patience.turn_ms) {
                let message =
                    format!("rate limited by the provider; it accepts calls again in {} s", ms.div_ceil(1_000));
                return Err(ModelError { retry_after_ms: Some(ms), ..ModelError::new(ModelFail::Rate, message) });
            }
            tokio::select! {
                biased;
                pass = &mut entering => return Ok(pass),
                () = cooled => {}
            }
        }
    }
}
