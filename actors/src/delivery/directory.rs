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

const SHARDS: usize = 16;

pub(crate) enum Presence {
    /// New, queued for its first slot: no actor yet.
    Unborn(Hot),
    /// No actor yet: the first item starts an activation.
    Absent,
    Starting,
    Active,
}

pub(crate) struct Hot {
    pub(crate) session: SessionId,
    /// Its state after its creation. `None` if enough queued children keep theirs: the journal has it.
    pub(crate) state: Option<Box<State>>,
    /// The permit to keep the state while the child is queued.
    pub(crate) kept: Option<OwnedSemaphorePermit>,
    /// The pool of its first run, and the limit of its wait.
    pub(crate) queues: (PoolKind, Duration),
    /// The LSN of its first record: its run's position in the queue.
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
    /// Nothing: an activation takes it.
    Nothing,
    /// Start the activation, from the kept state or from the journal.
    Start(Arc<Inbox>, Option<Hot>),
}

/// Hashed without a secret: ids are created here, and the order of drops is the same in every run.
type Entries = HashMap<SessionId, SessionEntry, FixedState>;

pub(crate) struct Directory {
    shards: Vec<Mutex<Entries>>,
    keep: Arc<Semaphore>,
}

impl Directory {
    /// Returns an empty directory, in which `keep` queued children keep their state.
    pub(crate) fn new(keep: usize) -> Self {
        let keep = Arc::new(Semaphore::new(keep.min(Semaphore::MAX_PERMITS)));
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), keep }
    }

    #[expect(clippy::indexing_slicing, reason = "the index is taken modulo the number of shards")]
    fn shard(&self, session: SessionId) -> MutexGuard<'_, Entries> {
        let ix = usize::try_from(FixedState::default().hash_one(session) % SHARDS as u64).unwrap_or_default();
        self.shards[ix].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `item` for `session`.
    ///
    /// Under the shard's lock, like unloading: an item is either seen by the unloading actor, or starts the next one.
    pub(crate) fn push(&self, session: SessionId, item: InboxItem) -> NextAction {
        let mut shard = self.shard(session);
        let entry = shard.entry(session).or_insert_with(absent);
        entry.inbox.push(item);
        start_if_absent(entry)
    }

    /// Queues an input for `session`, unless its inbox is full. Returns the earlier length.
    pub(crate) fn push_input(
        &self,
        session: SessionId,
        item: InboxItem,
        bound: usize,
    ) -> Result<(NextAction, usize), Full> {
        let mut shard = self.shard(session);
        let entry = shard.entry(session).or_insert_with(absent);
        let pushed = entry.inbox.push_input(item, bound);
        let next = start_if_absent(entry);
        pushed.map(|len| (next, len))
    }

    /// Queues `item` for `session` if its actor runs.
    pub(crate) fn push_if_active(&self, session: SessionId, item: InboxItem) {
        let shard = self.shard(session);
        if let Some(entry) = shard.get(&session).filter(|entry| matches!(entry.presence, Presence::Active)) {
            entry.inbox.push(item);
        }
    }

    /// Registers a new session that waits for its first slot.
    ///
    /// An existing entry stays: the session was in the log before this, so an input may already have started its activation from there. Items of
    /// a second inbox would never be handled.
    pub(crate) fn unborn(&self, session: SessionId, hot: Hot) {
        let entry = SessionEntry { inbox: Arc::default(), presence: Presence::Unborn(hot), budget: None };
        self.shard(session).entry(session).or_insert(entry);
    }

    /// Drops the state of a queued child, unless it may keep it.
    pub(crate) fn queued(&self, session: SessionId) {
        let dropped = self.with(session, |entry| match &mut entry.presence {
            Presence::Unborn(hot) => {
                hot.kept = Arc::clone(&self.keep).try_acquire_owned().ok();
                if hot.kept.is_none() { hot.state.take() } else { None }
            }
            Presence::Absent | Presence::Starting | Presence::Active => None,
        });
        // Outside of the shard's lock.
        drop(dropped);
    }

    /// Returns the inbox of `session`, which outlives its activations.
    pub(crate) fn inbox(&self, session: SessionId) -> Arc<Inbox> {
        Arc::clone(&self.shard(session).entry(session).or_insert_with(absent).inbox)
    }

    pub(crate) fn active(&self, session: SessionId) {
        if let Some(entry) = self.shard(session).get_mut(&session) {
            entry.presence = Presence::Active;
        }
    }

    /// Removes `session` if its inbox is empty.
    pub(crate) fn unload(&self, session: SessionId, inbox: &Inbox) -> bool {
        let mut shard = self.shard(session);
        if !inbox.is_empty() {
            return false;
        }
        let gone = shard.remove(&session);
        drop(shard);
        drop(gone);
        true
    }

    /// Removes `session` with its inbox: waiting callers get an error.
    pub(crate) fn remove(&self, session: SessionId) {
        let gone = self.shard(session).remove(&session);
        // Outside of the lock: its slot may be granted to a session of the same shard.
        drop(gone);
    }

    pub(crate) fn remove_if(&self, session: SessionId, inbox: &Arc<Inbox>) {
        let mut shard = self.shard(session);
        if shard.get(&session).is_some_and(|entry| Arc::ptr_eq(&entry.inbox, inbox)) {
            let gone = shard.remove(&session);
            drop(shard);
            drop(gone);
        }
    }

    /// Finds the session of the activation `actor`, after a crash: searches all.
    pub(crate) fn find(&self, actor: ActorId) -> Option<SessionId> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.iter().find_map(|(session, entry)| {
                entry.inbox.actor().is_some_and(|at| at.get_id() == actor).then_some(*session)
            })
        })
    }

    pub(crate) fn by_depth(&self) -> BTreeMap<u32, Vec<ActorRef<Wake>>> {
        let mut found: BTreeMap<u32, Vec<ActorRef<Wake>>> = BTreeMap::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (depth, actor) in shard.values().filter_map(|entry| entry.inbox.at_depth()) {
                found.entry(depth).or_default().push(actor);
            }
        }
        found
    }

    pub(crate) fn with<T>(&self, session: SessionId, work: impl FnOnce(&mut SessionEntry) -> T) -> Option<T> {
        self.shard(session).get_mut(&session).map(work)
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
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
        Presence::Unborn(hot) => NextAction::Start(Arc::clone(&entry.inbox), Some(hot)),
        Presence::Absent => NextAction::Start(Arc::clone(&entry.inbox), None),
        Presence::Starting => NextAction::Nothing,
    }
}
