//! Run slots: a global bound, a bound per root, and a queue that is fair between roots.

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

/// Reason for a request; the order is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A run that returned its slot while it waited, and resumes.
    Resume,
    /// A run that has not run yet.
    Start,
}

/// Slots of one runtime (cheap clone, shared state): `R` names a root, `T` a ticket in the queue.
///
/// Resumed runs come first. Within a class, roots take turns, the root served longest ago first; within a root, the order of request. A
/// root at its bound keeps its turn. The queue is unbounded: the caller bounds its work. Operations take logarithmic time,
/// [`Slots::queue_position`] nearly so.
pub struct Slots<R: Root, T: Ticket> {
    inner: Arc<SlotsState<R, T>>,
}

/// Bounds of a root key.
pub trait Root: Copy + Eq + Hash + Ord + Send + Sync + 'static {}
impl<R: Copy + Eq + Hash + Ord + Send + Sync + 'static> Root for R {}

/// Bounds of a ticket.
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
    /// A hand-over is running. Releases meanwhile only add to `outgoing`, so that a callback that drops its slot does not recurse.
    handing_over: bool,
}

/// Right to run; a drop returns it, and hands it to the next ticket.
///
/// Never drop one while holding a lock that `on_grant` takes: the drop may call it.
#[must_use = "dropping the slot returns it at once"]
pub struct Slot {
    /// Taken by the drop. A trait object, so that holders need not name the keys.
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
    /// `on_grant` receives each slot that was not given at once: in order, one at a time, outside the lock, on the releasing thread. It
    /// must not block. It may drop the slot and call everything here. A panic in it is logged and returns the slot.
    pub fn new(global: usize, on_grant: Arc<dyn Fn(T, Slot) + Send + Sync>) -> Self {
        let pool = Pool { queue: Queue::new(global), outgoing: VecDeque::new(), handing_over: false };
        Self { inner: Arc::new(SlotsState { pool: Locked::new(pool), on_grant }) }
    }

    /// Returns a slot at once, or queues the ticket and later calls `on_grant(ticket, slot)`.
    ///
    /// `per_root` replaces the bound of this root, for its queued tickets too; a lower one takes no slot back, and zero blocks until
    /// raised. A queued ticket keeps its position and its class.
    pub fn request(&self, root: R, ticket: T, class: Class, per_root: u32) -> Option<Slot> {
        let mut pool = self.inner.pool.lock();
        let mut granted = pool.queue.request(root, ticket, class, per_root, Instant::now());
        // A raised bound may admit older tickets of this root first; they take the usual path.
        let mine = granted.iter().position(|(_, other)| *other == ticket);
        if let Some(mine) = mine {
            granted.remove(mine);
        }
        pool.outgoing.extend(granted);
        self.inner.hand_over(pool);
        mine.map(|_| SlotsState::slot(&self.inner, root))
    }

    /// Removes a ticket from the queue; true if it was queued, and then it is never granted.
    ///
    /// False: its slot was granted, and `on_grant` has it or receives it; or it was never queued.
    pub fn withdraw(&self, ticket: T) -> bool {
        self.inner.pool.lock().queue.withdraw(ticket)
    }

    pub fn queued(&self) -> usize {
        self.inner.pool.lock().queue.queued()
    }

    pub fn in_use(&self) -> usize {
        self.inner.pool.lock().queue.in_use()
    }

    pub fn in_use_of(&self, root: R) -> usize {
        self.inner.pool.lock().queue.in_use_of(root)
    }

    /// Returns how many tickets of its root precede this one; `None` if it is not queued.
    pub fn queue_position(&self, ticket: T) -> Option<usize> {
        self.inner.pool.lock().queue.position(ticket)
    }

    /// Returns since when its root received no slot while this ticket was queued; `None` if it is not queued.
    pub fn unserved_since(&self, ticket: T) -> Option<Instant> {
        self.inner.pool.lock().queue.unserved_since(ticket)
    }

    /// Returns when `root` last received a slot; known while it uses a slot or has a queued ticket.
    pub fn last_grant(&self, root: R) -> Option<Instant> {
        self.inner.pool.lock().queue.last_grant(root)
    }
}

impl<R: Root, T: Ticket> SlotsState<R, T> {
    fn slot(inner: &Arc<Self>, root: R) -> Slot {
        Slot { returns: Some(Box::new(PoolSlot { inner: Arc::clone(inner), root })) }
    }

    /// Hands over outgoing slots, unless a hand-over is running.
    fn hand_over<'a>(self: &'a Arc<Self>, mut pool: MutexGuard<'a, Pool<R, T>>) {
        if pool.handing_over {
            return;
        }
        while let Some((root, ticket)) = pool.outgoing.pop_front() {
            pool.handing_over = true;
            drop(pool);
            let slot = Self::slot(self, root);
            // A panic may drop a slot; a second panic inside that drop would abort the process.
            if catch_unwind(AssertUnwindSafe(|| (self.on_grant)(ticket, slot))).is_err() {
                tracing::error!("the grant callback panicked; its slot is returned");
            }
            pool = self.pool.lock();
        }
        pool.handing_over = false;
    }
}

impl<R: Root, T: Ticket> Return for PoolSlot<R, T> {
    fn return_slot(self: Box<Self>) {
        let mut pool = self.inner.pool.lock();
        let granted = pool.queue.release(self.root, Instant::now());
        pool.outgoing.extend(granted);
        self.inner.hand_over(pool);
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
