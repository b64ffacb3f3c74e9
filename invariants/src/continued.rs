//! Runs opened by other runs: S-9.

use std::collections::BTreeSet;

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::{CallId, RunKey, RunNo, SessionId};

/// Checks that each owned run was requested once, by the owner that it names, while that owner's run was in flight.
pub(super) fn requested_once(world: &World<'_>) -> Verdict {
    let mut calls: BTreeSet<(SessionId, CallId)> = BTreeSet::new();
    for (key, run) in world.runs() {
        let Some((owner, call)) = run.owner() else { continue };
        ensure(calls.insert((owner.session, call)), InvariantId::S9, key.session, || {
            format!("a second run was opened by call {call} of {}", owner.session)
        })?;
        let Some(owner_session) = world.sessions.get(&owner.session) else { continue };
        let refused = world.sessions.get(&key.session).is_some_and(|seen| {
            let keys = seen.refused.iter();
            keys.into_iter().any(|(session, by, _)| (*session, *by) == (owner.session, call))
        });
        ensure(!refused, InvariantId::S9, key.session, || {
            format!("call {call} of {} was refused, but opened run {}", owner.session, key.run)
        })?;
        let at = if key.run == RunNo(1) {
            creation_position(owner_session, key.session, call)
        } else {
            request_position(owner_session, key.session, call)
        };
        let in_flight = at.and_then(|at| owner_session.run_in_flight_at(at));
        ensure(in_flight == Some((owner.run, false)), InvariantId::S9, key.session, || {
            format!("run {} names {owner:?} as its owner, whose call {call} did not request it", key.run)
        })?;
    }
    Ok(())
}

fn creation_position(owner_session: &SessionFacts<'_>, child: SessionId, call: CallId) -> Option<usize> {
    let mut spawned = owner_session.spawned.iter().filter(|(_, spawned)| !spawned.detached);
    spawned.find(|(_, spawned)| (spawned.child, spawned.call) == (child, call)).map(|(at, _)| *at)
}

fn request_position(owner_session: &SessionFacts<'_>, child: SessionId, call: CallId) -> Option<usize> {
    let mut continued = owner_session.continued.iter();
    continued.find(|(_, request)| (request.child, request.call) == (child, call)).map(|(at, _)| *at)
}

/// Checks that a session continues a child only after recording the end of the child's previous owned run.
pub(super) fn one_key_at_a_time(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for (at, request) in &seen.continued {
            let mut before = seen.owned_keys().filter(|(made, _, child)| made < at && *child == request.child);
            let open = before.find(|(_, key, child)| !seen.notices_by_key(*child, *key).any(|(taken, _)| taken < *at));
            ensure(open.is_none(), InvariantId::S9, *session, || {
                format!(
                    "call {} continues {} before the end of its previous run was delivered: {open:?}",
                    request.call, request.child
                )
            })?;
        }
    }
    Ok(())
}

/// Checks that late messages have no effect: each request for a child during a run comes from a turn of that run.
pub(super) fn late_messages_are_ignored(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let Some(seen) = world.sessions.get(&key.session) else { continue };
        let Some((from, _)) = run.opened else { continue };
        let to = run.ended.map_or(usize::MAX, |(at, _)| at);
        let within = |at: usize| (from..=to).contains(&at);
        let requests = seen.owned_keys().filter(|(at, ..)| within(*at));
        let turns = turns(seen, key);
        for (_, call, child) in requests {
            let known = turns.contains(&call.turn);
            ensure(known, InvariantId::S9, key.session, || {
                format!("run {} opened a run of {child} by call {call}, which another run requested", key.run)
            })?;
        }
    }
    Ok(())
}

fn turns(seen: &SessionFacts<'_>, key: RunKey) -> BTreeSet<subtend_session::ids::TurnNo> {
    let answers = seen.view.records.iter().filter_map(|record| {
        let subtend_session::record::Record::TurnAnswered(answer) = record else { return None };
        (answer.run == key.run).then_some(answer.turn)
    });
    answers.collect()
}
