//! Causes of turns: N-5.

use std::collections::BTreeSet;

use crate::observed::GivenContext;
use crate::world::{RunFacts, SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, rollback};
use subtend_session::ids::{CallId, Seq, SessionId};
use subtend_session::message::Message;
use subtend_session::outcome::Initiator;
use subtend_session::place::BranchKind;
use subtend_session::record::{Carrier, Hold, NoticeTaken, Park, Prompt, Record};
use subtend_session::state::State;

/// Checks that a notice opens no run, does not interrupt an active run, and starts no turn unless it is a waking notice.
pub(super) fn notices_wait(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for run in seen.runs.values() {
            let Some((_, opened)) = run.opened else { continue };
            ensure(!opened.inputs.is_empty(), InvariantId::N5, *session, || {
                format!("run {} was opened by no input", opened.run)
            })?;
            check_boundaries(*session, seen, run)?;
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Due {
    /// True if the last answer requested no calls, so that the run is at a rest point.
    rest: bool,
    taken: bool,
    woken: bool,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other records change nothing here")]
fn check_boundaries(session: SessionId, seen: &SessionFacts<'_>, run: &RunFacts<'_>) -> Verdict {
    let mine: BTreeSet<CallId> = keys_of(seen, run);
    let (mut streams, mut held) = (false, false);
    let mut due = Due::default();
    let records = seen.records_of(run);
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::TurnStarted { attempt, prompt, .. } => {
                streams = true;
                let why = attempt.0 > 1 || *prompt != Prompt::Plain || !due.rest || due.taken || due.woken;
                ensure(why, InvariantId::N5, session, || {
                    format!("{record:?} at a rest point where no input was taken and no notice wakes")
                })?;
                due = Due::default();
            }
            Record::AttemptDiscarded(_) => streams = false,
            Record::TurnAnswered(answer) => {
                streams = false;
                due = Due { rest: answer.calls.is_empty(), ..Due::default() };
            }
            Record::InputsTaken { .. } => (held, due.taken) = (false, true),
            Record::RunHeld { .. } => held = true,
            Record::NoticeTaken(taken) if taken.carrier == Carrier::Message => {
                due.woken |= wakes(taken, &mine);
                let stops = records.get(at..).is_some_and(stops);
                ensure(!streams || held || stops, InvariantId::N5, session, || {
                    format!("{record:?} while a model call is in flight")
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the keys that the run itself created. Ends of runs with keys of an earlier run do not wake it.
fn keys_of(seen: &SessionFacts<'_>, run: &RunFacts<'_>) -> BTreeSet<CallId> {
    let from = run.opened.map_or(usize::MAX, |(at, _)| at);
    let to = run.ended.map_or(usize::MAX, |(at, _)| at);
    seen.owned_keys().filter(|(at, ..)| (from..to).contains(at)).map(|(_, key, _)| key).collect()
}

fn wakes(taken: &NoticeTaken, mine: &BTreeSet<CallId>) -> bool {
    taken.items.iter().any(|item| item.waking && item.key.is_some_and(|key| mine.contains(&key)))
}

/// Returns whether a run that is held or ends in the same decision stores its rows.
pub(super) fn stops(records: &[Record]) -> bool {
    let next = records.iter().find(|record| {
        !matches!(
            record,
            Record::NoticeTaken(_)
                | Record::CallFinished(_)
                | Record::AttemptDiscarded(_)
                | Record::AskAnswered { .. }
                | Record::CancelAsked { .. }
                | Record::QueueChanged { by: Initiator::Host, .. }
        )
    });
    matches!(next, Some(Record::RunHeld { .. } | Record::RunEnded(_)))
}

/// Checks that a run at rest continues when an owned run ends.
pub(super) fn idle_runs_wake(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(run) = seen.view.state.filter(|state| is_idle(state)).and_then(|state| state.run.as_ref()) else {
            continue;
        };
        let Some(known) = seen.runs.get(&run.no) else { continue };
        let mine = keys_of(seen, known);
        let records = seen.records_of(known).iter().rev();
        let since = records.take_while(|record| !matches!(record, Record::TurnStarted { .. } | Record::RunHeld { .. }));
        let woken = since.into_iter().any(|record| {
            let Record::NoticeTaken(taken) = record else { return false };
            taken.carrier == Carrier::Message && wakes(taken, &mine)
        });
        ensure(!woken || run.is_spent(), InvariantId::N5, *session, || {
            format!("run {} received the end of an awaited run, but stays idle", run.no)
        })?;
    }
    Ok(())
}

/// Returns whether a run is at rest, neither held nor awaiting a slot.
fn is_idle(state: &State) -> bool {
    state.run.as_ref().is_some_and(|run| {
        let turn = run.turn.as_ref().is_some_and(|turn| !turn.streaming && turn.open == 0);
        let held = matches!(run.hold, Some(Hold::Closing { .. } | Hold::Interrupted { .. } | Hold::OutOfTurns));
        let due = run.turn.as_ref().is_some_and(|turn| turn.limited.is_some());
        run.started && turn && !held && !due && run.parked != Some(Park::Slot)
    })
}

/// Checks that every notice that was stored before a turn is in the input of the turn's model call.
pub(super) fn model_receives_notices(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    for given in &observed.contexts {
        let (Some(messages), Some(seen)) = (&given.messages, world.sessions.get(&given.run.session)) else { continue };
        // Skips sessions in which an alternative was selected: messages after the original answer may be hidden.
        if seen.view.records.iter().any(|record| matches!(record, Record::AlternativeSwitched { .. })) {
            continue;
        }
        if lost_its_compaction(seen, given) {
            continue;
        }
        let shown: BTreeSet<Seq> = messages
            .iter()
            .filter_map(|message| match message {
                Message::Notice { seq, .. } => Some(*seq),
                Message::User { .. } | Message::Assistant { .. } | Message::Result { .. } | Message::Prompt { .. } => {
                    None
                }
            })
            .collect();
        let missing = stored_before(seen, given).into_iter().find(|seq| !shown.contains(seq));
        ensure(missing.is_none(), InvariantId::N5, given.run.session, || {
            format!("turn {} does not receive the notice of record {missing:?}", given.turn)
        })?;
    }
    Ok(())
}

/// Returns whether the attempt was called with a compacted history, and a fault then dropped the record of the compaction with the rest of
/// the batch. A model that waits for no intent is called before the batch is appended. The attempt is repeated, and compacts again.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other records are not of an attempt")]
fn lost_its_compaction(seen: &SessionFacts<'_>, given: &GivenContext) -> bool {
    let of = (given.turn, given.attempt);
    let (mut compacts, mut is_known) = (false, false);
    for record in seen.view.records {
        match record {
            Record::TurnStarted { turn, attempt, compacts: cause, .. } if (*turn, *attempt) == of => {
                compacts = cause.is_some();
            }
            Record::Compacted(compacted) => is_known |= compacted.turn == Some(of),
            Record::CompactionFailed(failed) => is_known |= (failed.turn, failed.attempt) == of,
            Record::TurnAnswered(answer) => is_known |= (answer.turn, answer.attempt) == of,
            _ => {}
        }
    }
    compacts && !is_known
}

/// Returns the notices that the last compaction before the model call hides. N-8 checks that it may hide them.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other records hide no notice")]
fn compacted_before(seen: &SessionFacts<'_>, given: &GivenContext, start: usize) -> BTreeSet<Seq> {
    let mut applied = Vec::new();
    for (at, record) in seen.view.records.iter().enumerate() {
        match record {
            Record::Compacted(compacted) if at < start || compacted.turn == Some((given.turn, given.attempt)) => {
                applied.push(compacted);
            }
            Record::CompactionUndone { .. } if at < start => _ = applied.pop(),
            _ => {}
        }
    }
    let (Some(last), Some(state)) = (applied.pop(), seen.view.state.or(seen.view.folded)) else {
        return BTreeSet::new();
    };
    let hidden = (0_u64..).zip(state.transcript.iter()).take_while(|(at, _)| *at < last.upto);
    let hidden = hidden.filter(|(at, _)| !last.verbatim.contains(at));
    let seq = |message: &Message| if let Message::Notice { seq, .. } = message { Some(*seq) } else { None };
    hidden.filter_map(|(_, message)| seq(message)).collect()
}

fn stored_before(seen: &SessionFacts<'_>, given: &GivenContext) -> Vec<Seq> {
    let alternatives = seen.branches.iter().filter(|(_, branch)| branch.kind == BranchKind::Alternative);
    let silent: BTreeSet<SessionId> = alternatives.map(|(_, branch)| branch.child).collect();
    let starts = |record: &Record| matches!(record, Record::TurnStarted { turn, attempt, .. } if (*turn, *attempt) == (given.turn, given.attempt));
    let start = seen.view.records.iter().position(starts).unwrap_or(seen.view.records.len());
    let hidden = rollback::hidden_before(seen, start);
    let compacted = compacted_before(seen, given, start);
    let before = (1_u64..).map(Seq).zip(seen.view.records).take(start);
    before
        .filter(|(seq, record)| {
            let Record::NoticeTaken(taken) = record else { return false };
            let is_received = taken.carrier == Carrier::Message && !hidden.contains(seq) && !compacted.contains(seq);
            // The end of a run that a person opened is for views only.
            is_received && taken.items.iter().any(|item| item.key.is_some() && !silent.contains(&item.child))
        })
        .map(|(seq, _)| seq)
        .collect()
}
