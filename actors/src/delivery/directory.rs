//! The directory: active sessions and their inboxes.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use ractor::{ActorId, ActorRef};
use subtend_session::ids::{Lsn, SessionId};
use subtend_session::state::State;
use subtend_supervision::PoolKind;
use subtend_supervision::intensity::RestartBudget;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::delivery::inbox::{Full, Inbox, InboxItem, Wake};
use crate::delivery::sender::SenderKey;

const SHARDS: usize = 16;

pub(crate) enum Presence {
    /// A new session that is queued for its first slot and has no actor yet.
    NotStarted(NewChild),
    /// A session without an actor: the first item starts an activation.
    Absent,
    Starting,
    Active,
}

pub(crate) struct NewChild {
    pub(crate) session: SessionId,
    /// `None` if too many other queued children keep theirs. The journal then has it.
    pub(crate) state: Option<Box<State>>,
    /// The permit to keep the state while the child is queued.
    pub(crate) kept: Option<OwnedSemaphorePermit>,
    /// The pool of the first run, and the time limit of its wait.
    pub(crate) queues: (PoolKind, Duration),
    /// The LSN of the first record, which is the run's position in the queue.
    pub(crate) lsn: Lsn,
    pub(crate) created_ms: i64,
}

pub(crate) struct SessionEntry {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) presence: Presence,
    pub(crate) budget: Option<Box<RestartBudget>>,
}

/// The next step after an item was queued.
pub(crate) enum NextAction {
    /// An activation takes the item.
    Nothing,
    /// Starts an activation from the kept state or from the journal.
    Start(Arc<Inbox>, Option<NewChild>),
}

/// Hashed without a secret: this process creates the ids, and the order of drops must be the same in every run.
type Entries = HashMap<SessionId, SessionEntry, FixedState>;

#[derive(Default)]
struct SessionShard {
    entries: Entries,
    /// Number of accepted inputs that no run has taken, of sessions that left memory with some.
    unloaded: HashMap<SessionId, usize, FixedState>,
    /// Used restart budgets of sessions that left memory: one that crashes in each activation must not get a new one each time.
    budgets: HashMap<SessionId, Box<RestartBudget>, FixedState>,
}

impl SessionShard {
    fn entry(&mut self, session: SessionId) -> &mut SessionEntry {
        let (unloaded, budgets) = (&mut self.unloaded, &mut self.budgets);
        self.entries.entry(session).or_insert_with(|| {
            let entry = SessionEntry { budget: budgets.remove(&session), ..absent() };
            entry.inbox.report_queued(unloaded.remove(&session).unwrap_or_default());
            entry
        })
    }
}

pub(crate) struct Directory {
    shards: Vec<Mutex<SessionShard>>,
    keep: Arc<Semaphore>,
}

impl Directory {
    /// Returns an empty directory in which up to `keep` queued children keep their state.
    pub(crate) fn new(keep: usize) -> Self {
        let keep = Arc::new(Semaphore::new(keep.min(Semaphore::MAX_PERMITS)));
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), keep }
    }

    #[expect(clippy::indexing_slicing, reason = "the index is taken modulo the number of shards")]
    fn shard(&self, session: SessionId) -> MutexGuard<'_, SessionShard> {
        let ix = usize::try_from(FixedState::default().hash_one(session) % SHARDS as u64).unwrap_or_default();
        self.shards[ix].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `item` for `session`.
    /// Holds the shard's lock, as unloading does: the unloading actor sees the item, or the item starts the next activation.
    pub(crate) fn push(&self, session: SessionId, item: InboxItem) -> NextAction {
        let mut shard = self.shard(session);
        let entry = shard.entry(session);
        entry.inbox.push(item);
        start_if_absent(entry)
    }

    /// Queues an input for `session`, unless its inbox is full. Returns the earlier length.
    pub(crate) fn push_input(
        &self,
        session: SessionId,
        item: InboxItem,
        bound: usize,
        sender: SenderKey,
    ) -> Result<(NextAction, usize), Full> {
        let mut shard = self.shard(session);
        let entry = shard.entry(session);
        let pushed = entry.inbox.push_input(item, bound, sender);
        let next = start_if_absent(entry);
        pushed.map(|len| (next, len))
    }

    pub(crate) fn push_if_active(&self, session: SessionId, item: InboxItem) {
        let shard = self.shard(session);
        if let Some(entry) = shard.entries.get(&session).filter(|entry| matches!(entry.presence, Presence::Active)) {
            entry.inbox.push(item);
        }
    }

    /// Registers a new session that waits for its first slot.
    /// An existing entry remains: the session was already in the log, so an input may have started its activation from there. Items of a second inbox
    /// would never be handled.
    pub(crate) fn register_new(&self, session: SessionId, new_child: NewChild) {
        let entry = SessionEntry { inbox: Arc::default(), presence: Presence::NotStarted(new_child), budget: None };
        self.shard(session).entries.entry(session).or_insert(entry);
    }

    /// Drops the state of a queued child, unless it gets a permit to keep it.
    pub(crate) fn limit_kept_state(&self, session: SessionId) {
        let dropped = self.with(session, |entry| match &mut entry.presence {
            Presence::NotStarted(new_child) => {
                new_child.kept = Arc::clone(&self.keep).try_acquire_owned().ok();
                if new_child.kept.is_none() { new_child.state.take() } else { None }
            }
            Presence::Absent | Presence::Starting | Presence::Active => None,
        });
        drop(dropped);
    }

    /// Returns the inbox of `session`, which outlives its activations.
    pub(crate) fn inbox(&self, session: SessionId) -> Arc<Inbox> {
        Arc::clone(&self.shard(session).entry(session).inbox)
    }

    pub(crate) fn set_active(&self, session: SessionId) {
        if let Some(entry) = self.shard(session).entries.get_mut(&session) {
            entry.presence = Presence::Active;
        }
    }

    /// Removes `session` if its inbox is empty.
    pub(crate) fn unload(&self, session: SessionId, inbox: &Inbox) -> bool {
        let mut shard = self.shard(session);
        if !inbox.is_empty() {
            return false;
        }
        let mut gone = shard.entries.remove(&session);
        if let Some(budget) = gone.as_mut().and_then(|entry| entry.budget.take()) {
            let now = crate::clock::now();
            shard.budgets.insert(session, budget);
            shard.budgets.retain(|_, budget| !budget.is_unused(now));
        }
        let queued = inbox.reported_queued();
        if queued > 0 {
            shard.unloaded.insert(session, queued);
        }
        drop(shard);
        drop(gone);
        true
    }

    /// Removes `session` with its inbox; waiting callers get an error.
    pub(crate) fn remove(&self, session: SessionId) {
        let gone = self.shard(session).entries.remove(&session);
        // Dropped outside of the lock: the slot may be granted to a session of the same shard.
        drop(gone);
    }

    pub(crate) fn remove_if(&self, session: SessionId, inbox: &Arc<Inbox>) {
        let mut shard = self.shard(session);
        if shard.entries.get(&session).is_some_and(|entry| Arc::ptr_eq(&entry.inbox, inbox)) {
            let gone = shard.entries.remove(&session);
            drop(shard);
            drop(gone);
        }
    }

    /// Finds the session of the activation `actor` after a crash. Scans all entries.
    pub(crate) fn find(&self, actor: ActorId) -> Option<SessionId> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.entries.iter().find_map(|(session, entry)| {
                entry.inbox.actor().is_some_and(|at| at.get_id() == actor).then_some(*session)
            })
        })
    }

    pub(crate) fn by_depth(&self) -> BTreeMap<u32, Vec<ActorRef<Wake>>> {
        let mut found: BTreeMap<u32, Vec<ActorRef<Wake>>> = BTreeMap::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (depth, actor) in shard.entries.values().filter_map(|entry| entry.inbox.at_depth()) {
                found.entry(depth).or_default().push(actor);
            }
        }
        found
    }

    pub(crate) fn with<T>(&self, session: SessionId, work: impl FnOnce(&mut SessionEntry) -> T) -> Option<T> {
        self.shard(session).entries.get_mut(&session).map(work)
    }

    pub(crate) fn len(&self) -> usize {
        self.sum(|shard| shard.entries.len())
    }

    /// Returns the number of accepted inputs that no run has taken, of sessions that were in memory since the start.
    pub(crate) fn queued_inputs(&self) -> usize {
        self.sum(|shard| {
            let loaded: usize = shard.entries.values().map(|entry| entry.inbox.reported_queued()).sum();
            loaded.saturating_add(shard.unloaded.values().sum())
        })
    }

    fn sum(&self, of: impl Fn(&SessionShard) -> usize) -> usize {
        self.shards.iter().map(|shard| of(&shard.lock().unwrap_or_else(PoisonError::into_inner))).sum()
    }

    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            // Dropped outside of the lock: reply channels run code of waiting callers.
            drop(gone);
        }
    }
}

fn absent() -> SessionEntry {
    SessionEntry { inbox: Arc::default(), presence: Presence::Absent, budget: None }
}

fn start_if_absent(entry: &mut SessionEntry) -> NextAction {
    let starting = std::mem::replace(&mut entry.presence, Presence::Starting);
    match starting {
        Presence::Active => {
            entry.presence = Presence::Active;
            NextAction::Nothing
        }
        Presence::NotStarted(new_child) => NextAction::Start(Arc::clone(&entry.inbox), Some(new_child)),
        Presence::Absent => NextAction::Start(Arc::clone(&entry.inbox), None),
        Presence::Starting => NextAction::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use subtend_supervision::RestartDecision;
    use subtend_supervision::intensity::Intensity;
    use uuid::Uuid;

    use super::*;

    /// A session crashes after each time that it was loaded. The control: the window of the budget ends.
    #[tokio::test(start_paused = true)]
    async fn restart_budget_outlives_the_stay_of_its_session() {
        let (directory, session) = (Directory::new(0), SessionId(Uuid::from_u128(1)));
        let crash = || {
            let inbox = directory.inbox(session);
            let new = || Box::new(RestartBudget::new(Intensity::default()));
            let admitted = directory.with(session, |entry| {
                entry.budget.get_or_insert_with(new).admit(crate::clock::now(), 0.0) != RestartDecision::Exhausted
            });
            assert!(directory.unload(session, &inbox));
            (admitted, directory.len(), directory.sum(|shard| shard.budgets.len()))
        };
        let kept = (Some(true), 0, 1);
        assert_eq!([crash(), crash(), crash(), crash()], [kept, kept, kept, (Some(false), 0, 1)]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(crash(), kept);
    }
}
