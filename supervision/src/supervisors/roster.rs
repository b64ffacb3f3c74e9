//! Free capacity of shards, and the number of live actors.

use std::sync::Arc;

use ractor::ActorCell;
use tokio::sync::Notify;

use crate::locked::Locked;

pub(super) struct Roster {
    capacity: usize,
    book: Locked<RosterState>,
    emptied: Notify,
}

#[derive(Default)]
struct RosterState {
    posts: Vec<Post>,
    roomy: Vec<usize>,
    live: usize,
    closing: bool,
}

#[derive(Default)]
struct Post {
    /// `None` before the shard starts and after it ends.
    cell: Option<ActorCell>,
    taken: usize,
}

pub(super) enum Seating {
    Seat(Seat),
    Full,
    Closing,
}

/// Reserved capacity of a shard; a drop frees it, unless the actor was linked and will be reported.
pub(super) struct Seat {
    roster: Arc<Roster>,
    shard: usize,
    pub(super) cell: ActorCell,
    kept: bool,
}

impl Roster {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, book: Locked::new(RosterState::default()), emptied: Notify::new() }
    }

    pub(super) fn seat(self: &Arc<Self>) -> Seating {
        let mut book = self.book.lock();
        let RosterState { posts, roomy, live, closing } = &mut *book;
        if *closing {
            return Seating::Closing;
        }
        let Some(shard) = roomy.last().copied() else { return Seating::Full };
        let Some((post, cell)) = posts.get_mut(shard).and_then(|post| post.cell.clone().map(|cell| (post, cell)))
        else {
            return Seating::Full;
        };
        post.taken += 1;
        *live += 1;
        if post.taken == self.capacity {
            roomy.pop();
        }
        Seating::Seat(Seat { roster: Arc::clone(self), shard, cell, kept: false })
    }

    pub(super) fn is_full(&self) -> bool {
        self.book.lock().roomy.is_empty()
    }

    pub(super) fn close(&self) {
        self.book.lock().closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.book.lock().closing
    }

    pub(super) fn live(&self) -> usize {
        self.book.lock().live
    }

    pub(super) fn shards(&self) -> Vec<ActorCell> {
        self.book.lock().posts.iter().filter_map(|post| post.cell.clone()).collect()
    }

    pub(super) fn number(&self) -> usize {
        let mut book = self.book.lock();
        book.posts.push(Post::default());
        book.posts.len() - 1
    }

    pub(super) fn opened(&self, shard: usize, cell: ActorCell) {
        let mut book = self.book.lock();
        if let Some(post) = book.posts.get_mut(shard) {
            post.cell = Some(cell);
            book.roomy.push(shard);
        }
    }

    pub(super) fn vacate(&self, shard: usize) {
        let mut book = self.book.lock();
        let Some(post) = book.posts.get_mut(shard).filter(|post| post.cell.is_some()) else { return };
        let was_full = post.taken == self.capacity;
        post.taken = post.taken.saturating_sub(1);
        if was_full {
            book.roomy.push(shard);
        }
        self.left(&mut book, 1);
    }

    /// Removes an ended shard, and returns how many of its actors were not reported.
    pub(super) fn retire(&self, shard: usize) -> usize {
        let mut book = self.book.lock();
        let Some(post) = book.posts.get_mut(shard) else { return 0 };
        let lost = std::mem::take(&mut post.taken);
        post.cell = None;
        book.roomy.retain(|roomy| *roomy != shard);
        self.left(&mut book, lost);
        lost
    }

    pub(super) async fn emptied(&self) {
        loop {
            // Subscribe before the check: the last actor may be reported between check and wait.
            let emptied = self.emptied.notified();
            if self.live() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn left(&self, book: &mut RosterState, actors: usize) {
        book.live = book.live.saturating_sub(actors);
        if book.live == 0 {
            self.emptied.notify_waiters();
        }
    }
}

impl Seat {
    /// Leaves the seat to the linked actor; its report frees it.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.kept {
            self.roster.vacate(self.shard);
        }
    }
}
