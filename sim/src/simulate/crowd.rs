//! Many runs at once: each on a thread of its own at a time, so that none knows of another.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::simulate::report::{Failure, Report};
use crate::simulate::tally::Tally;
use crate::simulate::{Plan, Seeded, simulate};

/// Seeds to be run.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// The first seed.
    pub base: u64,
    pub seeds: u64,
    pub steps: u32,
    pub bug: Option<Seeded>,
    /// Whether what happens is told on the error stream as it happens.
    pub told: bool,
    pub threads: usize,
    /// Failures after which no further seed is begun.
    pub failures: usize,
}

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub plan: Plan,
    pub failure: Failure,
}

/// What all runs came to.
#[derive(Clone, Debug, Default)]
pub struct Result {
    /// Seeds that were run.
    pub seeds: u64,
    /// Records that they wrote.
    pub records: u64,
    /// Virtual milliseconds that they took.
    pub took_ms: u64,
    /// Those that failed, by seed.
    pub failed: Vec<Failed>,
    pub tally: Tally,
}

impl Crowd {
    /// Runs them. `done` hears of each as it ends, in no particular order.
    pub fn run(self, done: &(dyn Fn(&Report) + Sync)) -> Result {
        let next = AtomicU64::new(0);
        let sum = Mutex::new(Result::default());
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| self.work(&next, &sum, done));
            }
        });
        let mut result = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.failed.sort_by_key(|failed| failed.plan.seed);
        result
    }

    fn work(self, next: &AtomicU64, sum: &Mutex<Result>, done: &(dyn Fn(&Report) + Sync)) {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= self.seeds {
                return;
            }
            let plan = Plan { seed: self.base.wrapping_add(at), steps: self.steps, bug: self.bug, told: self.told };
            let mut report = simulate(plan);
            // A run that fails without the bug too shows nothing of it.
            if report.failure.is_some() && plan.bug.is_some() && simulate(Plan { bug: None, ..plan }).failure.is_some()
            {
                report.failure = None;
            }
            done(&report);
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            sum.seeds = sum.seeds.saturating_add(1);
            sum.records = sum.records.saturating_add(report.records);
            sum.took_ms = sum.took_ms.saturating_add(report.took_ms);
            sum.tally.add(&report.tally);
            if let Some(failure) = report.failure {
                sum.failed.push(Failed { plan, failure });
                if sum.failed.len() >= self.failures {
                    next.store(self.seeds, Ordering::Relaxed);
                }
            }
        }
    }
}
