//! Activation: starts the actor of a session, from its kept state or by folding its journal, and restarts it after a crash.

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
use crate::delivery::directory::{NewChild, Presence};
use crate::delivery::inbox::{Inbox, InboxItem};
use crate::delivery::ticket::Timer;
use crate::faults::InternalEvent;
use crate::recovery::rows::DueRows;
use crate::values::at_boot::{AtBoot, Lost};

/// The reason why a session could not be activated. The session remains in the journal, and other sessions are not affected.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActivationError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
    #[error("its records cannot be folded: {0}")]
    Fold(#[from] FoldError),
    #[error("its actor cannot be started: {0}")]
    Spawn(String),
    #[error("loading it panicked: {0}")]
    Panic(String),
}

impl Cells {
    pub(crate) fn start(self: &Arc<Self>, session: SessionId, inbox: Arc<Inbox>, new_child: Option<NewChild>) {
        let cells = Arc::clone(self);
        tokio::spawn(async move { cells.activate(session, inbox, new_child).await });
    }

    /// Activates a session. If that fails, its queued items are dropped, so that their callers are notified.
    pub(crate) async fn activate(self: &Arc<Self>, session: SessionId, inbox: Arc<Inbox>, new_child: Option<NewChild>) {
        if self.life.halt.is_cancelled() {
            // Actors are being stopped, deepest first: a restarted one would outlive its owner. Its rows remain for the next start.
            return self.directory.remove(session);
        }
        let making = std::panic::AssertUnwindSafe(self.start_actor(session, Arc::clone(&inbox), new_child));
        let made = match making.catch_unwind().await {
            Ok(made) => made,
            Err(panic) => Err(ActivationError::Panic(crate::values::panic::panic_text(&*panic).to_string())),
        };
        if let Err(error) = made {
            if !self.life.is_stopping() {
                tracing::error!(%session, %error, "cannot activate the session");
            }
            if let Some(lost) = inbox.lost() {
                // The mark is lost with the inbox, so it is set again: a later activation must not resume a lost run.
                self.takeover.mark([(session, AtBoot::Lost(lost))]);
            }
            self.directory.remove(session);
            self.waiters.forget(session);
            self.on_activation_failed(session, &error);
        }
    }

    async fn start_actor(
        self: &Arc<Self>,
        session: SessionId,
        inbox: Arc<Inbox>,
        new_child: Option<NewChild>,
    ) -> Result<(), ActivationError> {
        let driver = match new_child {
            // Its slot and queue deadline were requested at its creation.
            Some(new_child) => {
                let state = match new_child.state {
                    Some(state) => state,
                    None => self.fold_new_session(session, new_child.lsn).await?,
                };
                let mut driver = Box::new(Driver::new(Arc::clone(self), state, inbox, Epoch(1)));
                driver.written.opened_lsn = new_child.lsn;
                driver.written.last_lsn = new_child.lsn;
                driver.written.created_ms = new_child.created_ms;
                driver
            }
            None => Box::pin(self.load(session, inbox)).await?,
        };
        if self.life.halt.is_cancelled() {
            // A shutdown stopped the actors while this one was loaded.
            self.directory.remove(session);
            return Ok(());
        }
        // This precedes the spawn: an exit of the new actor must find an active entry.
        self.directory.set_active(session);
        let spawned = Box::pin(self.supervisors.spawn(SessionActor, driver)).await;
        spawned.map(drop).map_err(|error| ActivationError::Spawn(error.to_string()))
    }

    /// Folds a queued child whose state was dropped. It has not decided anything since its creation.
    async fn fold_new_session(&self, session: SessionId, created: Lsn) -> Result<Box<State>, ActivationError> {
        self.log.journal.wait(created).await?;
        let frame = self.log.journal.frame_at(created)?.filter(|(of, _)| *of == session);
        let (_, stored) = frame.ok_or(ReadError::NoSuchSession(session))?;
        Ok(Box::new(State::fold(session, stored.iter().map(|stored| &stored.record))?))
    }

    /// Folds the journal, and collects the commands that a new activation handles first.
    async fn load(self: &Arc<Self>, session: SessionId, inbox: Arc<Inbox>) -> Result<Box<Driver>, ActivationError> {
        // Read before the outbox, so that no end is missed: a later end arrives in the inbox.
        let mut dormant = self.takeover.is_dormant(session);
        if !dormant && let Some(lost) = self.takeover.take_mark(session) {
            inbox.mark_lost(lost);
        }
        self.log.journal.settled().await?;
        let (activation, state, room) = Box::pin(self.fold_journal(session)).await?;
        let mut rows = self.due_rows(session)?;
        rows.owed.extend(self.takeover.unreadable.owed_notices(&state));
        if state.run.is_none() && rows.requests.is_empty() {
            // An idle session may have crashed on an input. The marks `lost` and `exhausted` then end no run, and must
            // not apply to a later run. A session that crashes on an outbox row keeps them, which delays its restarts.
            inbox.settle();
        }
        let lost = inbox.lost();
        let mut driver = Box::new(Driver::new(Arc::clone(self), state, Arc::clone(&inbox), activation.epoch));
        driver.room = room;
        driver.written.created_ms = activation.head.as_ref().map_or(driver.written.created_ms, |head| head.created_ms);
        driver.written.last_lsn = self.log.journal.durable();
        if let Some(row) = &activation.inflight {
            driver.written.opened_lsn = row.opened_lsn;
            dormant &= inbox.lost().is_none() && inbox.exhausted().is_none();
            driver.written.starts = row.starts.saturating_add(u32::from(!dormant));
        }
        let command = match &driver.state.run {
            None => None,
            Some(run) => {
                (driver.dormant, driver.written.unmarked) = (dormant, !dormant);
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
            self.release_last_run(&driver);
        }
        // These precede all queued items. `Lost` takes the owed ends, so that they do not start a turn; any other command redoes the interrupted
        // turn before the ends are handled.
        let mut requests = rows.requests;
        requests.extend(self.runs.pending_cancels(&driver.state).filter(|_| lost.is_none()));
        if driver.dormant {
            return Ok(driver);
        }
        self.host.faults.see(InternalEvent::Activated(session));
        driver.todo.first = Some(Box::new(First { lost: lost.is_some(), requests, command, owed: rows.owed }));
        Ok(driver)
    }

    /// Reads the rows to a session, until the runtime halts.
    pub(super) fn due_rows(&self, session: SessionId) -> Result<DueRows, ReadError> {
        let journal = &self.log.journal;
        let rows = journal.outbox_to(session)?;
        if rows.is_empty() {
            return Ok(DueRows::default());
        }
        self.takeover.read_rows(|reader| reader.read(journal, rows, || self.life.halt.is_cancelled()))
    }

    /// Redoes effects of an appended batch that the crashed activation may not have performed. Each of them is idempotent.
    /// `Reactivated` redoes model calls, tools, admission, cancels of a closing run and slot requests.
    fn redo_effects(self: &Arc<Self>, driver: &Driver) -> Result<(), ReadError> {
        let session = driver.session();
        // Slots are released before others are requested, so that no request waits for a slot that its own run should have released.
        let run = driver.state.run.as_ref();
        if run.is_none_or(|run| !run.slot) {
            driver.inbox.release_slot();
        }
        if run.is_none_or(|run| run.started && run.parked != Some(Park::Slot))
            && let Some(key) = driver.run_key()
        {
            self.runs.slots.withdraw(key);
        }
        let journal = &self.log.journal;
        let rows = journal.outbox()?.into_iter().filter(|(row, _)| row.from == session);
        let commands: Vec<_> = self.takeover.read_rows(|reader| {
            rows.map(|(row, lsn)| Ok((row.to, reader.command(journal, &row, lsn)?))).collect::<Result<_, ReadError>>()
        })?;
        for (to, command) in commands {
            command.into_iter().for_each(|command| self.send_after_sweep(to, command));
        }
        // The probe activates a child that never started, maybe without an owner; it then requests its slot.
        for child in driver.state.children.keys().copied() {
            let absent = self.directory.with(child, |_| ()).is_none();
            if absent && self.log.journal.head(child)?.is_some_and(|head| head.state == Phase::Queued) {
                let (sender, _) = oneshot::channel();
                self.deliver(child, InboxItem::Probe(sender));
            }
        }
        if let Some(last) = &driver.state.last {
            driver.notify_waiters(last.run);
        }
        Ok(())
    }

    /// Releases the resources of the last run, if its end was appended but its effects were not performed.
    fn release_last_run(&self, driver: &Driver) {
        let Some(last) = &driver.state.last else { return };
        let (session, run) = (driver.session(), last.run);
        self.runs.release_run(RunKey { session, run });
        for deadline in [Deadline::Queue(run), Deadline::Run(run), Deadline::WallCap(run), Deadline::Grace(run)] {
            self.runs.timers.disarm(&Timer::Deadline(session, deadline));
        }
    }

    /// Returns the command that the folded run in flight handles first.
    fn first_command(&self, driver: &mut Driver, inbox: &Inbox, lost: Option<Lost>) -> Command {
        if let Some(command) = inbox.exhausted() {
            driver.run_key().into_iter().for_each(|run| self.host.faults.see(InternalEvent::GivesUp(run)));
            return Command::RestartsExhausted { command: command.map(Into::into) };
        }
        if let Some(Lost { keeps_queue }) = lost {
            // A queued run of an imported session must not start: it ends, and the inputs behind it wait for a person.
            let imported = driver.state.created.imported.is_some();
            let survives = driver.state.run.as_ref().is_some_and(|run| match run.opened.owner {
                Owner::Run { .. } => false,
                Owner::Person | Owner::Host(_) | Owner::Detached { .. } => !imported,
            });
            let keeps_queue = keeps_queue || imported || !self.takeover.resumes;
            let ends = !(survives && driver.state.phase() == Phase::Queued);
            if ends && keeps_queue && !driver.state.queue.is_empty() {
                self.takeover.keeps_queue(driver.state.id, driver.state.queue.len());
            }
            return Command::Lost { owner_survives: survives, keeps_queue };
        }
        let owner_ended = self.runs.ended_owner_outcome(&driver.state);
        Command::Reactivated { calls: driver.unstarted_calls(), owner_ended }
    }

    /// Restarts a crashed actor from the journal within its restart budget, or ends its run.
    pub(crate) fn on_exit(self: &Arc<Self>, exit: &Exit) {
        let message = match &exit.how {
            ExitReason::Stopped => return,
            // This precedes the lookup in the directory: a shutdown may kill a hundred thousand actors.
            ExitReason::Killed if self.life.is_stopping() => return,
            ExitReason::Killed => "killed".to_owned(),
            ExitReason::Failed(message) => message.clone(),
        };
        let Some(session) = self.directory.find(exit.actor) else { return };
        self.host.faults.see(InternalEvent::Died(session));
        // Nothing starts during a shutdown: the next start finds the run in flight, and its open asks.
        if self.life.is_stopping() {
            return;
        }
        let (intensity, jitter) = (self.host.options.restarts, self.host.ids.jitter());
        let restart = self.directory.with(session, |entry| {
            entry.inbox.unbind();
            entry.presence = Presence::Starting;
            let (killer, again) = entry.inbox.record_crash();
            let budget = entry.budget.get_or_insert_with(|| Box::new(RestartBudget::new(intensity)));
            let verdict = budget.admit(crate::clock::now(), jitter);
            let delay = match verdict {
                RestartDecision::After(delay) if !again => delay,
                // A session that crashes even while it ends its run is retried with a delay, so that the run ends when the fault is gone.
                RestartDecision::After(_) | RestartDecision::Exhausted if entry.inbox.exhaust(killer) => {
                    // Its first command may crash every activation, so the items behind it are never handled.
                    entry.inbox.drop_probes();
                    intensity.cap
                }
                RestartDecision::After(_) | RestartDecision::Exhausted => std::time::Duration::ZERO,
            };
            (Arc::clone(&entry.inbox), delay, killer)
        });
        let Some((inbox, delay, killer)) = restart else { return };
        tracing::warn!(%session, command = killer.unwrap_or("none"), %message, ?delay, "the session's actor crashed");
        let cells = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            cells.activate(session, inbox, None).await;
        });
    }
}

impl Cells {
    /// Notifies the owner of a session that could not be activated because it is unreadable, and releases what its run held.
    pub(crate) fn on_activation_failed(self: &Arc<Self>, session: SessionId, error: &ActivationError) {
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
            // A session that the sweep has not reached is notified by its own activation.
            self.send_after_sweep(owner, Command::OwnedEnded(vec![notice]));
        }
    }

    /// Releases what the run in flight holds. Returns the calls that wait for it, or for the session to continue.
    fn waiting_for(&self, session: SessionId) -> Vec<(SessionId, CallId)> {
        let mut waiting = Vec::new();
        // An unreadable row names no owner. The owner detects the damage at its own activation.
        if let Ok(Some(row)) = self.log.journal.inflight_of(session) {
            let run = row.run;
            self.runs.release_run(RunKey { session, run });
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
