//! Judges the journal with the predicates. At rest, also checks that no work or resource remains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use subtend_actors::Runtime;
use subtend_invariants::observed::Listing;
use subtend_invariants::{Acknowledged, Ledger, Pool};
use subtend_journal::{AuditError, Journal, Scope, audit};
use subtend_session::ids::SessionId;
use subtend_session::record::Record;

use crate::simulate::oracle::{Oracle, OracleState};
use crate::simulate::plan::Sync;
use crate::simulate::world::World;

/// Delay of timers and restarts on top of a grace period.
const TICKS_MS: u64 = 200;

/// Number of sequential writes that may delay the ends of a tree.
const WRITES: u64 = 20;

/// Time limit for all runs to end without further faults.
pub(crate) const REST_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Judges only the store, with the audit that operators use.
pub(crate) fn judge_store(oracle: &Oracle, journal: &Journal) {
    match audit(journal, false) {
        Ok(()) => {}
        Err(AuditError::Violated(violation)) => oracle.wrong(violation.id.id(), violation.to_string()),
        Err(error @ AuditError::Fold { .. }) => oracle.wrong("J-4", error.to_string()),
        Err(error @ AuditError::Read(_)) => oracle.wrong("J-8", error.to_string()),
    }
}

/// Judges all durable records and all observations.
pub(crate) fn judge_all(world: &World, at_rest: bool) {
    let rows = match world.disk.rows() {
        Ok(rows) => rows,
        Err(error) => return world.oracle.wrong("J-8", error.to_string()),
    };
    let limits = &world.swarm.limits;
    let mut oracle = world.oracle.lock();
    let now = oracle.now();
    // A jump of the clock delays all work.
    let grace_ms = oracle.jumped.is_zero().then(|| limits.grace_ms.saturating_add(TICKS_MS));
    let lists = world.rng.one_in(4) || oracle.has_missed();
    let listings = if lists { listings(&oracle, world) } else { Vec::new() };
    oracle.observations.tick(now);
    oracle.observations.record_listings(listings);
    // The ends of a tree follow each other from the leaves up, and each waits for one write.
    let disk_ms = if let Sync::Later(most) = world.swarm.sync { most.saturating_mul(WRITES) } else { 0 };
    let (ledger, fired) = (ledger(&oracle, world, at_rest), oracle.fired_tokens());
    let observed = oracle.observations.all_mut();
    (observed.grace_ms, observed.healed, observed.fired) = (grace_ms, at_rest, fired);
    (observed.late_ms, observed.ask_ms) = (TICKS_MS.saturating_add(disk_ms), Some(limits.ask_ms));
    observed.approvers.get_or_insert_default();
    let (open, answered) = (oracle.observer.open_asks(), oracle.observations.all().asks.len());
    oracle.observations.all_mut().asks.extend(open);
    let seen = (oracle.observations.all(), &oracle.observer);
    let judged = oracle.archive.judge(&rows, seen, ledger, (&oracle.coverage, at_rest));
    oracle.observations.all_mut().asks.truncate(answered);
    match judged {
        Ok(()) => oracle.tally.mark(if at_rest { "judged at rest" } else { "judged" }),
        Err(violation) => oracle.wrong(violation.id.id(), violation.to_string()),
    }
}

/// Returns the slots in use, and the cancels that people requested.
fn ledger(oracle: &OracleState, world: &World, at_rest: bool) -> Ledger {
    let limits = &world.swarm.limits;
    let mut ledger = Ledger {
        // Each of the two pools has the full number of slots.
        global: u32::try_from(world.swarm.slots).ok(),
        lagging: !at_rest,
        owned: Pool { per_root: limits.live_runs, ..Pool::default() },
        persons: Pool { per_root: limits.live_person_runs, ..Pool::default() },
        cancelled: oracle.cancelled(),
        ..Ledger::default()
    };
    if let Some(used) = &oracle.slots {
        for root in oracle.archive.roots() {
            let [owned, persons] = used(root).map(|used| u32::try_from(used).unwrap_or(u32::MAX));
            ledger.owned.used.insert(root, owned);
            ledger.persons.used.insert(root, persons);
        }
    }
    ledger
}

/// Returns the current listings of each root (T-9).
fn listings(oracle: &OracleState, world: &World) -> Vec<Listing> {
    let roots = oracle.archive.roots();
    roots.map(|root| oracle.listing(root, world.disk.below(root))).collect()
}

/// Returns whether no run is in flight and no row is pending.
pub(crate) fn is_quiet(journal: &Journal) -> bool {
    let quiet = journal.inflight().is_ok_and(|rows| rows.is_empty());
    quiet && journal.outbox().is_ok_and(|rows| rows.is_empty()) && journal.durable() == journal.last_appended()
}

/// Returns the runs in flight and pending rows as text.
pub(crate) fn describe_pending(journal: &Journal) -> String {
    let heads = journal.heads().unwrap_or_default();
    let inflight = journal.inflight().unwrap_or_default();
    let state = |session| heads.iter().find(|(id, _)| *id == session).map(|(_, head)| head.state);
    let runs: Vec<_> = inflight.iter().map(|(session, _)| format!("{session} {:?}", state(*session))).collect();
    let rows: Vec<_> = journal.outbox().unwrap_or_default().into_iter().map(|(row, _)| format!("{row:?}")).collect();
    format!("in flight {runs:?}, owed {rows:?}")
}

/// Compacts the store. No deleted session remains, except in trees to which an outbox row is pending (J-10).
pub(crate) fn compact(world: &World) {
    let done = match world.disk.compact() {
        Ok(done) => done,
        Err(error) => return world.oracle.wrong("J-10", format!("cannot compact the store: {error}")),
    };
    let mut oracle = world.oracle.lock();
    let held: BTreeSet<SessionId> = done.deferred.iter().map(|held| held.session).collect();
    let mut gone = oracle.archive.deleted();
    gone.retain(|session| !oracle.archive.self_and_ancestors(*session).any(|session| held.contains(&session)));
    if !gone.is_empty() {
        oracle.tally.mark("erased");
    }
    oracle.sessions.retain(|session| !gone.contains(session));
    oracle.archive.erase(&gone);
}

/// Returns a text that only one session may contain.
pub(crate) fn secret(session: SessionId) -> String {
    format!("secret-{}", session.0.simple())
}

/// Checks that no text of a deleted session is exported, and that the store contains no data of an erased session (J-10).
pub(crate) fn erased(world: &World, journal: &Journal) {
    let (deleted, erased) = {
        let oracle = world.oracle.lock();
        (oracle.archive.deleted(), oracle.archive.erased().clone())
    };
    if deleted.is_empty() && erased.is_empty() {
        return;
    }
    let mut out = Vec::new();
    if let Err(error) = journal.export(Scope::Store, &mut out, &mut |_| {}) {
        return world.oracle.wrong("J-10", format!("cannot export the store: {error}"));
    }
    let out = String::from_utf8_lossy(&out);
    for session in deleted.iter().chain(&erased) {
        if out.contains(&format!("\"frame\":{{\"session\":\"{session}\"")) {
            world.oracle.wrong("J-10", format!("{session} is deleted, but its records are exported"));
        }
        if let Some((before, _)) = out.split_once(&secret(*session)) {
            let line = before.lines().next_back().unwrap_or_default();
            let start: String = line.chars().take(120).collect();
            world.oracle.wrong("J-10", format!("{session} is deleted, but another session keeps its text: {start}"));
        }
    }
    for session in &erased {
        let left = journal.records(*session).map_or(0, |records| records.len());
        let title = journal.head(*session).ok().flatten().map_or_else(String::new, |head| head.title.to_string());
        if left > 0 || !title.is_empty() {
            world.oracle.wrong(
                "J-10",
                format!("{session} is erased, but the store still has {left} records and the title {title:?}"),
            );
        }
    }
    world.oracle.mark("judged erased");
}

/// Checks that no slot and no wait for an end remains at rest.
pub(crate) fn baseline(world: &World, runtime: &Runtime) {
    if runtime.slots_in_use() != 0 {
        world.oracle.wrong("T-3", format!("{} slots are in use at rest", runtime.slots_in_use()));
    }
    let waits = world.oracle.lock().waits;
    if waits != 0 {
        world.oracle.wrong("S-6", format!("{waits} waits for ends of runs are unanswered at rest"));
    }
}

/// Checks that each acknowledged input is recorded (J-1).
pub(crate) fn check_acknowledged(oracle: &Oracle, journal: &Journal) {
    let (inputs, erased) = {
        let oracle = oracle.lock();
        (oracle.acknowledged.clone(), oracle.archive.erased().clone())
    };
    let mut acknowledged = Acknowledged { inputs, ..Acknowledged::default() };
    acknowledged.retain(|session| !erased.contains(session));
    let sessions: BTreeSet<SessionId> = acknowledged.inputs.iter().map(|(session, _)| *session).collect();
    let records = |session: SessionId| {
        let stored = journal.records(session).unwrap_or_default();
        (session, stored.into_iter().map(|stored| stored.record).collect::<Vec<Record>>())
    };
    let records: BTreeMap<SessionId, Vec<Record>> = sessions.into_iter().map(records).collect();
    let sessions = records.iter().map(|(session, records)| (*session, records.as_slice())).collect();
    if let Some(lost) = acknowledged.lost(&sessions).into_iter().next() {
        oracle.wrong("J-1", lost);
    }
}
