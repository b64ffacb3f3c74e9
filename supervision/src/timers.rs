//! Many deadlines in one task: armed and disarmed on every run, fired rarely.

use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::locked::Locked;

mod wheel;

use wheel::{Tick, Wheel};

/// Longest single sleep, within the range of the clock.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Keyed deadlines with one task that calls `on_due` (cheap clone; dropping the last one ends the task).
///
/// A key never fires early, and at most one tick (5 ms) late, plus tokio's rounding to a millisecond and the callbacks before it. Keys
/// due together fire in the order of their deadlines, then of the keys.
pub struct Timers<K> {
    shared: Arc<TimerState<K>>,
    ended: CancellationToken,
    _end: Arc<DropGuard>,
}

struct TimerState<K> {
    origin: Instant,
    bed: Locked<Bed<K>>,
    earlier: Notify,
}

struct Bed<K> {
    wheel: Wheel<K>,
    /// The tick that the task sleeps for; only an earlier one wakes it. While awake it is the first tick of all: the task checks again
    /// before it sleeps.
    asleep_until: Tick,
    ended: bool,
}

impl<K> Clone for Timers<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), ended: self.ended.clone(), _end: Arc::clone(&self._end) }
    }
}

impl<K> fmt::Debug for Timers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("ended", &self.ended.is_cancelled()).finish_non_exhaustive()
    }
}

impl<K: Copy + Eq + Hash + Ord + Send + 'static> Timers<K> {
    /// Starts the task; call it inside a tokio runtime.
    ///
    /// `on_due` runs in that task, one key at a time: it must not block. It may arm and disarm. A panic in it is logged.
    pub fn start(on_due: Arc<dyn Fn(K) + Send + Sync>) -> Self {
        let bed = Bed { wheel: Wheel::new(), asleep_until: Tick::FIRST, ended: false };
        let shared = Arc::new(TimerState { origin: Instant::now(), bed: Locked::new(bed), earlier: Notify::new() });
        let ended = CancellationToken::new();
        tokio::spawn(run(Arc::clone(&shared), on_due, ended.clone()));
        Self { shared, _end: Arc::new(ended.clone().drop_guard()), ended }
    }

    /// Arms `key` to fire `after` from now; an armed key moves there.
    pub fn arm(&self, key: K, after: Duration) {
        let due = nanos(self.shared.origin.elapsed().saturating_add(after));
        let mut bed = self.shared.bed.lock();
        if bed.ended {
            return;
        }
        let tick = bed.wheel.arm(key, due);
        // Wakes the task once: the next caller compares with this tick already.
        let wake = tick < bed.asleep_until;
        if wake {
            bed.asleep_until = tick;
        }
        drop(bed);
        if wake {
            self.shared.earlier.notify_one();
        }
    }

    /// Disarms `key`; true if it was armed, and then it does not fire. False: it fired or is firing.
    pub fn disarm(&self, key: &K) -> bool {
        self.shared.bed.lock().wheel.disarm(key)
    }

    /// Returns whether `key` is armed and has not fired.
    pub fn is_armed(&self, key: &K) -> bool {
        self.shared.bed.lock().wheel.contains(key)
    }

    pub fn armed(&self) -> usize {
        self.shared.bed.lock().wheel.len()
    }

    /// Disarms everything and ends the task; idempotent. Afterwards nothing fires, except a callback that is running.
    pub fn shutdown(&self) {
        let mut bed = self.shared.bed.lock();
        bed.ended = true;
        bed.wheel = Wheel::new();
        drop(bed);
        self.ended.cancel();
    }
}

async fn run<K: Copy + Eq + Hash + Ord + Send>(
    shared: Arc<TimerState<K>>,
    on_due: Arc<dyn Fn(K) + Send + Sync>,
    ended: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = ended.cancelled() => return,
            () = shared.sleep() => shared.fire(on_due.as_ref()),
        }
    }
}

impl<K: Copy + Eq + Hash + Ord + Send> TimerState<K> {
    /// Sleeps until the earliest deadline, or until an earlier one is armed.
    async fn sleep(&self) {
        let first = {
            let mut bed = self.bed.lock();
            let first = bed.wheel.first();
            bed.asleep_until = first.unwrap_or(Tick::LAST);
            first
        };
        let Some(first) = first else { return self.earlier.notified().await };
        let longest = Instant::now() + LONGEST_SLEEP;
        let until = self.origin.checked_add(first.starts()).map_or(longest, |at| at.min(longest));
        tokio::select! {
            () = self.earlier.notified() => {}
            () = sleep_until(until) => {}
        }
    }

    fn fire(&self, on_due: &(dyn Fn(K) + Send + Sync)) {
        let now = Tick::begun(nanos(self.origin.elapsed()));
        let due = {
            let mut bed = self.bed.lock();
            bed.asleep_until = Tick::FIRST;
            bed.wheel.due(now)
        };
        for key in due {
            // A callback before this one, or another thread, may have disarmed or moved it.
            let still = self.bed.lock().wheel.take_due(&key, now);
            if still && catch_unwind(AssertUnwindSafe(|| on_due(key))).is_err() {
                tracing::error!("the callback of a timer panicked: the other timers continue");
            }
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
