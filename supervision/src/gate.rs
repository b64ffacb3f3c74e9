//! A gate that counts open work, refuses new work once it is closed, and waits for open work to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Lowest bit of the state; the other bits count passes, so that one operation sees both.
const CLOSED: usize = 1;
const PASS: usize = 2;

/// A gate for work: first open, then closed, then drained (cheap clone, shared state).
#[derive(Debug, Clone, Default)]
pub struct Gate {
    state: Arc<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    bits: AtomicUsize,
    empty: Notify,
}

/// One piece of open work. Dropping it ends the work.
#[must_use = "dropping the pass ends the work that it represents"]
#[derive(Debug)]
pub struct GatePass {
    state: Arc<GateState>,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Admits one piece of work, unless the gate is closed.
    pub fn enter(&self) -> Option<GatePass> {
        // One compare-and-swap reads both bit and count: no pass is given after `close` returned, and `open_count` counts all.
        let add = |state: usize| (state & CLOSED == 0).then(|| state + PASS);
        self.state.bits.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(GatePass { state: Arc::clone(&self.state) })
    }

    /// Closes the gate permanently; idempotent. Open work continues.
    pub fn close(&self) {
        self.state.bits.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub fn is_closed(&self) -> bool {
        self.state.bits.load(Ordering::Acquire) & CLOSED != 0
    }

    pub fn open_count(&self) -> usize {
        self.state.bits.load(Ordering::Acquire) / PASS
    }

    /// Waits at most `grace` until no pass is open. Returns false if some still are. Close the gate first, or new
    /// passes may open.
    /// # Cancel safety
    /// Dropping the future has no effect; call it again.
    pub async fn wait_drained(&self, grace: Duration) -> bool {
        tokio::time::timeout(grace, self.wait_empty()).await.is_ok() || self.open_count() == 0
    }

    async fn wait_empty(&self) {
        loop {
            // Subscribes before the check, because the last pass may be dropped between check and wait.
            let emptied = self.state.empty.notified();
            if self.open_count() == 0 {
                return;
            }
            emptied.await;
        }
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        let before = self.state.bits.fetch_sub(PASS, Ordering::AcqRel);
        if before / PASS == 1 {
            self.state.empty.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn closed_gate_refuses_and_waits_for_open_passes() {
        let gate = Gate::new();
        let (one, two) = (gate.enter(), gate.enter());
        gate.close();
        assert_eq!((gate.enter().is_none(), gate.is_closed(), gate.open_count()), (true, true, 2));
        assert!(!gate.wait_drained(GRACE).await);
        drop(one);
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.wait_drained(GRACE).await }
        });
        tokio::task::yield_now().await;
        let dropped_at = tokio::time::Instant::now();
        drop(two);
        assert_eq!((waiting.await.unwrap(), gate.open_count()), (true, 0));
        assert_eq!(dropped_at.elapsed(), Duration::ZERO, "the last pass wakes the waiter");
    }

    #[tokio::test(start_paused = true)]
    async fn empty_gate_is_drained_without_grace() {
        let gate = Gate::new();
        gate.close();
        assert!(gate.wait_drained(Duration::ZERO).await);
    }

    #[test]
    fn no_pass_is_given_after_close_on_threads() {
        for _ in 0..200 {
            let gate = Gate::new();
            std::thread::scope(|scope| {
                let entering = scope.spawn(|| (0..50).map_while(|_| gate.enter()).collect::<Vec<_>>());
                gate.close();
                let at_close = gate.open_count();
                let passes = entering.join().unwrap();
                assert_eq!((gate.open_count(), passes.len()), (at_close, at_close));
            });
            assert_eq!(gate.open_count(), 0);
        }
    }
}
