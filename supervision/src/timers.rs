//! Many deadlines in one task. They are armed and disarmed often, and fire rarely.

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
const MAX_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// Keyed deadlines with one task that calls `on_due` (cheap clone). Dropping the last clone ends the task.
///
/// A key never fires early. It fires at most one tick (5 ms) late, plus tokio's rounding to a millisecond and the time of
/// earlier callbacks. Keys that are due together fire in the order of their deadlines, then of the keys.
pub struct Timers<K> {
    shared: Arc<TimerState<K>>,
    ended: CancellationToken,
    _end: Arc<DropGuard>,
}

struct TimerState<K> {
    origin: Instant,
    state: Locked<TimerQueue<K>>,
    earlier: Notify,
}

struct TimerQueue<K> {
    wheel: Wheel<K>,
    /// The tick that the task sleeps until. Only an earlier deadline wakes it. While the task is awake this is
    /// [`Tick::FIRST`], so that no deadline wakes it: the task checks all deadlines before it sleeps.
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
    /// Starts the task. Must be called inside a tokio runtime.
    ///
    /// `on_due` runs in that task, one key at a time: it must not block. It may arm and disarm. A panic in it is logged.
    pub fn start(on_due: Arc<dyn Fn(K) + Send + Sync>) -> Self {
        let state = TimerQueue { wheel: Wheel::new(), asleep_until: Tick::FIRST, ended: false };
        let shared = Arc::new(TimerState { origin: Instant::now(), state: Locked::new(state), earlier: Notify::new() });
        let ended = CancellationToken::new();
        tokio::spawn(run(Arc::clone(&shared), on_due, ended.clone()));
        Self { shared, _end: Arc::new(ended.clone().drop_guard()), ended }
    }

    /// Arms `key` to fire `after` from now. An armed key gets the new deadline.
    pub fn arm(&self, key: K, after: Duration) {
        let due = nanos(self.shared.origin.elapsed().saturating_add(after));
        let mut state = self.shared.state.lock();
        if state.ended {
            return;
        }
        let tick = state.wheel.arm(key, due);
        // Wakes the task once: the next caller compares with this tick.
        let wake = tick < state.asleep_until;
        if wake {
            state.asleep_until = tick;
        }
        drop(state);
        if wake {
            self.shared.earlier.notify_one();
        }
    }

    /// Disarms `key`. Returns whether it was armed, in which case it does not fire. Otherwise it fired or is firing.
    pub fn disarm(&self, key: &K) -> bool {
        self.shared.state.lock().wheel.disarm(key)
    }

    pub fn is_armed(&self, key: &K) -> bool {
        self.shared.state.lock().wheel.contains(key)
    }

    pub fn armed(&self) -> usize {
        self.shared.state.lock().wheel.len()
    }

    /// Disarms all keys and ends the task; idempotent. Afterwards no key fires, but a running callback finishes.
    pub fn shutdown(&self) {
        let mut state = self.shared.state.lock();
        state.ended = true;
        state.wheel = Wheel::new();
        drop(state);
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
            let mut state = self.state.lock();
            let first = state.wheel.first();
            state.asleep_until = first.unwrap_or(Tick::LAST);
            first
        };
        let Some(first) = first else { return self.earlier.notified().await };
        let longest = Instant::now() + MAX_SLEEP;
        let until = self.origin.checked_add(first.starts()).map_or(longest, |at| at.min(longest));
        tokio::select! {
            () = self.earlier.notified() => {}
            () = sleep_until(until) => {}
        }
    }

    fn fire(&self, on_due: &(dyn Fn(K) + Send + Sync)) {
        let now = Tick::begun(nanos(self.origin.elapsed()));
        let due = {
            let mut state = self.state.lock();
            state.asleep_until = Tick::FIRST;
            state.wheel.due(now)
        };
        for key in due {
            // An earlier callback or another thread may have disarmed or moved the key.
            let is_due = self.state.lock().wheel.take_due(&key, now);
            if is_due && catch_unwind(AssertUnwindSafe(|| on_due(key))).is_err() {
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
