//! The judge: asks the predicates of the journal, and at rest looks whether everything is as it was before.

use std::collections::BTreeSet;
use std::time::Duration;

use subtend_actors::Runtime;
use subtend_journal::{AuditError, Journal, audit};
use subtend_session::invariant::observed::Listing;
use subtend_session::record::Record;

use crate::simulate::archive::Slots;
use crate::simulate::book::{Book, Pages};
use crate::simulate::world::World;

/// What timers and restarts add to a grace at most.
const TICKS_MS: u64 = 200;

/// How long everything may take to end when nothing goes wrong any more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3_600);

/// Judges the store as an operator would, from what it holds alone.
pub(crate) fn whole(book: &Book, journal: &Journal) {
    match audit(journal, false) {
        Ok(()) => {}
        Err(AuditError::Violated(violation)) => book.wrong(violation.id.id(), violation.to_string()),
        Err(error @ AuditError::Fold { .. }) => book.wrong("J-4", error.to_string()),
        Err(error @ AuditError::Read(_)) => book.wrong("J-8", error.to_string()),
    }
}

/// Judges everything that is durable and that was seen.
pub(crate) fn archive(world: &World, at_rest: bool) {
    let rows = match world.disk.rows() {
        Ok(rows) => rows,
        Err(error) => return world.book.wrong("J-8", error.to_string()),
    };
    let limits = &world.swarm.limits;
    let slots = Slots {
        per_root: (limits.live_runs, limits.live_person_runs),
        of_class: u32::try_from(world.swarm.slots).unwrap_or(u32::MAX),
    };
    let mut book = world.book.open();
    let now = book.now();
    // A clock that jumps leaves everybody late.
    let grace_ms = book.jumped.is_zero().then(|| limits.grace_ms.saturating_add(TICKS_MS));
    let listings = if world.chance.one_in(4) { listings(&book, world) } else { Vec::new() };
    book.sights.tick(now);
    book.sights.lists(listings);
    let observed = book.sights.all_mut();
    (observed.grace_ms, observed.healed) = (grace_ms, at_rest);
    match book.archive.judge(&rows, book.sights.all(), slots, at_rest) {
        Ok(()) => book.tally.mark(if at_rest { "judged at rest" } else { "judged" }),
        Err(violation) => book.wrong(violation.id.id(), violation.to_string()),
    }
}

/// What is listed from each root, at this instant (T-9).
fn listings(book: &Pages, world: &World) -> Vec<Listing> {
    let roots = book.archive.roots();
    let listed = roots.map(|root| Listing { root, listed: world.disk.below(root), reached: None });
    listed.collect()
}

/// Whether nothing is in flight and nothing is owed.
pub(crate) fn is_quiet(journal: &Journal) -> bool {
    let quiet = journal.inflight().is_ok_and(|rows| rows.is_empty());
    quiet && journal.outbox().is_ok_and(|rows| rows.is_empty()) && journal.durable() == journal.appended()
}

/// What is in flight or owed, in words.
pub(crate) fn left(journal: &Journal) -> String {
    let heads = journal.heads().unwrap_or_default();
    let inflight = journal.inflight().unwrap_or_default();
    let state = |session| heads.iter().find(|(id, _)| *id == session).map(|(_, head)| head.state);
    let runs: Vec<_> = inflight.iter().map(|(session, _)| format!("{session} {:?}", state(*session))).collect();
    let rows: Vec<_> = journal.outbox().unwrap_or_default().into_iter().map(|(row, _)| format!("{row:?}")).collect();
    format!("in flight {runs:?}, owed {rows:?}")
}

/// At rest nothing of a run is kept.
pub(crate) fn baseline(world: &World, runtime: &Runtime) {
    if runtime.slots_in_use() != 0 {
        world.book.wrong("T-3", format!("{} slots are in use when all is quiet", runtime.slots_in_use()));
    }
    let waits = world.book.open().waits;
    if waits != 0 {
        world.book.wrong("S-6", format!("{waits} waits for ends are not answered when all is quiet"));
    }
}

/// Whatever was acknowledged is there (J-1).
pub(crate) fn acknowledged(book: &Book, journal: &Journal) {
    let acknowledged = book.open().acknowledged.clone();
    let mut kept = BTreeSet::new();
    for session in acknowledged.iter().map(|(session, _)| *session).collect::<BTreeSet<_>>() {
        let records = journal.records(session).unwrap_or_default();
        kept.extend(records.into_iter().filter_map(|stored| {
            let Record::InputAccepted(input) = stored.record else { return None };
            Some((session, input.id))
        }));
    }
    if let Some((session, input)) = acknowledged.difference(&kept).next() {
        book.wrong("J-1", format!("input {input} of {session} was acknowledged and is gone"));
    }
}
