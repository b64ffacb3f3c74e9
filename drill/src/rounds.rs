//! The rounds of a drill: kill, inspect, recover, inspect again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::error::DrillError;
use super::finding::{FindingKind, Violation};
use super::judge::Judge;
use super::orphans::Orphans;
use super::plan::{KillOrder, KillPoint, Plan, Round};
use super::process::{ProcessResult, Start};
use super::report::{DrillVerdict, Report};
use super::sabotage::Sabotage;
use super::snapshot::StoreSnapshot;
use super::store_dir::{DrillDirectory, StoreDir};

/// Maximum time for runs to end after a recovery.
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for runs to end with a seeded bug, which may keep runs from ending.
const SABOTAGED_REST_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of kills after which a new store replaces the aged one: inspections of a large store take longer.
const KILLS_PER_STORE: u64 = 100;

pub(crate) struct DrillRun<'a> {
    directory: DrillDirectory,
    plan: Plan,
    kills: u64,
    sabotage: Option<Sabotage>,
    report: Report,
    progress: &'a mut (dyn FnMut(&Report) + Send),
    stop: &'a AtomicBool,
}

/// A store of the drill, with the facts that are known about it.
struct Subject {
    store_dir: StoreDir,
    judge: Judge,
    name: &'static str,
    kills: u64,
    processes: u64,
    /// The inspection after the last kill.
    snapshot: Option<StoreSnapshot>,
}

impl<'a> DrillRun<'a> {
    pub(crate) fn new(
        directory: DrillDirectory,
        (seed, kills): (u64, u64),
        sabotage: Option<Sabotage>,
        stop: &'a AtomicBool,
        progress: &'a mut (dyn FnMut(&Report) + Send),
    ) -> Self {
        let report = Report { engine: directory.engine().to_owned(), seed, sabotage, ..Report::default() };
        Self { directory, plan: Plan::new(seed), kills, sabotage, report, progress, stop }
    }

    /// Runs the drill to its end, to the detection of a seeded bug, or to a stop.
    pub(crate) fn run(mut self) -> Result<Report, DrillError> {
        let started = Instant::now();
        let mut aged: Option<Subject> = None;
        while !self.is_over() {
            let kills_left = usize::try_from(self.kills.saturating_sub(self.report.kills)).unwrap_or(usize::MAX);
            let round = self.plan.next(kills_left);
            let subject = match aged.take() {
                Some(subject) if round.aged => subject,
                other => {
                    aged = other;
                    self.new_subject(round.aged)?
                }
            };
            match self.round(subject, &round)? {
                Some(subject) if round.aged && subject.kills < KILLS_PER_STORE => aged = Some(subject),
                Some(subject) => self.finish(&subject),
                None => {}
            }
        }
        if let Some(subject) = aged {
            self.finish(&subject);
        }
        self.report.took = started.elapsed();
        self.report.stopped = self.is_stopped() && self.report.kills < self.kills && !self.is_caught();
        Ok(self.report)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn is_caught(&self) -> bool {
        self.report.verdict() == DrillVerdict::Caught
    }

    fn is_over(&self) -> bool {
        self.report.kills >= self.kills || self.is_stopped() || self.is_caught()
    }

    fn new_subject(&mut self, aged: bool) -> Result<Subject, DrillError> {
        let name = if aged { "aged" } else { "fresh" };
        Ok(Subject {
            store_dir: self.directory.new_store_dir()?,
            judge: Judge::default(),
            name,
            kills: 0,
            processes: 0,
            snapshot: None,
        })
    }

    /// Runs the kills of one round, and the recovery after the last. Returns `None` after a violation, when the store is kept.
    fn round(&mut self, mut subject: Subject, round: &Round) -> Result<Option<Subject>, DrillError> {
        let before = self.report.violations();
        for order in &round.orders {
            if self.is_over() {
                break;
            }
            self.kill(&mut subject, *order)?;
            if self.report.violations() > before {
                return Ok(self.keep_violating_store(&subject));
            }
        }
        if self.is_stopped() {
            return Ok(Some(subject));
        }
        let seed = round.orders.first().map_or(0, |order| order.seed);
        self.recover(&mut subject, seed)?;
        Ok(if self.report.violations() > before { self.keep_violating_store(&subject) } else { Some(subject) })
    }

    fn kill(&mut self, subject: &mut Subject, order: KillOrder) -> Result<(), DrillError> {
        let before = subject.snapshot.unwrap_or_default();
        let kill_point = match order.kill_point {
            KillPoint::Recovery(thousandths) => {
                KillPoint::Recovery(before.in_flight.saturating_mul(thousandths) / 1_000)
            }
            KillPoint::Opening
            | KillPoint::Compaction(_)
            | KillPoint::Deletion(_)
            | KillPoint::Seen(_)
            | KillPoint::Ended(_)
            | KillPoint::Marked(_) => order.kill_point,
        };
        let result = self.start(&subject.store_dir).run_and_kill(&KillOrder { kill_point, ..order })?;
        self.report.kills = self.report.kills.saturating_add(1);
        subject.kills = subject.kills.saturating_add(1);
        let in_recovery = result.opened && result.ready.is_none() && before.needs_recovery();
        let in_deletion = result.acknowledged.has_pending_deletion();
        self.inspect(subject, result, false);
        let snapshot = subject.snapshot.unwrap_or_default();
        let hits = &mut self.report.hits;
        hits.recovery = hits.recovery.saturating_add(in_recovery.into());
        hits.open_call = hits.open_call.saturating_add(snapshot.open_call.into());
        hits.outbox = hits.outbox.saturating_add((snapshot.owed > 0).into());
        hits.deletion = hits.deletion.saturating_add(in_deletion.into());
        hits.half_deleted = hits.half_deleted.saturating_add(snapshot.half_deleted.into());
        self.report.in_flight = self.report.in_flight.saturating_add(snapshot.in_flight);
        (self.progress)(&self.report);
        Ok(())
    }

    fn recover(&mut self, subject: &mut Subject, seed: u64) -> Result<(), DrillError> {
        let result = self.start(&subject.store_dir).run_and_recover(seed)?;
        self.report.recoveries.extend(result.ready);
        self.inspect(subject, result, true);
        (self.progress)(&self.report);
        Ok(())
    }

    fn start<'h>(&'h self, store_dir: &'h StoreDir) -> Start<'h> {
        let patience = if self.sabotage.is_some() { SABOTAGED_REST_TIMEOUT } else { REST_TIMEOUT };
        Start { store_dir, engine: self.directory.engine(), sabotage: self.sabotage, patience }
    }

    /// Inspects the store and the processes that the killed process left.
    fn inspect(&mut self, subject: &mut Subject, result: ProcessResult, at_rest: bool) {
        let orphans = Orphans::watch(&subject.store_dir, result.ended_at);
        self.report.acknowledged = self.report.acknowledged.saturating_add(result.acknowledged.count());
        self.report.deleted = self.report.deleted.saturating_add(result.acknowledged.deletions());
        subject.judge.add(result.acknowledged);
        let (snapshot, mut found) = subject.judge.inspect(&subject.store_dir, at_rest);
        let failure = result.failure.map(|what| Violation { kind: FindingKind::Broken, what });
        found.extend(failure.and_then(|failure| subject.judge.unknown(vec![failure]).pop()));
        let (processes, orphans) = orphans.remaining();
        subject.processes = processes;
        found.extend(orphans.into_iter().map(|process| Violation {
            kind: FindingKind::Orphaned,
            what: format!("process {process} of a tool was alive one second after the end of its runtime"),
        }));
        self.report.take(subject.name, found);
        subject.snapshot = snapshot;
    }

    fn count(&mut self, subject: &Subject) {
        let snapshot = subject.snapshot.unwrap_or_default();
        self.report.sessions = self.report.sessions.saturating_add(snapshot.sessions);
        self.report.erased = self.report.erased.saturating_add(snapshot.erased);
        self.report.processes = self.report.processes.saturating_add(subject.processes);
    }

    /// Counts the content of a store without violations, and removes the store.
    fn finish(&mut self, subject: &Subject) {
        self.count(subject);
        subject.store_dir.remove();
    }

    /// Keeps a store with a violation for inspection, unless the violation was expected.
    fn keep_violating_store(&mut self, subject: &Subject) -> Option<Subject> {
        self.count(subject);
        if self.sabotage.is_none() {
            let kept = self.directory.keep(&subject.store_dir);
            self.report.kept.push(kept.display().to_string());
        } else {
            subject.store_dir.remove();
        }
        None
    }
}
