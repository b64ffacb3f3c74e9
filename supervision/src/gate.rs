//! A gate that counts open work, and refuses new work once it is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lowest bit of the state; the other bits count passes, so that one operation sees both.
const CLOSED: usize = 1;
const PASS: usize = 2;

/// A gate for work: first open, then closed (cheap clone, shared state).
#[derive(Debug, Clone, Default)]
pub struct Gate {
    state: Arc<AtomicUsize>,
}

/// One piece of open work. Dropping it ends the work.
#[must_use = "dropping the pass ends the work that it represents"]
#[derive(Debug)]
pub struct GatePass {
    state: Arc<AtomicUsize>,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn enter(&self) -> Option<GatePass> {
        // One compare-and-swap reads both bit and count: no pass is given after `close` returned, and `open_count` counts all.
        let add = |state: usize| (state & CLOSED == 0).then(|| state + PASS);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(GatePass { state: Arc::clone(&self.state) })
    }

    /// Closes the gate permanently; idempotent. Open work continues.
    pub fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSED != 0
    }

    pub fn open_count(&self) -> usize {
        self.state.load(Ordering::Acquire) / PASS
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        self.state.fetch_sub(PASS, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_gate_refuses_and_counts_open_passes() {
        let gate = Gate::new();
        let (one, two) = (gate.enter(), gate.enter());
        gate.close();
        assert_eq!((gate.enter().is_none(), gate.is_closed(), gate.open_count()), (true, true, 2));
        drop(one);
        assert_eq!(gate.open_count(), 1);
        drop(two);
        assert_eq!(gate.open_count(), 0);
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
