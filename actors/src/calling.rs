//! Model calls of a turn: which model, when it may start, and what its answer or failure is told as.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::task::noop_waker_ref;
use subtend_agents::prompt;
use subtend_models::estimate;
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_models::throttle::Pass;
use subtend_session::command::Command;
use subtend_session::context::context;
use subtend_session::ids::{AttemptNo, Lsn, RunKey, Text, TurnNo};
use subtend_session::outcome::{Budget, ModelFail, Part};
use subtend_session::settings::Settings;

use crate::calls::in_flight::TurnAtWork;
use crate::calls::model_call::{self, Called, Calling, Came, Patience, Pulse};
use crate::calls::reservation::{Claim, is_told};
use crate::driver::Driver;
use crate::faults::Point;
use crate::hooks::{ModelChoice, guarded};
use crate::hub::Hub;
use crate::lane::Item;
use crate::turn;
use crate::values::address::Address;
use crate::values::answering::{agent_of, model_of};
use crate::values::panic::panic_text;

impl Hub {
    /// What a failure of `called` means for later calls: pools pass it over, and a provider that asked for patience gets it
    /// from every session. Returns the model to ask instead in this turn.
    pub(crate) fn model_failed(&self, called: &Called, error: &ModelError) -> Option<Text> {
        let asked_for = error.retry_after_ms.or_else(|| (error.kind == ModelFail::Rate).then_some(1_000));
        if let (Some(ms), Some(quota)) = (asked_for, called.member.model.quotas().first()) {
            self.throttles.cool(quota, ms);
            self.cooled.notify_waiters();
        }
        // Also when it was called by its own name: a pool that it is in shall not wait for it.
        self.agents.models.failed(&called.member.name, error.kind, error.retry_after_ms);
        if !called.pool {
            return None;
        }
        self.agents.models.after(&called.asked, &called.member.name)
    }

    /// Lowers the cap of `request` to that of the model that is called. Applied when the call is made: a hook may have named
    /// another model since the request was built.
    fn cap(&self, called: &Called, request: &mut Request) {
        let member = called.member();
        let name = if called.stands_in { member.model.name() } else { &*member.name };
        let of_model = Settings { output_tokens: self.caps.named(name), ..Settings::default() };
        request.settings = request.settings.under(&of_model);
    }

    /// The name that a record gives for the model of an answer: which one of the pool it was, else the provider's own.
    pub(crate) fn model_answered(&self, called: &Called, answer: &Answer) -> Option<Text> {
        if called.pool {
            self.agents.models.answered(&called.member.name);
        }
        called.shown().or_else(|| answer.model.clone())
    }
}

/// A call that cannot be made yet.
struct Later {
    model: Arc<dyn Model>,
    request: Request,
    deltas: Deltas,
    after_ms: u64,
    intent: Option<Lsn>,
    claim: Option<Claim>,
}

enum Call {
    Now(Calling),
    Later(Box<Later>),
}

impl Driver {
    /// Whether the session's model must wait for its intent record (J-5).
    pub(crate) fn model_waits(&self) -> bool {
        // A hook may name a model that leaves it.
        self.hub.options.durable_before_call
            || self.hub.hooks.is_some()
            || self.hub.agents.models.leaves_process(model_of(&self.state))
    }

    /// Calls the model, after its intent is durable where `intent` says so.
    pub(crate) fn call_model(&mut self, turn: TurnNo, attempt: AttemptNo, after_ms: u64, intent: Option<Lsn>) {
        let Some(run) = self.state.run.as_ref().map(|run| run.no) else { return };
        if self.hub.is_stopping() {
            return;
        }
        if self.is_cut_off() {
            return self.next.push_back(turn::dropped(turn, attempt, false));
        }
        self.renew_offer();
        let at = Address { session: self.session(), root: self.root(), run, turn, attempt };
        let (called, mut request) = self.request(&at);
        let claim = match self.claim(&called, (turn, attempt)) {
            Ok(claim) => claim,
            Err(which) => return self.next.push_back(Command::BudgetRefused { turn, attempt, which }),
        };
        if let Some(claim) = &claim {
            // An answer may not be longer than what was set aside for it.
            let cap =
                request.settings.output_tokens.map_or(claim.reserved.output, |cap| cap.min(claim.reserved.output));
            request.settings.output_tokens = Some(cap);
        }
        let pulse = Pulse::new();
        // Always heard, if only by the pulse: a model that streams for long is not stalled because nobody listens.
        let deltas = self.hub.deltas(at, &pulse);
        let model = Arc::clone(&called.member.model);
        if after_ms > 0 || intent.is_some() || claim.is_some() || !model.quotas().is_empty() {
            // The call is made only after the wait: a model may start its work when it is called.
            let after_ms = self.with_jitter(after_ms);
            let later = Later { model, request, deltas, after_ms, intent, claim };
            return self.spawn_turn(Call::Later(Box::new(later)), called, at, pulse);
        }
        self.hub.cap(&called, &mut request);
        let mut calling = model_call::call(&model, request, deltas, self.state.limits.calls_per_answer);
        match calling.as_mut().poll(&mut Context::from_waker(noop_waker_ref())) {
            Poll::Ready(mut came) => {
                drop(calling);
                self.hub.price(&called, &mut came);
                let command = self.hub.answered(&self.offer, at, came, &called, Some(&mut self.ready));
                self.next.push_back(command);
            }
            Poll::Pending => self.spawn_turn(Call::Now(calling), called, at, pulse),
        }
    }

    fn request(&self, at: &Address) -> (Called, Request) {
        let given = context(&self.state);
        let asked = Arc::clone(model_of(&self.state));
        let picked = self.hub.agents.models.pick(&given.model);
        // After a fallback the turn names a member: it is the session's own name that tells of the pool.
        let pool = picked.pool || (given.model != asked && self.hub.agents.models.has_pool(&asked));
        let called = Called { asked, member: picked.member, pool, stands_in: picked.stands_in };
        let above = Settings { output_tokens: self.state.limits.output_tokens, ..Settings::default() };
        let request = Request {
            session: at.session,
            agent: Arc::clone(agent_of(&self.state)),
            model: Arc::clone(&called.member.name),
            turn: at.turn,
            attempt: at.attempt,
            // What a session is offered is today's to say, whatever its birth said.
            system: prompt::with_offers(&given.system, self.offer.told.as_deref()),
            messages: given.messages,
            prompt: given.prompt,
            tools: Arc::clone(&self.offer.specs),
            settings: self.offer.settings.under(&above),
            format: given.format,
        };
        (called, request)
    }

    /// Up to half as long again, two seconds at most: sessions that failed together do not all come back together.
    fn with_jitter(&self, after_ms: u64) -> u64 {
        if after_ms == 0 {
            return 0;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 2,000"
        )]
        let more = ((after_ms / 2).min(2_000) as f64 * self.hub.mint.jitter()) as u64;
        after_ms.saturating_add(more)
    }

    fn spawn_turn(&mut self, call: Call, called: Called, at: Address, pulse: Pulse) {
        let Some(run) = self.run_key() else { return };
        let owned = self.hub.tokens.token(&run).unwrap_or_default();
        let stop = owned.child_token();
        let (hub, offer) = (Arc::clone(&self.hub), Arc::clone(&self.offer));
        let patience = Patience::of(&self.state.limits);
        let task_stop = stop.clone();
        // Whether the call may have cost something: one that stays in the process costs what it says.
        let costs = called.member.model.leaves_process() || self.hub.hooks.is_some();
        let begun = Arc::new(AtomicBool::new(false));
        let began = Arc::clone(&begun);
        let work = async move {
            hub.faults.strike(Point::TurnTask, "model");
            let coming = async {
                let (called, call) = hub.resolve(&at, called, call).await;
                (hub.come(call, &called, pulse, patience, &began).await, called)
            };
            tokio::select! {
                biased;
                () = task_stop.cancelled() => None,
                (came, called) = coming => Some(match came {
                    Ok(came) => hub.answered(&offer, at, came, &called, None),
                    Err(which) => Command::BudgetRefused { turn: at.turn, attempt: at.attempt, which },
                }),
            }
        };
        let hub = Arc::clone(&self.hub);
        let owner = self.owner_run();
        let task = self.hub.tasks.spawn(async move {
            let command = match std::panic::AssertUnwindSafe(work).catch_unwind().await {
                Ok(Some(command)) => command,
                Ok(None) => {
                    // The owner's word first: a stream that its fired token dropped must not count as a failed attempt.
                    if owned.is_cancelled()
                        && let Some(owner) = owner
                    {
                        let word = hub.word_from_above(owner, RunKey { session: at.session, run: at.run });
                        hub.tell(at.session, word);
                    }
                    turn::dropped(at.turn, at.attempt, costs && begun.load(Ordering::Relaxed))
                }
                Err(panic) => Command::TurnPanicked {
                    turn: at.turn,
                    attempt: at.attempt,
                    part: Part::TurnTask,
                    message: panic_text(&*panic),
                },
            };
            hub.deliver(at.session, Item::Command(command, None));
        });
        self.turn = Some(TurnAtWork { stop, task: task.abort_handle() });
    }
}

impl Hub {
    /// Lets the host name another model for an attempt; one that fails to leaves it as it is. The turn's deadline bounds it.
    async fn resolve(&self, at: &Address, called: Called, call: Call) -> (Called, Call) {
        let Some(hooks) = &self.hooks else { return (called, call) };
        let mut later = match call {
            Call::Later(later) => later,
            Call::Now(_) => return (called, call),
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
            Ok(_) => return (called, Call::Later(later)),
            Err(panic) => {
                tracing::error!(session = %at.session, %panic, "a hook panicked: the session's own model is asked");
                return (called, Call::Later(later));
            }
        };
        if name.starts_with("pool:") && !self.agents.models.has_pool(&name) {
            tracing::warn!(session = %at.session, %name, "a hook named a pool that is not there: the session's own model is asked");
            return (called, Call::Later(later));
        }
        // Records say which model it was: the session's own name does not.
        let picked = self.agents.models.pick(&name);
        let named = Called { asked: Arc::clone(&name), member: picked.member, pool: true, stands_in: picked.stands_in };
        if let Some(claim) = later.claim {
            let Some(claim) = self.priced_anew(claim, &named) else {
                tracing::warn!(session = %at.session, %name, "a hook named a model without a price: the session's own is asked");
                return (called, Call::Later(later));
            };
            later.claim = Some(claim);
        }
        later.request.model = Arc::clone(&named.member.name);
        later.model = Arc::clone(&named.member.model);
        (named, Call::Later(later))
    }

    /// Makes the call when it may start, and waits for what comes of it.
    ///
    /// Dropped where it stands when the run is stopped: a place in a queue or under a quota goes back with it, and what is set
    /// aside for a call that never began.
    async fn come(
        &self,
        call: Call,
        called: &Called,
        pulse: Pulse,
        patience: Patience,
        begun: &Arc<AtomicBool>,
    ) -> Result<Came, Budget> {
        let later = match call {
            Call::Now(calling) => {
                begun.store(true, Ordering::Relaxed);
                let mut came = model_call::watched(calling, pulse, patience).await;
                self.price(called, &mut came);
                return Ok(came);
            }
            Call::Later(later) => later,
        };
        let Later { model, mut request, deltas, after_ms, intent, claim } = *later;
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
        // Before the wait for a place: who waits for the budget of one tree must not hold a place that others could use.
        let set_aside = self.set_aside(claim, begun, model.leaves_process()).await?;
        // Silence is counted from the call, not from here: a wait for a place is not the provider's fault.
        let pass = match self.place(&*model, &request, patience).await {
            Ok(pass) => pass,
            Err(error) => return Ok(Came::Error(error)),
        };
        if self.halt.is_cancelled() {
            // The runtime goes down, which sends all away who wait for a place: none of these calls may go out any more.
            std::future::pending::<()>().await;
        }
        begun.store(true, Ordering::Relaxed);
        let mut came =
            model_call::watched(model_call::call(&model, request, deltas, patience.calls_per_answer), pulse, patience)
                .await;
        match &came {
            Came::Answer(Answer { usage, .. }) if !usage.unreliable && usage.tokens() > 0 => {
                pass.settle(usage.tokens())
            }
            Came::Error(ModelError { usage: Some(usage), .. }) => pass.settle(usage.tokens()),
            // Nothing is known: the estimate stands.
            Came::Answer(_) | Came::Error(_) | Came::Panic(_) => drop(pass),
        }
        let told = is_told(&came);
        self.price(called, &mut came);
        if let Some(set_aside) = set_aside {
            set_aside.settle(&mut came, told);
        }
        Ok(came)
    }

    /// Waits for a place under the quotas of `model`; not where its provider wants more patience than a turn has, also when
    /// it says so to another session meanwhile: then a pool asks its next model, and a run without one ends with the cause.
    async fn place(&self, model: &dyn Model, request: &Request, patience: Patience) -> Result<Pass, ModelError> {
        let quotas = model.quotas();
        let entering = self.throttles.enter(quotas, estimate::tokens(request));
        tokio::pin!(entering);
        loop {
            let cooled = self.cooled.notified();
            tokio::pin!(cooled);
            // Before the look: what is said after it wakes this.
            cooled.as_mut().enable();
            let left = quotas.iter().filter_map(|quota| self.throttles.cooling_ms(quota)).max();
            if let Some(ms) = left.filter(|ms| *ms >= patience.turn_ms) {
                let message = format!("the provider asked for patience: {} s of it are left", ms.div_ceil(1_000));
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
