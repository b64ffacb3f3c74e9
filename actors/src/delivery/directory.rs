//! The directory: which sessions are active, and where the items of each wait.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ractor::{ActorId, ActorRef};
use subtend_session::ids::{Lsn, SessionId};
use subtend_session::state::State;
use subtend_supervision::PoolKind;
use subtend_supervision::intensity::RestartBudget;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::delivery::inbox::{Full, Inbox, InboxItem, Wake};

const SHARDS: usize = 16;

/// How present a session is.
pub(crate) enum Presence {
    /// Born, queued for its first slot: no actor yet.
    Unborn(Hot),
    /// Nobody yet: the first item starts an activation.
    Absent,
    /// An activation is being made.
    Starting,
    /// An actor runs.
    Active,
}

/// A session that was just born.
pub(crate) struct Hot {
    /// The session.
    pub(crate) session: SessionId,
    /// Its state, as it was decided. Missing where enough queued children keep theirs: the journal has it.
    pub(crate) state: Option<Box<State>>,
    /// The right to keep the state while the child is queued.
    pub(crate) kept: Option<OwnedSemaphorePermit>,
    /// The pool that its first run is queued in, and how long it may be.
    pub(crate) queues: (PoolKind, Duration),
    /// The LSN of its birth: its run's place in the queue.
    pub(crate) lsn: Lsn,
    /// When it was born.
    pub(crate) created_ms: i64,
}

/// A session that is present.
pub(crate) struct Entry {
    /// Where its items wait.
    pub(crate) inbox: Arc<Inbox>,
    /// How present it is.
    pub(crate) presence: Presence,
    /// Restarts of its actor, once there was one.
    pub(crate) budget: Option<Box<RestartBudget>>,
}

/// What is to be done after something was queued.
pub(crate) enum Next {
    /// Nothing: an activation takes it.
    Nothing,
    /// Start the activation: from the hot state, or from the journal.
    Start(Arc<Inbox>, Option<Hot>),
}

/// Hashed without a secret: ids are minted here, and what is dropped together is dropped in the same order in every run.
type Hasher = BuildHasherDefault<DefaultHasher>;
type Entries = HashMap<SessionId, Entry, Hasher>;

/// All sessions that are present. Quiet and passivated ones are not.
pub(crate) struct Directory {
    shards: Vec<Mutex<Entries>>,
    /// Queued children that may keep their state.
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
        let ix = usize::try_from(Hasher::default().hash_one(session) % SHARDS as u64).unwrap_or_default();
        self.shards[ix].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `item` for `session`.
    ///
    /// Under the shard's lock, as is unloading: an item is either seen by the actor that unloads, or starts the next one.
    pub(crate) fn push(&self, session: SessionId, item: InboxItem) -> Next {
        let mut shard = self.shard(session);
        let entry = shard.entry(session).or_insert_with(absent);
        entry.inbox.push(item);
        start_if_absent(entry)
    }

    /// Queues an input for `session`, unless its inbox is full. Returns how many the inbox held before.
    pub(crate) fn push_input(&self, session: SessionId, item: InboxItem, bound: usize) -> Result<(Next, usize), Full> {
        let mut shard = self.shard(session);
        let entry = shard.entry(session).or_insert_with(absent);
        let pushed = entry.inbox.push_input(item, bound);
        let next = start_if_absent(entry);
        pushed.map(|len| (next, len))
    }

    /// Queues `item` for `session` if an actor of it runs; it starts none.
    pub(crate) fn push_if_active(&self, session: SessionId, item: InboxItem) {
        let shard = self.shard(session);
        if let Some(entry) = shard.get(&session).filter(|entry| matches!(entry.presence, Presence::Active)) {
            entry.inbox.push(item);
        }
    }

    /// Registers a session that is born and waits for its first slot.
    ///
    /// One that is present already stays: its birth was in the log before this, and whoever found it there and addressed it
    /// has started an activation from the journal. A second inbox beside that one's would never be looked at.
    pub(crate) fn unborn(&self, session: SessionId, hot: Hot) {
        let entry = Entry { inbox: Arc::default(), presence: Presence::Unborn(hot), budget: None };
        self.shard(session).entry(session).or_insert(entry);
    }

    /// Drops the state of a child that is queued, unless it is among those that keep theirs.
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

    /// The inbox of `session`, which outlives its activations.
    pub(crate) fn inbox(&self, session: SessionId) -> Arc<Inbox> {
        Arc::clone(&self.shard(session).entry(session).or_insert_with(absent).inbox)
    }

    /// The activation of `session` runs.
    pub(crate) fn active(&self, session: SessionId) {
        if let Some(entry) = self.shard(session).get_mut(&session) {
            entry.presence = Presence::Active;
        }
    }

    /// Removes `session` if nothing waits in its inbox.
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

    /// Removes `session` with all that waits: those who wait for answers see that it is gone.
    pub(crate) fn remove(&self, session: SessionId) {
        let gone = self.shard(session).remove(&session);
        // Outside the lock: a slot that it holds may be granted to a session of the same shard.
        drop(gone);
    }

    /// Removes `session` if it is still the one of `inbox`.
    pub(crate) fn remove_if(&self, session: SessionId, inbox: &Arc<Inbox>) {
        let mut shard = self.shard(session);
        if shard.get(&session).is_some_and(|entry| Arc::ptr_eq(&entry.inbox, inbox)) {
            let gone = shard.remove(&session);
            drop(shard);
            drop(gone);
        }
    }

    /// Finds the session whose activation is `actor`. Only after a crash of one: it looks at all.
    pub(crate) fn find(&self, actor: ActorId) -> Option<SessionId> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.iter().find_map(|(session, entry)| {
                entry.inbox.actor().is_some_and(|at| at.get_id() == actor).then_some(*session)
            })
        })
    }

    /// The actors that run, by the depth of their sessions.
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

    /// Works on the entry of `session`, if it is present.
    pub(crate) fn with<T>(&self, session: SessionId, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.shard(session).get_mut(&session).map(work)
    }

    /// Sessions that are present.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Forgets all sessions with what waits for them.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let gone = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            // Dropped outside the lock: reply channels run code of those who wait.
            drop(gone);
        }
    }
}

fn absent() -> Entry {
    Entry { inbox: Arc::default(), presence: Presence::Absent, budget: None }
}

fn start_if_absent(entry: &mut Entry) -> Next {
    let starting = std::mem::replace(&mut entry.presence, Presence::Starting);
    match starting {
        Presence::Active => {
            entry.presence = Presence::Active;
            Next::Nothing
        }
        Presence::Unborn(hot) => Next::Start(Arc::clone(&entry.inbox), Some(hot)),
        Presence::Absent => Next::Start(Arc::clone(&entry.inbox), None),
        Presence::Starting => Next::Nothing,
    }
}
