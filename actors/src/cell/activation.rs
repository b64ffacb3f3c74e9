//! Activations: start the actor of a session, from its kept state or by folding its journal, and restart it after a crash.

use std::sync::Arc;

use futures_util::FutureExt;
use subtend_journal::{Poisoned, ReadError};
use subtend_session::command::{Command, Deadline};
use subtend_session::ids::{CallId, Epoch, Lsn, RunKey, SessionId};
use subtend_session::index::{self, RowKey, RowKind};
use subtend_session::place::Owner;
use subtend_session::record::Park;
use subtend_session::state::{FoldError, Phase, State};
use subtend_supervision::{Exit, ExitReason, RestartBudget, RestartDecision};
use tokio::sync::oneshot;

use crate::cell::cells::Cells;
use crate::cell::driver::{Driver, First};
use crate::cell::session_actor::SessionActor;
use crate::delivery::directory::{Hot, Presence};
use crate::delivery::inbox::{Inbox, InboxItem};
use crate::delivery::ticket::Timer;
use crate::faults::Sight;
use crate::recovery::rows::{row_at, rows_to};
use crate::values::at_boot::{AtBoot, Lost};

/// Why a session could not be activated: it stays in the journal, and other sessions work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    #[error("its records do not fold: {0}")]
    Fold(#[from] FoldError),
    #[error("its actor did not start: {0}")]
    Spawn(String),
    #[error("it panicked while it was loaded: {0}")]
    Panic(String),
}

impl Cells {
    pub(crate) fn start(self: &Arc<Self>, session: SessionId, inbox: Arc<Inbox>, hot: Option<Hot>) {
        let cells = Arc::clone(self);
        tokio::spawn(async move { cells.activate(session, inbox, hot).await });
    }

    /// Activates a session. If that fails, its queued items are dropped, so that no caller waits in vain.
    pub(crate) async fn activate(self: &Arc<Self>, session: SessionId, inbox: Arc<Inbox>, hot: Option<Hot>) {
        if self.life.halt.is_cancelled() {
            // Actors are being stopped, deepest first: a restarted one would outlive its owner. Its rows remain.
            return self.directory.remove(session);
        }
        let making = std::panic::AssertUnwindSafe(self.make(session, Arc::clone(&inbox), hot));
        let made = match making.catch_unwind().await {
            Ok(made) => made,
            Err(panic) => Err(ActivationError::Panic(crate::values::panic::panic_text(&*panic).to_string())),
        };
        if let Err(error) = made {
            if !self.life.is_stopping() {
                tracing::error!(%session, %error, "the session could not be activated");
            }
            if let Some(lost) = inbox.lost() {
                // The mark goes with the inbox: a later activation must not resume a lost run.
                self.takeover.mark([(session, AtBoot::Lost(lost))]);
            }
            self.directory.remove(session);
            self.waiters.forget(session);
            self.not_activated(session, &error);
        }
    }

    async fn make(
        self: &Arc<Self>,
        session: SessionId,
        inbox: Arc<Inbox>,
        hot: Option<Hot>,
    ) -> Result<(), ActivationError> {
        let driver = match hot {
            // Its slot and queue deadline were requested at its creation.
            Some(hot) => {
                let state = match hot.state {
                    Some(state) => state,
                    None => self.fold_birth(session, hot.lsn).await?,
                };
                let mut driver = Box::new(Driver::new(Arc::clone(self), state, inbox, Epoch(1)));
                driver.written.opened_lsn = hot.lsn;
                driver.written.last_lsn = hot.lsn;
                driver.written.created_ms = hot.created_ms;
                driver
            }
            None => Box::pin(self.load(session, inbox)).await?,
        };
        if self.life.halt.is_cancelled() {
            // A shutdown stopped the actors during the load.
            self.directory.remove(session);
            return Ok(());
        }
        // Before the spawn: an exit of the new actor must find an active entry.
        self.directory.active(session);
        let spawned = Box::pin(self.supervisors.spawn(SessionActor, driver)).await;
        spawned.map(drop).map_err(|error| ActivationError::Spawn(error.to_string()))
    }

    /// Folds a queued child whose state was dropped: it has decided nothing since its creation.
    async fn fold_birth(&self, session: SessionId, born: Lsn) -> Result<Box<State>, ActivationError> {
        self.log.journal.wait(born).await?;
        let stored = self.log.journal.records(session)?;
        Ok(Box::new(State::fold(session, stored.iter().map(|stored| &stored.record))?))
    }

    /// Folds the journal, and collects what a new activation handles first: token, outbox rows, then the state's own check.
    async fn load(self: &Arc<Self>, session: SessionId, inbox: Arc<Inbox>) -> Result<Box<Driver>, ActivationError> {
        // First: an end appended from here on arrives live, an earlier one is in the outbox.
        let mut stays = self.takeover.stays(session);
        if !stays && let Some(lost) = self.takeover.reached(session) {
            inbox.lose(lost);
        }
        self.log.journal.settled().await?;
        let (activation, stored) = self.log.journal.activate_with_records(session)?;
        let state = Box::new(State::fold(session, stored.iter().map(|stored| &stored.record))?);
        let mut rows = rows_to(&self.log.journal, session)?;
        rows.owed.extend(self.takeover.unreadable.owed(&state));
        if state.run.is_none() && rows.requests.is_empty() {
            // An idle session whose inputs panicked has no run to give up, and the mark must not hit a later run. A session that a row crashes keeps the mark,
            // which delays its restarts.
            inbox.settle();
        }
        let lost = inbox.lost();
        let mut driver = Box::new(Driver::new(Arc::clone(self), state, Arc::clone(&inbox), activation.epoch));
        driver.written.created_ms = activation.head.as_ref().map_or(driver.written.created_ms, |head| head.created_ms);
        driver.written.last_lsn = self.log.journal.durable();
        if let Some(row) = &activation.inflight {
            driver.written.opened_lsn = row.opened_lsn;
            stays &= inbox.lost().is_none() && inbox.exhausted().is_none();
            driver.written.starts = row.starts.saturating_add(u32::from(!stays));
        }
        let command = match &driver.state.run {
            None => None,
            Some(run) => {
                (driver.stays, driver.written.unmarked) = (stays, !stays);
                let key = RunKey { session, run: run.no };
                if lost.is_none() && self.runs.tokens.token(&key).is_none() {
                    self.runs.tokens.open(key, run.opened.owner.run());
                    self.runs.restore_accounts(&driver.agents.models.models, key)?;
                }
                Some(self.first_command(&mut driver, &inbox, lost))
            }
        };
        if inbox.take_crashed() && lost.is_none() {
            self.redo_effects(&driver)?;
            self.give_back(&driver);
        }
        // Before all queued items. An end that `Lost` takes must not start a turn first; for any other command the redone turn precedes it.
        let mut requests = rows.requests;
        requests.extend(self.runs.pending_cancels(&driver.state).filter(|_| lost.is_none()));
        if driver.stays {
            return Ok(driver);
        }
        self.host.faults.see(Sight::Activated(session));
        driver.todo.first = Some(First { lost: lost.is_some(), requests, command, owed: rows.owed });
        Ok(driver)
    }

    /// Redoes effects of an appended batch that the crashed activation may not have performed; each is idempotent.
    ///
    /// `Reactivated` redoes model calls, tools, admission, cancels of a closing run and slot requests.
    fn redo_effects(self: &Arc<Self>, driver: &Driver) -> Result<(), ReadError> {
        let session = driver.session();
        // Before any request: a run that has released its slot must not wait for it.
        let run = driver.state.run.as_ref();
        if run.is_none_or(|run| !run.slot) {
            driver.inbox.release_slot();
        }
        if run.is_none_or(|run| run.started && run.parked != Some(Park::Slot))
            && let Some(key) = driver.run_key()
        {
            self.runs.slots.withdraw(key);
        }
        for (row, lsn) in self.log.journal.outbox()? {
            if row.from == session
                && let Some(command) = row_at(&self.log.journal, &row, lsn)?
            {
                self.tell_after_sweep(row.to, command);
            }
        }
        // A child that never started requests its slot at its activation, also one without an owner, such as an alternative of an idle session.
        for child in driver.state.children.keys().copied() {
            let absent = self.directory.with(child, |_| ()).is_none();
            if absent && self.log.journal.head(child)?.is_some_and(|head| head.state == Phase::Queued) {
                let (tell, _) = oneshot::channel();
                self.deliver(child, InboxItem::Probe(tell));
            }
        }
        if let Some(last) = &driver.state.last {
            driver.tell_waiters(last.run);
        }
        Ok(())
    }

    /// Releases what the last run held, if its end was appended without its effects.
    fn give_back(&self, driver: &Driver) {
        let Some(last) = &driver.state.last else { return };
        let (session, run) = (driver.session(), last.run);
        self.runs.run_over(RunKey { session, run });
        for deadline in [Deadline::Queue(run), Deadline::Run(run), Deadline::WallCap(run), Deadline::Grace(run)] {
            self.runs.timers.disarm(&Timer::Deadline(session, deadline));
        }
    }

    /// Returns what a folded run in flight handles first.
    fn first_command(&self, driver: &mut Driver, inbox: &Inbox, lost: Option<Lost>) -> Command {
        if let Some(command) = inbox.exhausted() {
            driver.run_key().into_iter().for_each(|run| self.host.faults.see(Sight::GivesUp(run)));
            return Command::RestartsExhausted { command: command.map(Into::into) };
        }
        if let Some(Lost { queue_stands }) = lost {
            let survives = driver.state.run.as_ref().is_some_and(|run| match run.opened.owner {
                Owner::Run { .. } => false,
                Owner::Person | Owner::Host(_) | Owner::Detached { .. } => true,
            });
            let queue_stands = queue_stands || !self.takeover.resumes;
            let ends = !(survives && driver.state.phase() == Phase::Queued);
            if ends && queue_stands && !driver.state.queue.is_empty() {
                self.takeover.keeps_queue(driver.state.id, driver.state.queue.len());
            }
            return Command::Lost { owner_survives: survives, queue_stands };
        }
        let owner_ended = self.runs.owner_ended(&driver.state);
        Command::Reactivated { calls: driver.unstarted(), owner_ended }
    }

    /// An actor crashed: restarts it from the journal within its budget, or gives its run up (V-1, V-3).
    pub(crate) fn exited(self: &Arc<Self>, exit: &Exit) {
        let message = match &exit.how {
            ExitReason::Stopped => return,
            // Before the search of the directory: a shutdown may kill a hundred thousand.
            ExitReason::Killed if self.life.is_stopping() => return,
            ExitReason::Killed => "killed".to_owned(),
            ExitReason::Failed(message) => message.clone(),
        };
        let Some(session) = self.directory.find(exit.actor) else { return };
        self.host.faults.see(Sight::Died(session));
        // Nothing starts during a shutdown: the next start finds the run in flight, and its open asks with their deadlines.
        if self.life.is_stopping() {
            return;
        }
        let (intensity, jitter) = (self.host.options.restarts, self.host.ids.jitter());
        let restart = self.directory.with(session, |entry| {
            entry.inbox.unbind();
            entry.presence = Presence::Starting;
            let (killer, again) = entry.inbox.died();
            let budget = entry.budget.get_or_insert_with(|| Box::new(RestartBudget::new(intensity)));
            let verdict = budget.admit(crate::clock::now(), jitter);
            let delay = match verdict {
                RestartDecision::After(delay) if !again => delay,
                // A session that cannot even give up is retried with a delay, so that its run ends when the fault is gone (S-6).
                RestartDecision::After(_) | RestartDecision::Exhausted if entry.inbox.exhaust(killer) => {
                    // Its first command may crash every activation, so that the items behind it are never handled.
                    entry.inbox.drop_probes();
                    intensity.cap
                }
                RestartDecision::After(_) | RestartDecision::Exhausted => std::time::Duration::ZERO,
            };
            (Arc::clone(&entry.inbox), delay, killer)
        });
        let Some((inbox, delay, killer)) = restart else { return };
        tracing::warn!(%session, command = killer.unwrap_or("none"), %message, ?delay, "the session's actor failed");
        let cells = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            cells.activate(session, inbox, None).await;
        });
    }
}

impl Cells {
    /// After a failed activation of an unreadable session: notifies its owner, and releases what its run held.
    pub(crate) fn not_activated(self: &Arc<Self>, session: SessionId, error: &ActivationError) {
        let damaged = match error {
            ActivationError::Read(ReadError::Damaged { .. } | ReadError::Newer { .. }) | ActivationError::Fold(_) => {
                true
            }
            ActivationError::Read(ReadError::NoSuchSession(_) | ReadError::Engine(_) | ReadError::Closed)
            | ActivationError::Poisoned(_)
            | ActivationError::Spawn(_)
            | ActivationError::Panic(_) => false,
        };
        if !damaged {
            return;
        }
        let why = error.to_string();
        self.takeover.unreadable.add(session, &why);
        for (owner, key) in self.waiting_for(session) {
            let notice = index::unreadable_from(session, key, &why);
            // A session that the sweep has not reached learns it from its own activation.
            self.tell_after_sweep(owner, Command::OwnedEnded(vec![notice]));
        }
    }

    /// Returns the calls that wait for an end of the session: of its run in flight, and those not yet received.
    fn waiting_for(&self, session: SessionId) -> Vec<(SessionId, CallId)> {
        let mut waiting = Vec::new();
        // A damaged row has no owner's name; the owner learns it at its activation.
        if let Ok(Some(row)) = self.log.journal.inflight_of(session) {
            let run = row.run;
            self.runs.run_over(RunKey { session, run });
            for deadline in [Deadline::Queue(run), Deadline::Run(run), Deadline::WallCap(run), Deadline::Grace(run)] {
                self.runs.timers.disarm(&Timer::Deadline(session, deadline));
            }
            if let Owner::Run { session: owner, call, .. } = row.owner {
                waiting.push((owner, call));
            }
        }
        for (row, _) in self.log.journal.outbox_to(session).unwrap_or_default() {
            if let (RowKind::Continue, RowKey::Call(key)) = (row.kind, row.key) {
                waiting.push((row.from, key));
            }
        }
        waiting
    }
}
