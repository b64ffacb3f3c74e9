//! Clients of a host: the events that they receive, and the effects of their commands.

use std::collections::BTreeMap;

use crate::observed::{ClientLog, KeyedCommand};
use crate::{InvariantId, Verdict, World, ensure};
use subtend_session::ids::{InputId, Seq, SessionId, Text};
use subtend_session::record::Record;

/// Checks that each client receives durable events once and in the order of the store. A complete client has all events.
pub(super) fn each_event_once(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.clients.iter().try_for_each(|log| check_received_once(world, log))
}

fn check_received_once(world: &World<'_>, log: &ClientLog) -> Verdict {
    let (mut last, mut next) = ((0, 0), BTreeMap::<SessionId, Seq>::new());
    for (place, session, seq) in &log.received {
        ensure(*place > last, InvariantId::H1, *session, || {
            format!("{} received the event {}.{} after {}.{}", log.name, place.0, place.1, last.0, last.1)
        })?;
        let expected = next.get(session).copied().unwrap_or(Seq(1));
        ensure(*seq == expected, InvariantId::H1, *session, || {
            format!("{} received record {seq}, but {expected} was expected", log.name)
        })?;
        last = *place;
        next.insert(*session, seq.next());
    }
    if !log.complete {
        return Ok(());
    }
    world.sessions.iter().try_for_each(|(session, seen)| {
        let received = next.get(session).map_or(0, |next| next.0.saturating_sub(1));
        let records = seen.view.records.len();
        ensure(usize::try_from(received) == Ok(records), InvariantId::H1, *session, || {
            format!("{} received {received} of {records} records", log.name)
        })
    })
}

/// Checks that a keyed command created at most one input, exactly one if answered, and that every reply names it.
pub(super) fn one_effect_per_key(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed.filter(|observed| !observed.keyed.is_empty()) else { return Ok(()) };
    let mut made = BTreeMap::<&Text, Vec<(SessionId, InputId)>>::new();
    for (session, seen) in &world.sessions {
        for record in seen.view.records {
            if let Record::InputAccepted(input) = record {
                made.entry(&input.text).or_default().push((*session, input.id));
            }
        }
    }
    let of = |command: &KeyedCommand| made.get(&command.text).cloned().unwrap_or_default();
    observed.keyed.iter().try_for_each(|command| {
        let made = of(command);
        let Some(session) = made.first().or(command.replies.first()).map(|(session, _)| *session) else {
            return Ok(());
        };
        let answered = command.replies.iter().all(|reply| made.first() == Some(reply));
        ensure(made.len() <= 1 && answered, InvariantId::H2, session, || {
            format!("the command {:?} created {made:?}, and its replies name {:?}", command.text, command.replies)
        })
    })
}
