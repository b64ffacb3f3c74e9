use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::simulate::report::{RunReport, SimFailure};
use crate::simulate::tally::Tally;
use crate::simulate::{SeedPlan, Seeded, simulate};

#[derive(Clone, Copy, Debug)]
pub struct SeedRunner {
    pub base: u64,
    pub seeds: u64,
    pub steps: u32,
    pub bug: Option<Seeded>,
    pub trace: bool,
    pub threads: usize,
    /// Number of failures after which no further seed starts.
    pub failures: usize,
}

#[derive(Clone, Debug)]
pub struct Failed {
    pub plan: SeedPlan,
    pub failure: SimFailure,
}

/// The sum of all runs.
#[derive(Clone, Debug, Default)]
pub struct Result {
    pub seeds: u64,
    pub records: u64,
    /// Elapsed virtual time in milliseconds.
    pub took_ms: u64,
    pub failed: Vec<Failed>,
    pub tally: Tally,
}

impl SeedRunner {
    /// Runs the seeds. Calls `done` when a seed ends, in no particular order.
    pub fn run(self, done: &(dyn Fn(&RunReport) + Sync)) -> Result {
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

    fn work(self, next: &AtomicU64, sum: &Mutex<Result>, done: &(dyn Fn(&RunReport) + Sync)) {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= self.seeds {
                return;
            }
            let plan =
                SeedPlan { seed: self.base.wrapping_add(at), steps: self.steps, bug: self.bug, trace: self.trace };
            let mut report = simulate(plan);
            // A run that also fails without the seeded bug does not show that the bug was noticed.
            if report.failure.is_some()
                && plan.bug.is_some()
                && simulate(SeedPlan { bug: None, ..plan }).failure.is_some()
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
