//! Model calls of a turn: the choice of the model, the waits before the call, and the command for its outcome.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::task::noop_waker_ref;
use subtend_models::model::Request;
use subtend_session::command::{CallObstacle, Command};
use subtend_session::context::context;
use subtend_session::ids::{AttemptNo, Lsn, RunKey, Text, TurnNo};
use subtend_session::outcome::{Budget, Part};
use subtend_session::settings::Settings;
use subtend_supervision::Spend;

use crate::calls::in_flight::{ParsedCalls, RunningTurn};
use crate::calls::model_call::{self, CallLimits, CallProgress, Called, LastDelta, ModelOutcome};
use crate::calls::model_calls::{Later, ModelCallStart};
use crate::calls::reservation::{Claim, limit_of, tokens_of};
use crate::cell::driver::Driver;
use crate::cell::turn;
use crate::delivery::inbox::InboxItem;
use crate::faults::Point;
use crate::values::address::Address;
use crate::values::answering::{agent_of, model_of};
use crate::values::panic::{panic_text, truncate_message};

impl Driver {
    /// Returns whether the session's model must wait for its intent record.
    pub(crate) fn needs_model_intent(&self) -> bool {
        // A hook may choose a model that leaves the process.
        self.cells.host.options.durable_before_call
            || self.cells.host.hooks.is_some()
            || self.agents.models.models.leaves_process(model_of(&self.state))
    }

    /// Calls the model. If `intent` is set, the call waits until that record is durable.
    pub(crate) fn call_model(&mut self, turn: TurnNo, attempt: AttemptNo, after_ms: u64, intent: Option<Lsn>) {
        let Some(run) = self.state.run.as_ref().map(|run| run.no) else { return };
        if !self.cells.life.may_start() {
            return;
        }
        if self.decide_owner_close() {
            return self.todo.next.push_back(turn::dropped(turn, attempt, false));
        }
        if self.agents.unusable.is_some() {
            self.renew_offer();
        }
        if let Some(why) =
            self.agents.unusable.clone().or_else(|| self.agents.missing_worktree(&self.state).map(Text::from))
        {
            // A run that resumed without its workspace ends here.
            let why = CallObstacle::Workspace(truncate_message(&why).into());
            return self.todo.next.push_back(Command::NotCalled { turn, attempt, why });
        }
        if self.wait_for_tools(turn, attempt, after_ms, intent) {
            return;
        }
        self.renew_offer();
        // A worktree is made before its session's first answer, after its creation record is durable.
        let intent = intent.or_else(|| self.state.created.worktree.map(|_| self.written.last_lsn));
        let at = Address { session: self.session(), root: self.root(), run, turn, attempt };
        let (called, mut request) = self.request(&at);
        let claim = match self.claim(&called, (turn, attempt)) {
            Ok(claim) => claim,
            Err(which) => {
                let why = CallObstacle::Budget(which);
                return self.todo.next.push_back(Command::NotCalled { turn, attempt, why });
            }
        };
        if let Some(claim) = &claim {
            // An answer may not be longer than its reservation.
            let cap =
                request.settings.output_tokens.map_or(claim.reserved.output, |cap| cap.min(claim.reserved.output));
            request.settings.output_tokens = Some(cap);
        }
        let last_delta = LastDelta::new();
        // Deltas are always counted: a long stream must not count as stalled because it has no subscribers.
        let deltas = self.cells.deltas(at, &last_delta);
        let model = Arc::clone(&called.member.model);
        if after_ms > 0 || intent.is_some() || claim.is_some() || !model.quotas().is_empty() {
            // The call is made after the wait, since a model may start its work when it is called.
            let after_ms = self.with_jitter(after_ms);
            let later = Later { model, request, deltas, after_ms, intent, claim };
            return self.spawn_turn(ModelCallStart::Later(Box::new(later)), called, at, last_delta);
        }
        self.cells.calls.cap(&called, &mut request);
        let mut calling = model_call::call(&model, request, deltas, self.state.limits.calls_per_answer);
        match calling.as_mut().poll(&mut Context::from_waker(noop_waker_ref())) {
            // A model that answers at once is a local one. The calls of all others are classified a few at a time.
            Poll::Ready(mut outcome) => {
                drop(calling);
                self.cells.calls.price(&called, &mut outcome);
                let offer = (&*self.agents, &*self.offer, self.state.limits.calls_per_answer);
                let (command, ready) = self.cells.answered(offer, at, outcome, &called);
                self.work.ready = ready;
                self.todo.next.push_back(command);
            }
            Poll::Pending => self.spawn_turn(ModelCallStart::Now(calling), called, at, last_delta),
        }
    }

    fn request(&self, at: &Address) -> (Called, Request) {
        let given = context(&self.state);
        let requested_model = Arc::clone(model_of(&self.state));
        let set = Arc::clone(&self.agents.models);
        let picked = set.models.pick(&given.model);
        // After a fallback the turn names a member; the session's own name is that of the pool.
        let pool = picked.pool || (given.model != requested_model && set.models.has_pool(&requested_model));
        let called = Called { requested_model, set, member: picked.member, pool, is_fallback: picked.is_fallback };
        let above = Settings { output_tokens: self.state.limits.output_tokens, ..Settings::default() };
        let request = Request {
            session: at.session,
            agent: Arc::clone(agent_of(&self.state)),
            model: Arc::clone(&called.member.name),
            turn: at.turn,
            attempt: at.attempt,
            // The offer is current; the prompt of the first record may be outdated.
            system: self.offer.prompt(&given.system),
            messages: given.messages,
            prompt: given.prompt,
            tools: Arc::clone(&self.offer.specs),
            settings: self.offer.settings.under(&above),
            format: given.format,
        };
        (called, request)
    }

    /// Adds a random delay of up to half of `after_ms`, at most two seconds, so that sessions that failed together do not retry together.
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
        let more = ((after_ms / 2).min(2_000) as f64 * self.cells.host.ids.jitter()) as u64;
        after_ms.saturating_add(more)
    }

    fn spawn_turn(&mut self, call: ModelCallStart, called: Called, at: Address, last_delta: LastDelta) {
        let Some(run) = self.run_key() else { return };
        let owned = self.cells.runs.tokens.token(&run).unwrap_or_default();
        let stop = owned.child_token();
        let cells = Arc::clone(&self.cells);
        let (agents, offer) = (Arc::clone(&self.agents), Arc::clone(&self.offer));
        let limits = CallLimits::of(&self.state.limits);
        let place = self.agents.tool_directory(&self.state);
        let is_typed = context(&self.state).format.is_some();
        let task_stop = stop.clone();
        // A call of a local model costs only what it reports.
        let costs = called.member.model.leaves_process() || self.cells.host.hooks.is_some();
        let progress = Arc::new(CallProgress::default());
        let of_call = Arc::clone(&progress);
        // Boxed, since the task below would otherwise hold its future twice.
        let work = Box::pin(async move {
            cells.host.faults.inject(Point::TurnTask, "model");
            let coming = async {
                if let Err(why) = place.prepare().await {
                    return turn::not_called(at, why);
                }
                let started = {
                    let (called, call) = cells.calls.resolve(&at, called, call).await;
                    let outcome = match cells.calls.call(call, &called, last_delta, limits, &of_call).await {
                        Ok(ModelOutcome::Answer(answer)) => {
                            let ids = (at.root, at.session);
                            ModelOutcome::Answer(place.finish_run(ids, &agents.journal, !is_typed, answer).await)
                        }
                        Ok(outcome) => outcome,
                        Err(budget) => return turn::not_called(at, CallObstacle::Budget(budget)),
                    };
                    cells.start_answered((&agents, &offer, limits.calls_per_answer), at, outcome, called)
                };
                match started {
                    Ok(answered) => answered,
                    Err(in_steps) => in_steps.await,
                }
            };
            tokio::select! {
                biased;
                () = task_stop.cancelled() => None,
                answered = coming => Some(answered),
            }
        });
        let cells = Arc::clone(&self.cells);
        let owner = self.owner_run();
        let task = self.cells.life.tasks.spawn(async move {
            let (command, ready) = match std::panic::AssertUnwindSafe(work).catch_unwind().await {
                Ok(Some(answered)) => answered,
                Ok(None) => {
                    // The owner's command comes first: a stream that its token dropped is not a failed attempt.
                    if owned.is_cancelled()
                        && let Some(owner) = owner
                    {
                        let command =
                            cells.runs.cancel_cause_command(owner, RunKey { session: at.session, run: at.run });
                        cells.send_command(at.session, command);
                    }
                    (turn::dropped(at.turn, at.attempt, costs && progress.has_begun()), ParsedCalls::default())
                }
                Err(panic) => {
                    let (turn, attempt, part) = (at.turn, at.attempt, Part::TurnTask);
                    (
                        Command::TurnPanicked { turn, attempt, part, message: panic_text(&*panic) },
                        ParsedCalls::default(),
                    )
                }
            };
            let command = turn::with_wait(command, progress.wait_ms());
            let item = if ready.is_empty() {
                InboxItem::Command(command, None)
            } else {
                InboxItem::Parsed(Box::new((command, ready)))
            };
            cells.deliver(at.session, item);
        });
        self.work.turn = Some(RunningTurn { stop, task: task.abort_handle() });
    }
}

impl Driver {
    /// Returns the amount that the attempt must reserve before its model is called; `None` in a tree without a budget.
    pub(crate) fn claim(&self, called: &Called, at: (TurnNo, AttemptNo)) -> Result<Option<Claim>, Budget> {
        let Some(due) = self.work.reserved.filter(|due| (due.turn, due.attempt) == at) else { return Ok(None) };
        let limit = limit_of(&self.state.limits);
        let Some(key) = self.run_key().filter(|_| !limit.is_none()) else { return Ok(None) };
        let cost_micro = match limit.cost_micro {
            Some(_) => self.cells.calls.cost_at_most(called, &due.reserved).ok_or(Budget::Money)?,
            None => 0,
        };
        let want = Spend { tokens: tokens_of(&due.reserved), cost_micro };
        let root = self.cells.runs.tokens.root(&key).unwrap_or(key);
        // Opened only while the run and its root run are in flight, so that the end of the root run closes the account.
        self.cells.calls.budgets.open(root);
        Ok(Some(Claim { root, reserved: due.reserved, want, limit }))
    }
}
