//! Who may run now: a global bound, a bound per root, and a queue that is fair between roots.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};

use tokio::time::Instant;

use crate::locked::Locked;

mod lane;
mod pools;
mod queue;

pub use pools::{SlotPools, Whose};

use queue::Queue;

/// Why a slot is wanted; the order is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A run that gave its slot back while it waited and wants to go on.
    Again,
    /// A run that has not run yet.
    Start,
}

/// The slots of one runtime (cheap clone, one shared pool): `R` names a root, `T` a ticket in the queue.
///
/// Free slots go to re-admissions first, then to new starts; within a class one to each root in turn, the root that
/// was served longest ago first; within a root in the order of request. A root at its bound is passed over and keeps
/// its turn. The queue has no bound of its own: whoever admits work bounds it. Every operation takes logarithmic
/// time, [`Slots::queue_position`] nearly so.
pub struct Slots<R: Root, T: Ticket> {
    inner: Arc<Inner<R, T>>,
}

/// What a root key must be; implemented by everything that is.
pub trait Root: Copy + Eq + Hash + Ord + Send + Sync + 'static {}
impl<R: Copy + Eq + Hash + Ord + Send + Sync + 'static> Root for R {}

/// What a ticket must be; implemented by everything that is.
pub trait Ticket: Copy + Eq + Hash + Ord + Send + 'static {}
impl<T: Copy + Eq + Hash + Ord + Send + 'static> Ticket for T {}

type OnGrant<T> = Arc<dyn Fn(T, Slot) + Send + Sync>;

struct Inner<R: Root, T: Ticket> {
    pool: Locked<Pool<R, T>>,
    on_grant: OnGrant<T>,
}

struct Pool<R: Root, T: Ticket> {
    queue: Queue<R, T>,
    /// Granted under the lock, not yet handed over.
    outgoing: VecDeque<(R, T)>,
    /// Somebody is handing over. Whoever releases meanwhile only adds to `outgoing`, so that a callback that drops
    /// its slot does not nest another hand-over on its own stack.
    handing_over: bool,
}

/// The right to run; dropping it returns it, once, and hands it to whoever is next.
///
/// Never drop one while holding a lock that `on_grant` takes: the drop may call it.
#[must_use = "dropping the slot returns it at once"]
pub struct Slot {
    /// Taken by the drop. Behind a trait, so that holders need not name the keys.
    returns: Option<Box<dyn Return>>,
}

trait Return: Send + Sync {
    fn return_slot(self: Box<Self>);
}

struct Held<R: Root, T: Ticket> {
    inner: Arc<Inner<R, T>>,
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
    /// Opens a pool of `global` slots.
    ///
    /// `on_grant` is called with every slot that was not given at once, in the order of the grants, one at a time,
    /// outside the lock, by whichever thread releases: it must be short and must not block. It may drop the slot and
    /// may call everything here. A panic in it is logged, returns the slot and costs no other ticket.
    pub fn new(global: usize, on_grant: Arc<dyn Fn(T, Slot) + Send + Sync>) -> Self {
        let pool = Pool { queue: Queue::new(global), outgoing: VecDeque::new(), handing_over: false };
        Self { inner: Arc::new(Inner { pool: Locked::new(pool), on_grant }) }
    }

    /// Gives a slot at once, or queues the ticket and later calls `on_grant(ticket, slot)`.
    ///
    /// `per_root` is the bound of this root from now on, for what it has queued too; a lower one takes nothing back.
    /// With a bound of zero the ticket waits until it is raised or withdrawn. A ticket that is queued already keeps
    /// its place and its class.
    pub fn request(&self, root: R, ticket: T, class: Class, per_root: u32) -> Option<Slot> {
        let mut pool = self.inner.pool.lock();
        let mut granted = pool.queue.request(root, ticket, class, per_root, Instant::now());
        // A raised bound may admit older tickets of this root before it; they go the usual way.
        let mine = granted.iter().position(|(_, other)| *other == ticket);
        if let Some(mine) = mine {
            granted.remove(mine);
        }
        pool.outgoing.extend(granted);
        self.inner.hand_over(pool);
        mine.map(|_| Inner::slot(&self.inner, root))
    }

    /// Takes a ticket out of the queue; true if it was there, and then it is never granted.
    ///
    /// False: its slot was granted, and comes or came by `on_grant`; or it was never queued.
    pub fn withdraw(&self, ticket: T) -> bool {
        self.inner.pool.lock().queue.withdraw(ticket)
    }

    /// Returns the number of queued tickets.
    pub fn queued(&self) -> usize {
        self.inner.pool.lock().queue.queued()
    }

    /// Returns the number of slots in use.
    pub fn in_use(&self) -> usize {
        self.inner.pool.lock().queue.in_use()
    }

    /// Returns the number of slots that `root` uses.
    pub fn in_use_of(&self, root: R) -> usize {
        self.inner.pool.lock().queue.in_use_of(root)
    }

    /// Returns how many tickets of the same root are served before this one, or nothing if it is not queued.
    pub fn queue_position(&self, ticket: T) -> Option<usize> {
        self.inner.pool.lock().queue.position(ticket)
    }

    /// Returns since when no slot of its root was granted while this ticket is queued, or nothing if it is not.
    pub fn unserved_since(&self, ticket: T) -> Option<Instant> {
        self.inner.pool.lock().queue.unserved_since(ticket)
    }

    /// Returns when `root` was last granted a slot; known as long as it has a slot in use or a ticket queued.
    pub fn last_grant(&self, root: R) -> Option<Instant> {
        self.inner.pool.lock().queue.last_grant(root)
    }
}

impl<R: Root, T: Ticket> Inner<R, T> {
    fn slot(inner: &Arc<Self>, root: R) -> Slot {
        Slot { returns: Some(Box::new(Held { inner: Arc::clone(inner), root })) }
    }

    /// Hands over what is outgoing, unless somebody does so already.
    fn hand_over<'a>(self: &'a Arc<Self>, mut pool: MutexGuard<'a, Pool<R, T>>) {
        if pool.handing_over {
            return;
        }
        while let Some((root, ticket)) = pool.outgoing.pop_front() {
            pool.handing_over = true;
            drop(pool);
            let slot = Self::slot(self, root);
            // A slot may be dropped by a panic; a second panic out of its drop would end the process.
            if catch_unwind(AssertUnwindSafe(|| (self.on_grant)(ticket, slot))).is_err() {
                tracing::error!("the grant callback panicked; its slot is returned");
            }
            pool = self.pool.lock();
        }
        pool.handing_over = false;
    }
}

impl<R: Root, T: Ticket> Return for Held<R, T> {
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
