//! Messages between relatives: the permitted senders, and the effects on the run that takes a message.

use std::collections::BTreeSet;

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::call::{CallEnd, CallKind};
use subtend_session::ids::{CallId, InputId, SessionId};
use subtend_session::record::{From, InputAccepted, Record};

/// Checks that a message comes from a parent, child or sibling, opens no run, and renews no turns.
pub(super) fn messages_come_from_relatives(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let sent: Vec<&InputAccepted> = seen.view.records.iter().filter_map(message).collect();
        for message in &sent {
            let From::Model { session: sender, .. } = message.from else { continue };
            ensure(are_related(world, *session, sender), InvariantId::P6, *session, || {
                format!("{sender} sent it a message but is neither its parent, its child nor its sibling")
            })?;
        }
        if !sent.is_empty() {
            enters_running_runs(*session, seen, &sent.iter().map(|input| input.id).collect())?;
        }
    }
    Ok(())
}

fn message(record: &Record) -> Option<&InputAccepted> {
    let Record::InputAccepted(input) = record else { return None };
    Some(&**input).filter(|input| input.is_from_relative())
}

/// Returns whether `other` is the parent, a child or a sibling of `one`. If `other` was erased, the parent's record of its
/// creation shows that, unless the parent was erased too.
fn are_related(world: &World<'_>, one: SessionId, other: SessionId) -> bool {
    let seen = |of: SessionId| world.sessions.get(&of);
    let is_child_of = |of: SessionId| seen(of).is_none_or(|seen| seen.spawned.iter().any(|(_, it)| it.child == other));
    match seen(one).and_then(|seen| seen.created).and_then(|created| created.place.parent()) {
        Some(parent) => parent == other || is_child_of(one) || (one != other && is_child_of(parent)),
        None => is_child_of(one),
    }
}

/// The turns of the run in flight since an input last renewed them.
#[derive(Default)]
struct Turns {
    spent: u32,
    allowance: u32,
    /// Proposals that were started. An approved proposal renews the turns.
    proposals: BTreeSet<CallId>,
    /// True if the last inputs that the run took were only messages of relatives.
    by_messages: bool,
}

impl Turns {
    fn read(&mut self, record: &Record, inputs: &SessionFacts<'_>, sent: &BTreeSet<InputId>) {
        if let Record::RunOpened(opened) = record {
            (self.spent, self.allowance, self.by_messages) = (0, opened.max_turns, false);
        } else if let Record::TurnAnswered(_) = record {
            self.spent = self.spent.saturating_add(1);
        } else if let Record::InputsTaken { ids, .. } = record {
            self.by_messages = ids.iter().all(|id| sent.contains(id));
            if !self.by_messages {
                self.spent = 0;
                self.allowance = turns(inputs, ids).unwrap_or(self.allowance);
            }
        } else if let Record::CallStarted { call, kind, .. } = record
            && matches!(**kind, CallKind::Propose(_))
        {
            self.proposals.insert(*call);
        } else if let Record::CallFinished(finished) = record
            && finished.end == CallEnd::Ok
            && self.proposals.contains(&finished.call)
        {
            self.spent = 0;
        }
    }
}

/// Returns the allowance of the last of the taken inputs, if any.
fn turns(seen: &SessionFacts<'_>, ids: &[InputId]) -> Option<u32> {
    let of = |record: &Record| {
        let Record::InputAccepted(input) = record else { return None };
        input.allowance().filter(|_| ids.contains(&input.id))
    };
    seen.view.records.iter().rev().find_map(of)
}

fn enters_running_runs(session: SessionId, seen: &SessionFacts<'_>, sent: &BTreeSet<InputId>) -> Verdict {
    let mut turns = Turns::default();
    for record in seen.view.records {
        if let Record::RunOpened(opened) = record {
            ensure(!opened.inputs.iter().any(|id| sent.contains(id)), InvariantId::P6, session, || {
                format!("a message of a relative opened run {}", opened.run)
            })?;
        }
        turns.read(record, seen, sent);
        if let Record::TurnStarted { run, turn, attempt, .. } = record
            && attempt.0 == 1
            && turns.by_messages
        {
            ensure(turns.spent < turns.allowance, InvariantId::P6, session, || {
                format!("turn {turn} of run {run} began after {} of {} turns", turns.spent, turns.allowance)
            })?;
        }
    }
    Ok(())
}
