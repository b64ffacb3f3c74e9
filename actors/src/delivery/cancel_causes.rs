//! Causes of cancellations: what the owners of runs decided, noted before their tokens fire (S-8).

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{CallId, RunKey, SessionId};
use subtend_session::outcome::{By, OutcomeKind};

/// Why runs are cancelled by their owners. The notes of a run are removed when it ends.
#[derive(Default)]
pub(crate) struct CancelCauses(Mutex<Causes>);

#[derive(Default)]
struct Causes {
    /// Outcomes of runs that close: the true cause for all that they own.
    own: HashMap<RunKey, OutcomeKind>,
    /// Those of them whose whole tree is cancelled: inputs below them stay queued.
    keep_queues: HashSet<RunKey>,
    /// Runs that their owner cancels one by one, by its interrupt or by a call of its model, while it continues itself. Noted by
    /// run and not by owner: the owner has other runs, which this spares and which a cancel of an ancestor may still end.
    single: HashMap<RunKey, (CallId, By)>,
    /// Runs that continue calls opened, by owner and call: the owner knows the call only, not the number of the run.
    continued: HashMap<(SessionId, CallId), RunKey>,
}

impl CancelCauses {
    fn lock(&self) -> MutexGuard<'_, Causes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that `run` closes as `outcome`, and whether inputs below it stay queued.
    pub(crate) fn closes(&self, run: RunKey, outcome: OutcomeKind, keeps_queues: bool) {
        let mut causes = self.lock();
        causes.own.insert(run, outcome);
        if keeps_queues {
            causes.keep_queues.insert(run);
        }
    }

    /// Returns the outcome as which `run` closes.
    pub(crate) fn closing(&self, run: RunKey) -> Option<OutcomeKind> {
        self.lock().own.get(&run).copied()
    }

    /// Returns whether `run` or a run that `owner_of` finds above it closes with its whole tree.
    pub(crate) fn keeps_queues_below(&self, run: RunKey, owner_of: impl Fn(&RunKey) -> Option<RunKey>) -> bool {
        if self.lock().keep_queues.is_empty() {
            return false;
        }
        std::iter::successors(Some(run), owner_of).any(|run| self.lock().keep_queues.contains(&run))
    }

    /// Returns the call by which the owner of `owned` cancels it alone, and on whose behalf.
    pub(crate) fn single(&self, owned: RunKey) -> Option<(CallId, By)> {
        self.lock().single.get(&owned).cloned()
    }

    /// Notes that the owner of `owned` cancels it alone: before its token fires.
    pub(crate) fn cancels_single(&self, owned: RunKey, call: CallId, by: By) {
        self.lock().single.insert(owned, (call, by));
    }

    /// Removes that note: there was no token to fire, so that no end of the run would remove it.
    pub(crate) fn forget_single(&self, owned: RunKey) {
        self.lock().single.remove(&owned);
    }

    /// Notes the run that a call of `owner` opened in an ended session.
    pub(crate) fn continues(&self, owner: SessionId, call: CallId, run: RunKey) {
        self.lock().continued.insert((owner, call), run);
    }

    /// Returns the run that a call of `owner` opened in an ended session.
    pub(crate) fn continued(&self, owner: SessionId, call: CallId) -> Option<RunKey> {
        self.lock().continued.get(&(owner, call)).copied()
    }

    /// Removes all notes of a run that has ended.
    pub(crate) fn forget(&self, run: RunKey) {
        let mut causes = self.lock();
        if !causes.own.is_empty() {
            causes.own.remove(&run);
            causes.keep_queues.remove(&run);
        }
        if !causes.single.is_empty() {
            causes.single.remove(&run);
        }
        if !causes.continued.is_empty() {
            causes.continued.retain(|_, other| *other != run);
        }
    }
}
