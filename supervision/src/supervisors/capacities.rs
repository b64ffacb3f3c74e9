//! The free capacity of shards and the number of live actors.

use std::sync::Arc;

use ractor::ActorCell;
use tokio::sync::Notify;

use crate::locked::Locked;

pub(super) struct ShardCapacities {
    capacity: usize,
    state: Locked<CapacityState>,
    emptied: Notify,
}

#[derive(Default)]
struct CapacityState {
    shards: Vec<ShardEntry>,
    with_capacity: Vec<usize>,
    live: usize,
    closing: bool,
}

#[derive(Default)]
struct ShardEntry {
    /// `None` before the shard starts and after it ends.
    cell: Option<ActorCell>,
    taken: usize,
}

pub(super) enum CapacityResult {
    ReservedCapacity(ReservedCapacity),
    Full,
    Closing,
}

/// Reserved capacity for one actor, freed by dropping this value, or by the report of the linked actor's end.
pub(super) struct ReservedCapacity {
    capacities: Arc<ShardCapacities>,
    shard: usize,
    pub(super) cell: ActorCell,
    kept: bool,
}

impl ShardCapacities {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, state: Locked::new(CapacityState::default()), emptied: Notify::new() }
    }

    pub(super) fn reserve_capacity(self: &Arc<Self>) -> CapacityResult {
        let mut state = self.state.lock();
        let CapacityState { shards, with_capacity, live, closing } = &mut *state;
        if *closing {
            return CapacityResult::Closing;
        }
        let Some(shard) = with_capacity.last().copied() else { return CapacityResult::Full };
        let Some((entry, cell)) = shards.get_mut(shard).and_then(|entry| entry.cell.clone().map(|cell| (entry, cell)))
        else {
            return CapacityResult::Full;
        };
        entry.taken += 1;
        *live += 1;
        if entry.taken == self.capacity {
            with_capacity.pop();
        }
        CapacityResult::ReservedCapacity(ReservedCapacity { capacities: Arc::clone(self), shard, cell, kept: false })
    }

    pub(super) fn is_full(&self) -> bool {
        self.state.lock().with_capacity.is_empty()
    }

    pub(super) fn close(&self) {
        self.state.lock().closing = true;
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().closing
    }

    pub(super) fn live(&self) -> usize {
        self.state.lock().live
    }

    pub(super) fn shards(&self) -> Vec<ActorCell> {
        self.state.lock().shards.iter().filter_map(|entry| entry.cell.clone()).collect()
    }

    pub(super) fn reserve_number(&self) -> usize {
        let mut state = self.state.lock();
        state.shards.push(ShardEntry::default());
        state.shards.len() - 1
    }

    pub(super) fn opened(&self, shard: usize, cell: ActorCell) {
        let mut state = self.state.lock();
        if let Some(entry) = state.shards.get_mut(shard) {
            entry.cell = Some(cell);
            state.with_capacity.push(shard);
        }
    }

    pub(super) fn vacate(&self, shard: usize) {
        let mut state = self.state.lock();
        let Some(entry) = state.shards.get_mut(shard).filter(|entry| entry.cell.is_some()) else { return };
        let was_full = entry.taken == self.capacity;
        entry.taken = entry.taken.saturating_sub(1);
        if was_full {
            state.with_capacity.push(shard);
        }
        self.count_ended(&mut state, 1);
    }

    /// Removes an ended shard. Returns the number of its actors that were not reported.
    pub(super) fn retire(&self, shard: usize) -> usize {
        let mut state = self.state.lock();
        let Some(entry) = state.shards.get_mut(shard) else { return 0 };
        let lost = std::mem::take(&mut entry.taken);
        entry.cell = None;
        state.with_capacity.retain(|with_capacity| *with_capacity != shard);
        self.count_ended(&mut state, lost);
        lost
    }

    pub(super) async fn wait_empty(&self) {
        loop {
            // Subscribes before the check, because the last actor may be reported between check and wait.
            let emptied = self.emptied.notified();
            if self.live() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn count_ended(&self, state: &mut CapacityState, actors: usize) {
        state.live = state.live.saturating_sub(actors);
        if state.live == 0 {
            self.emptied.notify_waiters();
        }
    }
}

impl ReservedCapacity {
    /// Leaves the reserved capacity to the linked actor. The report of the actor's end frees it.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for ReservedCapacity {
    fn drop(&mut self) {
        if !self.kept {
            self.capacities.vacate(self.shard);
        }
    }
}
