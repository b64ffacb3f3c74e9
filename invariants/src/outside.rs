//! Replies and events for people and subscribers: J-1, S-2, S-3, T-9, N-6, B-1, B-2.

use std::collections::{BTreeMap, BTreeSet};

use crate::observed::{
    ControlAnswer, Delivered, Listing, ObservedAnswer, ObservedQueue, QueueAnswer, ReplySubject, SubscriberLog,
};
use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{RunKey, Seq, SessionId};
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::record::Record;

/// Checks that every acknowledged record is in the journal.
pub(super) fn acknowledgements_are_recorded(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    let kept = observed.acked.iter().filter(|acked| !world.erased.contains(&acked.session));
    kept.into_iter().try_for_each(|acked| {
        let records = world.sessions.get(&acked.session).map_or(0, |seen| seen.view.records.len());
        let exists = usize::try_from(acked.seq.0).is_ok_and(|seq| seq <= records);
        ensure(exists, InvariantId::J1, acked.session, || {
            format!("record {} was acknowledged, but the journal has only {records} records", acked.seq)
        })
    })
}

/// Checks that every reported end equals the recorded end, and that an acknowledged cancel ended the run.
pub(super) fn reported_ends_are_recorded(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.answers.iter().try_for_each(|seen| {
        let recorded = world.run(seen.run).and_then(|run| run.outcome());
        let same = match (&seen.answer, &seen.given, recorded) {
            (ControlAnswer::Ended(outcome), _, Some(recorded)) => Some(outcome == recorded),
            (ControlAnswer::Done, ReplySubject::Cancel(_), Some(recorded)) => {
                Some(recorded.kind() == OutcomeKind::Cancelled)
            }
            (
                ControlAnswer::Done | ControlAnswer::Ended(_) | ControlAnswer::NotFound | ControlAnswer::Stale(_),
                _,
                _,
            ) => None,
        };
        ensure_if(same.is_some(), same == Some(true), InvariantId::S2, seen.run.session, || {
            format!("run {} is {recorded:?}, but the reply was {:?} to {:?}", seen.run.run, seen.answer, seen.given)
        })
    })
}

/// Checks that a reply to a control reports an end if and only if the run ended, and a late result writes no record.
pub(super) fn answers_fit(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.answers.iter().try_for_each(|seen| {
        let fits = answer_fits(world, seen);
        ensure(fits.is_ok(), InvariantId::S3, seen.run.session, || {
            let why = fits.err().unwrap_or_default();
            format!("the reply for run {} was {:?} to {:?}, but {why}", seen.run.run, seen.answer, seen.given)
        })
    })
}

fn answer_fits(world: &World<'_>, seen: &ObservedAnswer) -> Result<(), &'static str> {
    let need = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
    let run = world.run(seen.run).filter(|run| run.opened.is_some());
    let known = run.is_some() || world.may_lack(seen.run.session);
    match (&seen.answer, &seen.given) {
        (ControlAnswer::Done, ReplySubject::Cancel(_) | ReplySubject::Interrupt(_)) => {
            need(known, "the run does not exist")
        }
        (ControlAnswer::Done, ReplySubject::End | ReplySubject::Late) => Ok(()),
        (ControlAnswer::Ended(_), _) => {
            need(!known || run.is_none_or(|run| run.outcome().is_some()), "it has not ended")
        }
        (ControlAnswer::NotFound, _) => {
            // The control may have arrived before the run was opened, so a run that has not ended is legal.
            need(run.is_none_or(|run| run.ended.is_none()), "it has ended")
        }
        (ControlAnswer::Stale(records), _) => need(*records == 0, "records were written nevertheless"),
    }
}

/// Checks that every live descendant is in its root's listing, and that a control by its id reaches it.
pub(super) fn live_sessions_are_listed(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.listings.iter().try_for_each(|listing| {
        live_descendants(world, listing.root).into_iter().try_for_each(|session| found(listing, session))
    })
}

fn found(listing: &Listing, session: SessionId) -> Verdict {
    ensure(listing.listed.contains(&session), InvariantId::T9, session, || {
        format!("it is alive, but not in the listing of {}", listing.root)
    })?;
    let Some(reached) = &listing.reached else { return Ok(()) };
    ensure(reached.contains(&session), InvariantId::T9, session, || {
        format!("it is alive, but not reached from {}", listing.root)
    })
}

fn live_descendants(world: &World<'_>, root: SessionId) -> BTreeSet<SessionId> {
    let is_alive = |session: &SessionId, seen: &SessionFacts<'_>| {
        let below = *session != root && seen.place().is_some_and(|place| place.root(*session) == root);
        below && seen.run_in_flight_at(usize::MAX).is_some()
    };
    world.sessions.iter().filter(|(session, seen)| is_alive(session, seen)).map(|(session, _)| *session).collect()
}

/// Checks that each event arrives once and in order, and that gaps are reported exactly.
pub(super) fn received_in_order(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.subscribers.iter().try_for_each(|log| check_received(world, log))
}

fn check_received(world: &World<'_>, log: &SubscriberLog) -> Verdict {
    let mut next: BTreeMap<SessionId, Seq> = log.follows.into_iter().collect();
    let (mut missed, mut gaps) = (0_u64, 0_u64);
    for received in &log.received {
        let (session, first, last) = match received {
            Delivered::Missed(count) => {
                missed = missed.saturating_add(*count);
                continue;
            }
            Delivered::Record(session, seq) => (*session, *seq, *seq),
            Delivered::Skipped(session, first, last) => (*session, *first, *last),
        };
        let expected = next.get(&session).copied().unwrap_or(first);
        ensure(first >= expected && last >= first, InvariantId::N6, session, || {
            format!("{} received record {first}, but {expected} was expected", log.name)
        })?;
        gaps = gaps.saturating_add(first.0.saturating_sub(expected.0));
        ensure(gaps <= missed, InvariantId::N6, session, || {
            format!(
                "{} received record {first}, but {expected} was expected, and was notified of {missed} missed",
                log.name
            )
        })?;
        next.insert(session, last.next());
    }
    let Some((session, _)) = log.follows.filter(|_| log.caught_up) else { return Ok(()) };
    let records = world.sessions.get(&session).map_or(0, |seen| seen.view.records.len());
    let known = next.get(&session).map_or(0, |next| next.0.saturating_sub(1));
    let all = usize::try_from(known).is_ok_and(|known| known >= records) || missed > gaps;
    ensure(all, InvariantId::N6, session, || format!("{} received {known} of {records} records", log.name))
}

/// Checks that queues stay within their bound, refuse only when full, and drop nothing that they accepted.
pub(super) fn queues_bounded(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.queues.iter().try_for_each(|put| {
        let fits = match put.answer {
            QueueAnswer::Taken(_) => put.len < put.bound,
            QueueAnswer::Busy => put.len == put.bound,
            QueueAnswer::Failed => false,
            QueueAnswer::Stopped => true,
        };
        ensure(fits && !was_dropped(world, put), InvariantId::B1, put.session, || {
            format!("the {} held {} of {}: {:?}", put.queue, put.len, put.bound, put.answer)
        })
    })
}

/// Returns whether an input was accepted into the queue but is missing in the journal.
fn was_dropped(world: &World<'_>, put: &ObservedQueue) -> bool {
    let (QueueAnswer::Taken(Some(id)), Some(seen)) = (put.answer, world.sessions.get(&put.session)) else {
        return false;
    };
    !seen.view.records.iter().any(|record| matches!(record, Record::InputAccepted(input) if input.id == id))
}

/// Checks that a control waits for at most one handler.
pub(super) fn controls_have_their_own_lane(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.controls.iter().try_for_each(|control| {
        ensure(control.waited_for <= 1, InvariantId::B2, control.session, || {
            let took = control.handled.ms.saturating_sub(control.given.ms);
            format!("a control waited for {} handlers, {took} ms", control.waited_for)
        })
    })
}

/// Checks that each run whose cancel was acknowledged has ended. Holds only in a quiescent world.
pub(super) fn acknowledged_cancels_end(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.answers.iter().try_for_each(|seen| {
        let kept = !world.erased.contains(&seen.run.session);
        let cancelled = kept && matches!((&seen.answer, &seen.given), (ControlAnswer::Done, ReplySubject::Cancel(_)));
        let recorded = outcome_of(world, seen.run);
        ensure_if(cancelled, recorded.is_some(), InvariantId::S2, seen.run.session, || {
            format!("run {} was cancelled, but continues", seen.run.run)
        })
    })
}

fn outcome_of<'a>(world: &'a World<'_>, run: RunKey) -> Option<&'a Outcome> {
    world.run(run).and_then(|run| run.outcome())
}
