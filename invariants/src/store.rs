//! Recovery, damage, failures and deletion of a store: J-7, J-8, J-9, J-10.

use crate::observed::{DamageReplies, Failure, Recovery};
use crate::world::World;
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::outcome::Outcome;

/// Checks that a start without pending work writes nothing.
pub(super) fn start_at_rest_changes_nothing(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.boots.iter().try_for_each(|boot| {
        ensure_if(boot.at_rest, boot.wrote == 0, InvariantId::J7, any_session(world), || {
            format!("a start at rest, at {:?}, wrote {} frames", boot.at, boot.wrote)
        })
    })
}

/// Checks that the result of a completed recovery does not depend on the number of interrupted recoveries before it.
pub(super) fn same_recovery(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    let clean = |crash| observed.recoveries.iter().find(|other| other.crash == crash && other.interrupted == 0);
    observed.recoveries.iter().try_for_each(|recovery| {
        let Some(clean) = clean(recovery.crash.clone()) else { return Ok(()) };
        let other = difference(clean, recovery);
        ensure(other.is_none(), InvariantId::J7, other.map_or_else(|| any_session(world), |(at, ..)| at), || {
            let (interrupted, crash) = (recovery.interrupted, &recovery.crash);
            format!("{crash}, after {interrupted} interrupted recoveries: (session, clean end, other end) {other:?}")
        })
    })
}

type Difference<'a> = (SessionId, Option<&'a Outcome>, Option<&'a Outcome>);

fn difference<'a>(clean: &'a Recovery, other: &'a Recovery) -> Option<Difference<'a>> {
    let runs = clean.ends.keys().chain(other.ends.keys());
    let ends = runs.map(|run| (run.session, clean.ends.get(run), other.ends.get(run)));
    ends.into_iter().find(|(_, one, two)| one != two)
}

/// Checks that a damaged session is reported as damaged, does not reply as usual, and affects no other session.
pub(super) fn damage_is_isolated(world: &World<'_>) -> Verdict {
    let Some(DamageReplies { damaged, refused, served }) = world.observed.and_then(|observed| observed.damage.as_ref())
    else {
        return Ok(());
    };
    let describe = |session: &SessionId, is: &str| format!("session {session} is {is}");
    damaged.iter().try_for_each(|session| {
        ensure(!served.contains(session), InvariantId::J8, *session, || {
            describe(session, "damaged, but answers as usual")
        })?;
        ensure(refused.contains(session), InvariantId::J8, *session, || {
            describe(session, "damaged, but does not report it")
        })
    })?;
    let others = world.sessions.keys().chain(refused).filter(|session| !damaged.contains(session));
    others.into_iter().try_for_each(|session| {
        ensure(!refused.contains(session), InvariantId::J8, *session, || {
            describe(session, "undamaged, but is refused")
        })?;
        ensure(served.contains(session), InvariantId::J8, *session, || {
            describe(session, "undamaged, but does not answer")
        })
    })
}

/// Checks that what was acknowledged between a failure and the reopening of the store was durable before the failure.
pub(super) fn failure_stops_acknowledgements(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.failures.iter().try_for_each(|Failure { at, reopened, durable }| {
        let during =
            observed.acked.iter().filter(|acked| acked.at >= *at && reopened.is_none_or(|till| acked.at < till));
        during.into_iter().try_for_each(|acked| {
            let last = durable.get(&acked.session).copied().unwrap_or(Seq(0));
            ensure(acked.seq <= last, InvariantId::J9, acked.session, || {
                format!(
                    "record {} was acknowledged after the store had failed at {at:?}, with {last} durable",
                    acked.seq
                )
            })
        })
    })
}

/// Checks that an erased session has no records.
pub(super) fn erased_session_is_empty(world: &World<'_>) -> Verdict {
    world.erased.iter().try_for_each(|session| {
        let left = world.sessions.get(session).map_or(0, |seen| seen.view.records.len());
        ensure(left == 0, InvariantId::J10, *session, || format!("it is erased, but {left} of its records remain"))
    })
}

/// Returns some session, for violations that concern no particular one.
fn any_session(world: &World<'_>) -> SessionId {
    world.sessions.keys().next().copied().unwrap_or(SessionId(uuid::Uuid::nil()))
}
