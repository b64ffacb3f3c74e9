//! Resources of runs in flight (token, slot, deadlines, account), and the causes of their ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtend_journal::{Journal, ReadError};
use subtend_models::models::Models;
use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunKey, Seq, SessionId};
use subtend_session::index::{Row, RowKey, RowKind};
use subtend_session::outcome::{Initiator, Outcome, OutcomeKind};
use subtend_session::place::Owner;
use subtend_session::record::Hold;
use subtend_session::state::State;
use subtend_supervision::{PoolKind, SlotPools, Timers, TokenTree};

use crate::calls::model_calls::ModelCalls;
use crate::clock::now;
use crate::delivery::cancel_causes::{CancelCause, Continued};
use crate::delivery::live_processes::LiveProcesses;
use crate::delivery::ticket::{Ticket, Timer};
use crate::values::paging;

pub(crate) type RunTokens = TokenTree<RunKey, CancelCause>;

/// Maximum number of outcomes of owners that are remembered.
const MAX_RECORDED: usize = 1_024;

/// The resources of runs in flight, by key, independent of their sessions.
pub(crate) struct Runs {
    pub(crate) tokens: RunTokens,
    pub(crate) slots: SlotPools<SessionId, Ticket>,
    pub(crate) timers: Timers<Timer>,
    pub(crate) processes: LiveProcesses,
    pub(crate) continued: Continued,
    pub(crate) calls: Arc<ModelCalls>,
    pub(crate) journal: Journal,
    /// Outcomes of runs, with the last record of their session: a large session may have continued thousands of others.
    pub(crate) recorded: Mutex<BTreeMap<RunKey, (Seq, RecordedOutcome)>>,
}

/// The outcome that the records of a run show, and its owner if it is in flight.
#[derive(Clone, Copy)]
pub(crate) struct RecordedOutcome {
    outcome: Option<OutcomeKind>,
    owner: Option<(SessionId, CallId)>,
}

impl Runs {
    /// Returns the outcome of the run's owner, if it has ended or is closing. Every opening of a run checks this.
    /// The token survives activations, fires when the owner closes, and starts cancelled if the owner is unknown.
    pub(crate) fn ended_owner_outcome(&self, state: &State) -> Option<OutcomeKind> {
        let run = state.run.as_ref()?;
        match &run.opened.owner {
            Owner::Run { session, run: no, .. } => {
                let key = RunKey { session: state.id, run: run.no };
                let owner = RunKey { session: *session, run: *no };
                let fired = self.tokens.fired(&key) || self.tokens.fired(&owner);
                fired.then(|| self.owner_outcome(owner, key))
            }
            Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
        }
    }

    /// Returns the command for an ended owner, if queued inputs must remain; else the owner's own command arrives.
    fn queue_kept_cancel(&self, state: &State) -> Option<Command> {
        let outcome = self.ended_owner_outcome(state)?;
        let owner = state.run.as_ref().and_then(|run| run.opened.owner.run())?;
        self.closes_whole_tree(owner).then_some(Command::OwnerEnded { owner, outcome, keeps_queue: true })
    }

    /// Returns commands of the owner that must precede its end: a cancel of this run alone, or an end that keeps its
    /// queue. The token may fire before the outbox row is readable and before the command reaches the inbox.
    pub(crate) fn pending_cancels(&self, state: &State) -> impl Iterator<Item = Command> {
        let owned = state.run.as_ref().and_then(|run| {
            let owner = run.opened.owner.run()?;
            self.single_cancel(owner.session, RunKey { session: state.id, run: run.no })
        });
        owned.into_iter().chain(self.queue_kept_cancel(state))
    }

    /// Returns the command with the cause for the run `owned`, whose token has fired: its own cause or its owner's.
    pub(crate) fn cancel_cause_command(&self, owner: RunKey, owned: RunKey) -> Command {
        self.single_cancel(owner.session, owned).unwrap_or_else(|| Command::OwnerEnded {
            owner,
            outcome: self.owner_outcome(owner, owned),
            keeps_queue: self.closes_whole_tree(owner),
        })
    }

    /// Returns the outcome of `owner`, which asks to continue a session, if it has ended or is closing.
    /// An owner without a token has ended, or was in flight when the host died; the journal shows which.
    pub(crate) fn owner_outcome_of(&self, owner: RunKey) -> Option<OutcomeKind> {
        match self.tokens.token(&owner) {
            Some(token) if !token.is_cancelled() => None,
            Some(_) => Some(self.closing_outcome(owner)),
            None => Some(self.outcome_after_sweep(owner).unwrap_or(OutcomeKind::Lost)),
        }
    }

    /// Returns the outcome of a run that has ended, or that the boot sweep will end.
    fn outcome_after_sweep(&self, key: RunKey) -> Option<OutcomeKind> {
        let last = self.journal.head(key.session).ok()??.last_seq;
        let lock = || self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&key).filter(|(at, _)| *at == last).map(|(_, recorded)| *recorded);
        let recorded = match known {
            Some(recorded) => recorded,
            None => {
                let recorded = self.recorded_outcome(key)?;
                let mut all = lock();
                if all.len() >= MAX_RECORDED {
                    all.clear();
                }
                all.insert(key, (last, recorded));
                recorded
            }
        };
        // A pending cancel precedes the end by the sweep.
        let cancelled = || recorded.owner.is_some_and(|owner| self.has_cancel_row(key.session, owner));
        recorded.outcome.or_else(|| cancelled().then_some(OutcomeKind::Cancelled))
    }

    fn recorded_outcome(&self, key: RunKey) -> Option<RecordedOutcome> {
        let state = paging::fold_to(&self.journal, key.session, Seq(u64::MAX)).ok()?.ok()?;
        if let Some(run) = state.run.as_ref().filter(|run| run.no == key.run) {
            let outcome = run.hold.as_ref().map(|hold| match hold {
                Hold::Interrupted { .. } => OutcomeKind::Interrupted,
                Hold::OutOfTurns => OutcomeKind::OutOfTurns,
                Hold::Closing { outcome, .. } => outcome.kind(),
            });
            let owner =
                if let Owner::Run { session, call, .. } = run.opened.owner { Some((session, call)) } else { None };
            return Some(RecordedOutcome { outcome, owner });
        }
        let at = usize::try_from(key.run.0).ok()?.checked_sub(1)?;
        Some(RecordedOutcome { outcome: state.outcomes.get(at).map(Outcome::kind), owner: None })
    }

    /// Returns whether an undelivered row cancels the run in flight of `session`, which the call `key` owns.
    fn has_cancel_row(&self, session: SessionId, (from, key): (SessionId, CallId)) -> bool {
        let cancels = |row: &Row| row.kind == RowKind::Cancel && row.from == from && row.key == RowKey::Call(key);
        self.journal.outbox_to(session).is_ok_and(|rows| rows.iter().any(|(row, _)| cancels(row)))
    }

    /// Returns whether `owner` or an ancestor closes with its whole tree.
    fn closes_whole_tree(&self, owner: RunKey) -> bool {
        let mut ancestors = std::iter::successors(Some(owner), |run| self.tokens.owner(run));
        ancestors.any(|run| self.tokens.cause(&run, |cause| cause.keeps_queues) == Some(true))
    }

    /// Returns the outcome of the owner that ends the run `owned`.
    fn owner_outcome(&self, owner: RunKey, owned: RunKey) -> OutcomeKind {
        match self.single_cancel_cause(owned) {
            Some((_, Initiator::Owner { outcome })) => outcome,
            Some((_, Initiator::Person | Initiator::Host | Initiator::Model { .. } | Initiator::Sweep)) => {
                OutcomeKind::Cancelled
            }
            None => self.closing_outcome(owner),
        }
    }

    /// Returns the outcome of `run`, whose token has fired; without its own it closes with its owner, as cancelled.
    fn closing_outcome(&self, run: RunKey) -> OutcomeKind {
        self.tokens.cause(&run, |cause| cause.closes).flatten().unwrap_or(OutcomeKind::Cancelled)
    }

    /// Returns the call that owns the run `owned`, and the initiator, if the owner cancels this run alone.
    fn single_cancel_cause(&self, owned: RunKey) -> Option<(CallId, Initiator)> {
        self.tokens.cause(&owned, |cause| cause.alone.clone()).flatten()
    }

    /// Returns the command that reports to the run `owned` that its owner cancels this run alone.
    pub(crate) fn single_cancel(&self, owner: SessionId, owned: RunKey) -> Option<Command> {
        let (key, by) = self.single_cancel_cause(owned)?;
        Some(Command::OwnerCancels { owner, key, by })
    }

    /// Opens the accounts of a resumed root run. An owned run spends from its root run's account.
    pub(crate) fn restore_accounts(&self, models: &Models, run: RunKey) -> Result<(), ReadError> {
        if self.tokens.root(&run) == Some(run) { self.calls.restore_accounts(models, run) } else { Ok(()) }
    }

    /// Releases the resources of an ended run: its token with its cause, and its accounts.
    pub(crate) fn release_run(&self, key: RunKey) {
        self.tokens.close(&key);
        self.processes.end(key.session);
        // Only a root run has an account.
        self.calls.ledger.forget(key);
        self.calls.budgets.forget(key);
        self.continued.remove(key);
        self.calls.parked.forget(key.session);
    }

    /// Returns how long a queued run may still wait, counted from the last slot granted to its root: that grant shows
    /// that the queue moves. `None` if the time is over, or if no run waits.
    pub(crate) fn queue_time_left(
        &self,
        ticket: RunKey,
        (pool_kind, patience): (PoolKind, Duration),
    ) -> Option<Duration> {
        let since = self.slots.of(pool_kind).waiting_since(ticket)?;
        let until = since.checked_add(patience)?;
        (until > now()).then(|| until.duration_since(now()))
    }
}
