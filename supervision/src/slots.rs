//! Run slots with a global bound, a bound per root, and a queue that is fair between roots.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};

use tokio::time::Instant;

use crate::locked::Locked;

mod pools;
mod queue;
mod root_queue;

pub use pools::{PoolKind, SlotPools};

use queue::Queue;

/// The reason for a request, in the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A run that returned its slot while it waited, and resumes.
    Resume,
    /// A run that has not started yet.
    Start,
}

/// Slots of one runtime (cheap clone, shared state): `R` names a root, `T` a ticket in the queue.
///
/// Resumed runs come first. Within a class, roots take turns: the root that was served longest ago is next. Within a root,
/// tickets keep the order of request. A root at its bound keeps its turn. The queue is unbounded: the caller bounds its
/// work. Operations take logarithmic time.
pub struct Slots<R: Root, T: Ticket> {
    inner: Arc<SlotsState<R, T>>,
}

pub trait Root: Copy + Eq + Hash + Ord + Send + Sync + 'static {}
impl<R: Copy + Eq + Hash + Ord + Send + Sync + 'static> Root for R {}

pub trait Ticket: Copy + Eq + Hash + Ord + Send + 'static {}
impl<T: Copy + Eq + Hash + Ord + Send + 'static> Ticket for T {}

type OnGrant<T> = Arc<dyn Fn(T, Slot) + Send + Sync>;

struct SlotsState<R: Root, T: Ticket> {
    pool: Locked<Pool<R, T>>,
    on_grant: OnGrant<T>,
}

struct Pool<R: Root, T: Ticket> {
    queue: Queue<R, T>,
    outgoing: VecDeque<(R, T)>,
    /// True while grants are delivered: releases then only add to `outgoing`, so that a callback does not recurse.
    delivering: bool,
}

/// The right to run. Dropping it grants the slot to the next ticket.
///
/// Never drop a slot while holding a lock that `on_grant` takes, because the drop may call `on_grant`.
#[must_use = "dropping the slot returns it at once"]
pub struct Slot {
    /// `None` only during the drop. A trait object, so that holders do not name the key types.
    returns: Option<Box<dyn Return>>,
}

trait Return: Send + Sync {
    fn return_slot(self: Box<Self>);
}

struct PoolSlot<R: Root, T: Ticket> {
    inner: Arc<SlotsState<R, T>>,
    root: R,
}

impl<R: Root, T: Ticket> Clone for Slots<R, T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<R: Root, T: Ticket> fmt::Debug for Slots<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("in_use", &self.in_use()).field("queued", &self.queued()).finish()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

impl<R: Root, T: Ticket> Slots<R, T> {
    /// Creates a pool of `global` slots.
    ///
    /// `on_grant` receives each slot that was not granted at once: in order, one at a time, outside the lock, on the thread
    /// that releases a slot, resizes the pool or raises a bound. It must not block. It may drop the slot and call any method. A panic in it is logged and returns the slot.
    pub fn new(global: usize, on_grant: Arc<dyn Fn(T, Slot) + Send + Sync>) -> Self {
        let pool = Pool { queue: Queue::new(global), outgoing: VecDeque::new(), delivering: false };
        Self { inner: Arc::new(SlotsState { pool: Locked::new(pool), on_grant }) }
    }

    /// Returns a slot if one is free. Otherwise queues the ticket and later calls `on_grant(ticket, slot)`.
    ///
    /// `per_root` replaces the bound of this root, also for its queued tickets. A lower bound does not revoke slots; zero blocks
    /// the root until it is raised. A ticket that is queued already keeps its position and class.
    pub fn request(&self, root: R, ticket: T, class: Class, per_root: u32) -> Option<Slot> {
        let mut pool = self.inner.pool.lock();
        let mut granted = pool.queue.request(root, ticket, class, per_root, Instant::now());
        // A raised bound may admit older tickets of this root first. They are delivered to `on_grant`.
        let mine = granted.iter().position(|(_, other)| *other == ticket);
        if let Some(mine) = mine {
            granted.remove(mine);
        }
        pool.outgoing.extend(granted);
        self.inner.deliver(pool);
        mine.map(|_| SlotsState::slot(&self.inner, root))
    }

    /// Changes the number of slots. A lower number does not revoke slots.
    pub fn resize(&self, global: usize) {
        let mut pool = self.inner.pool.lock();
        let granted = pool.queue.resize(global, Instant::now());
        pool.outgoing.extend(granted);
        self.inner.deliver(pool);
    }

    /// Removes a ticket from the queue. Returns whether it was queued; if so, it is never granted.
    ///
    /// If it was not queued, either its slot was granted and is passed to `on_grant`, or the ticket was never queued.
    pub fn withdraw(&self, ticket: T) -> bool {
        self.inner.pool.lock().queue.withdraw(ticket)
    }

    pub fn queued(&self) -> usize {
        self.inner.pool.lock().queue.queued()
    }

    pub fn in_use(&self) -> usize {
        self.inner.pool.lock().queue.in_use()
    }

    pub fn in_use_by(&self, root: R) -> usize {
        self.inner.pool.lock().queue.in_use_by(root)
    }

    /// Returns when the ticket was queued, or when its root last received a slot, whichever is later; `None` if it is
    /// not queued.
    pub fn waiting_since(&self, ticket: T) -> Option<Instant> {
        self.inner.pool.lock().queue.waiting_since(ticket)
    }

    /// Returns the time at which `root` last received a slot. `None` if it has neither a slot nor a queued ticket.
    pub fn last_grant(&self, root: R) -> Option<Instant> {
        self.inner.pool.lock().queue.last_grant(root)
    }
}

impl<R: Root, T: Ticket> SlotsState<R, T> {
    fn slot(inner: &Arc<Self>, root: R) -> Slot {
        Slot { returns: Some(Box::new(PoolSlot { inner: Arc::clone(inner), root })) }
    }

    /// Delivers outgoing slots, unless a delivery is running.
    fn deliver<'a>(self: &'a Arc<Self>, mut pool: MutexGuard<'a, Pool<R, T>>) {
        if pool.delivering {
            return;
        }
        while let Some((root, ticket)) = pool.outgoing.pop_front() {
            pool.delivering = true;
            drop(pool);
            let slot = Self::slot(self, root);
            // The panic is caught here: its unwinding may drop a slot, and a second panic in that drop would abort the process.
            if catch_unwind(AssertUnwindSafe(|| (self.on_grant)(ticket, slot))).is_err() {
                tracing::error!("the grant callback panicked; its slot is returned");
            }
            pool = self.pool.lock();
        }
        pool.delivering = false;
    }
}

impl<R: Root, T: Ticket> Return for PoolSlot<R, T> {
    fn return_slot(self: Box<Self>) {
        let mut pool = self.inner.pool.lock();
        let granted = pool.queue.release(self.root, Instant::now());
        pool.outgoing.extend(granted);
        self.inner.deliver(pool);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(held) = self.returns.take() {
            held.return_slot();
        }
    }
}

#[cfg(test)]
mod tests;
