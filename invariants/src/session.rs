//! Sessions and their runs: S-1, S-2, S-4, S-7, S-9 to S-12, E-2.

use crate::world::{Activation, SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::call::CallKind;
use subtend_session::ids::{AttemptNo, CallId, RunKey, RunNo, Seq, SessionId, TurnNo};
use subtend_session::index::{RowKey, RowKind};
use subtend_session::message::Message;
use subtend_session::place::Mode;
use subtend_session::record::{AskVerdict, Hold, Lane, Park, Record};
use subtend_session::state::{CallPhase, Queued, Run, State, Turn};

pub(super) fn one_end_per_run(world: &World<'_>) -> Verdict {
    world.runs().try_for_each(|(key, run)| {
        let opened_before = run.ended.is_none() || run.opened.is_some();
        ensure(run.ends <= 1 && opened_before, InvariantId::S1, key.session, || {
            format!("run {} has {} ends; it was opened: {}", key.run, run.ends, run.opened.is_some())
        })
    })
}

/// Checks that every run has ended, unless it awaits an external event.
pub(super) fn all_runs_end(world: &World<'_>) -> Verdict {
    let waits = |activation: &Activation| {
        !(activation.models.is_empty()
            && activation.tools.is_empty()
            && activation.slot.is_none()
            && activation.admits.is_empty())
    };
    // A run that waits for the reset of a provider's limit may still be in flight. S-6 checks that its timer is armed.
    let limited = |state: &State| state.run.as_ref().is_some_and(|run| run.limit_reset_at().is_some());
    let asks = |state: &State| state.turn().is_some_and(has_asked) || limited(state);
    let outside = world
        .sessions
        .values()
        .any(|seen| seen.view.activation.as_ref().is_some_and(waits) || seen.view.state.is_some_and(asks));
    if outside || !world.complete {
        return Ok(());
    }
    world.runs().try_for_each(|(key, run)| {
        ensure(run.ends == 1, InvariantId::S1, key.session, || format!("run {} will never end", key.run))
    })
}

fn has_asked(turn: &Turn) -> bool {
    turn.calls.iter().any(|call| matches!(call.phase, CallPhase::Asked(_)))
}

pub(super) fn ends_never_change(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for (no, run) in &seen.runs {
            let Some((at, ended)) = run.ended else { continue };
            let later = seen.view.records.iter().skip(at.saturating_add(1)).find(|record| run_of(record) == Some(*no));
            ensure(later.is_none(), InvariantId::S2, *session, || {
                format!("run {no} has ended, but {later:?} follows")
            })?;
            if let Some((_, fixed, _)) = run.closing {
                ensure(*fixed == ended.outcome, InvariantId::S2, *session, || {
                    format!("run {no} was closing as {fixed:?} and ended as {:?}", ended.outcome)
                })?;
            }
            if let Some(last) = seen.view.state.and_then(|state| state.last.as_ref()).filter(|last| last.run == *no) {
                ensure(last.outcome == ended.outcome, InvariantId::S2, *session, || {
                    format!("run {no} ended as {:?}, but its state has {:?}", ended.outcome, last.outcome)
                })?;
            }
        }
        for (_, item) in &seen.taken {
            let Some(run) = item.run else { continue };
            let key = RunKey { session: item.child, run };
            let Some((_, ended)) = world.run(key).and_then(|run| run.ended) else { continue };
            ensure(item.has_outcome(&ended.outcome), InvariantId::S2, *session, || {
                format!("{key:?} ended as {:?}, but its notice has {:?}", ended.outcome, item.outcome)
            })?;
        }
    }
    Ok(())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the other records belong to no run")]
fn run_of(record: &Record) -> Option<RunNo> {
    match record {
        Record::RunOpened(opened) => Some(opened.run),
        Record::TurnAnswered(answered) => Some(answered.run),
        Record::RunEnded(ended) => Some(ended.run),
        Record::RunStarted { run, .. }
        | Record::InputsTaken { run, .. }
        | Record::TurnStarted { run, .. }
        | Record::RunParked { run, .. }
        | Record::RunResumed { run, .. }
        | Record::RunHeld { run, .. } => Some(*run),
        _ => None,
    }
}

pub(super) fn one_stream_per_session(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        if let Some(activation) = &seen.view.activation {
            let streams = &activation.models;
            ensure(streams.len() <= 1, InvariantId::S7, *session, || format!("streams in flight: {streams:?}"))?;
        }
        let mut started = None::<(TurnNo, AttemptNo)>;
        let mut answered = None::<TurnNo>;
        for record in seen.view.records {
            if let Record::TurnStarted { turn, attempt, .. } = record {
                let later =
                    started.is_none_or(|last| last < (*turn, *attempt)) && answered.is_none_or(|last| last < *turn);
                ensure(later, InvariantId::S7, *session, || {
                    format!("turn {turn} attempt {attempt} after {started:?}, answered {answered:?}")
                })?;
                started = Some((*turn, *attempt));
            } else if let Record::TurnAnswered(answer) = record {
                let awaited = started == Some((answer.turn, answer.attempt)) && answered != Some(answer.turn);
                ensure(awaited, InvariantId::S7, *session, || {
                    format!("answer to turn {} attempt {}, awaited {started:?}", answer.turn, answer.attempt)
                })?;
                answered = Some(answer.turn);
            }
        }
    }
    Ok(())
}

/// Checks that runs are numbered from 1 without gaps, and that each is opened after the end of the previous one.
pub(super) fn runs_in_order(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut next = RunNo(1);
        for record in seen.view.records {
            if let Record::RunOpened(opened) = record {
                ensure(opened.run == next, InvariantId::S9, *session, || {
                    format!("run {}, but {next} was expected", opened.run)
                })?;
                next = next.next();
            }
        }
        let runs: Vec<_> = seen.runs.values().collect();
        for pair in runs.windows(2) {
            let [before, after] = pair else { continue };
            let (Some((opened, _)), ended) = (after.opened, before.ended) else { continue };
            ensure(ended.is_some_and(|(at, _)| at < opened), InvariantId::S9, *session, || {
                format!("record {opened} opens a run before the previous run has ended")
            })?;
        }
    }
    Ok(())
}

pub(super) fn one_run_per_session(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut in_flight = None::<RunNo>;
        for record in seen.view.records {
            if let Record::RunOpened(opened) = record {
                ensure(in_flight.is_none(), InvariantId::S10, *session, || {
                    format!("run {} is opened while {in_flight:?} is in flight", opened.run)
                })?;
                in_flight = Some(opened.run);
            } else {
                let about = run_of(record);
                ensure(about.is_none() || about == in_flight, InvariantId::S10, *session, || {
                    format!("{record:?} while {in_flight:?} is in flight")
                })?;
                if matches!(record, Record::RunEnded(_)) {
                    in_flight = None;
                }
            }
        }
        if let Some(state) = seen.view.state {
            let run = state.run.as_ref().map(|run| run.no);
            ensure(run == in_flight, InvariantId::S10, *session, || {
                format!("state has {run:?} in flight, records {in_flight:?}")
            })?;
        }
    }
    Ok(())
}

pub(super) fn open_calls_are_counted(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(turn) = seen.view.state.and_then(|state| state.run.as_ref()).and_then(|run| run.turn.as_ref()) else {
            continue;
        };
        let answers = seen.view.records.iter().rev().filter_map(|record| {
            let Record::TurnAnswered(answer) = record else { return None };
            Some(answer)
        });
        let answer = answers.into_iter().find(|answer| answer.turn == turn.no);
        let call_count = answer.map_or(0, |answer| answer.calls.len());
        let without_result = (0..u32::try_from(call_count).unwrap_or(u32::MAX))
            .filter(|ix| !seen.results.contains_key(&CallId { turn: turn.no, ix: *ix }))
            .count();
        let open = usize::try_from(turn.open).unwrap_or(usize::MAX);
        ensure(open == without_result && turn.calls.len() == call_count, InvariantId::S11, *session, || {
            format!("turn {}: {open} calls count as open, {without_result} of {call_count} have no result", turn.no)
        })?;
    }
    Ok(())
}

/// The reason why a run in flight may be idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Model,
    Tools,
    Ledger,
    Owned,
    Ask,
    /// The reset of a provider's limit. S-6 checks its timer.
    Limit,
}

pub(super) fn reason_to_wait(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(run) = seen.view.state.and_then(|state| state.run.as_ref()) else { continue };
        let mut reason = None;
        let nothing = Activation::default();
        let awaits = seen.view.activation.as_ref().unwrap_or(&nothing);
        let mut needs = |needed: bool, backed: bool, found: Reason| {
            if needed && backed {
                reason = Some(found);
            }
            ensure(!needed || backed, InvariantId::S4, *session, || {
                format!("run {} waits for {found:?}, but has no such request in flight", run.no)
            })
        };
        if let Some(turn) = &run.turn {
            let stream = awaits.models.contains(&(turn.no, turn.attempt));
            needs(turn.streaming, stream, Reason::Model)?;
            needs(turn.local > 0, !awaits.tools.is_empty(), Reason::Tools)?;
            let put = (0_u32..).zip(&turn.calls).filter(|(_, call)| matches!(call.phase, CallPhase::Asked(_)));
            let is_open = put.into_iter().all(|(ix, _)| is_ask_open(world, *session, CallId { turn: turn.no, ix }));
            needs(has_asked(turn), is_open || !world.complete, Reason::Ask)?;
            // An unstarted call may wait for an earlier call of the answer, the ledger, or a slot.
            let ahead =
                turn.local > 0 || !awaits.admits.is_empty() || has_asked(turn) || run.parked == Some(Park::Slot);
            needs(turn.unstarted > 0, ahead, Reason::Ledger)?;
        }
        let wants_slot = !run.started || run.parked == Some(Park::Slot);
        needs(wants_slot, awaits.slot == Some(run.no), Reason::Ledger)?;
        needs(run.limit_reset_at().is_some(), true, Reason::Limit)?;
        needs(!run.owned.is_empty(), true, Reason::Owned)?;
        ensure(reason.is_some(), InvariantId::S4, *session, || format!("run {} waits for nothing", run.no))?;
    }
    Ok(())
}

/// Returns whether the ask for `call` is open at its root.
fn is_ask_open(world: &World<'_>, session: SessionId, call: CallId) -> bool {
    world.rows.iter().any(|row| row.from == session && row.kind == RowKind::Ask && row.key == RowKey::Call(call))
}

/// Checks rule 8: a slot is requested only for a due turn, after the inputs or notices that caused the turn were taken.
pub(super) fn slot_for_a_due_turn(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut limited = false;
        for pair in seen.view.records.windows(2) {
            if let Some(Record::RunParked { why, .. }) = pair.first() {
                limited = matches!(why, Park::Limit { .. });
            } else if let Some(Record::RunResumed { .. } | Record::RunHeld { .. } | Record::RunEnded(_)) = pair.first()
            {
                limited = false;
            }
            let [before, Record::RunParked { why: Park::Slot, .. }] = pair else { continue };
            // At the reset of a limit, the discarded model call is due again.
            let due = limited
                || matches!(
                    before,
                    Record::NoticeTaken(_)
                        | Record::InputsTaken { .. }
                        | Record::CallFinished(_)
                        | Record::AskAnswered { verdict: AskVerdict::Allow | AskVerdict::Always, .. }
                );
            ensure(due, InvariantId::S12, *session, || {
                format!("a slot is requested, but nothing was taken: {before:?}")
            })?;
        }
    }
    Ok(())
}

pub(super) fn nothing_takeable_waits(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(state) = seen.view.state else { continue };
        match state.run.as_deref() {
            Some(run) => check_queue_of_run(*session, seen, state, run)?,
            None => {
                let last = seen.runs.values().last().and_then(|run| run.ended);
                let keeps_queue = last.is_some_and(|(_, ended)| ended.keeps_queue);
                ensure(state.queue.is_empty() || keeps_queue, InvariantId::S12, *session, || {
                    format!(
                        "{} inputs are queued in a quiet session whose queue should not stay queued",
                        state.queue.len()
                    )
                })?;
            }
        }
    }
    Ok(())
}

fn check_queue_of_run(session: SessionId, seen: &SessionFacts<'_>, state: &State, run: &Run) -> Verdict {
    let turn = run.turn.as_ref();
    let local = turn.is_some_and(|turn| turn.streaming || turn.local > 0);
    let open = turn.is_some_and(|turn| turn.open > 0);
    match &run.hold {
        Some(Hold::Closing { outcome, .. }) => {
            ensure(local || !run.owned.is_empty(), InvariantId::S12, session, || {
                format!("run {} is closing as {outcome:?}, but waits for nothing of its own", run.no)
            })
        }
        hold => {
            let slot = !run.started || run.parked == Some(Park::Slot);
            // A message does not extend a run that a model's call opened.
            let model = run.opened.owner.is_model_call();
            let parked = run.limit_reset_at().is_some();
            // A relative's message does not resume a held run or a run whose turns are spent.
            let waits = |queued: &Queued| queued.input.is_from_relative() && (hold.is_some() || run.is_spent());
            let mut queue = state.queue.iter().filter(|queued| !waits(queued));
            let takeable = queue.any(|queued| !model || queued.lane() == Lane::Steer);
            ensure(local || open || slot || parked || !takeable, InvariantId::S12, session, || {
                format!("run {} is at rest or held, but {} inputs are queued", run.no, state.queue.len())
            })?;
            match hold {
                Some(Hold::Interrupted { .. }) => check_interrupted_children(session, seen, run),
                Some(Hold::OutOfTurns | Hold::Closing { .. }) | None => Ok(()),
            }
        }
    }
}

/// Checks that an interrupted run has cancelled every child whose blocking call is still open.
fn check_interrupted_children(session: SessionId, seen: &SessionFacts<'_>, run: &Run) -> Verdict {
    let Some(turn) = &run.turn else { return Ok(()) };
    for (ix, call) in (0_u32..).zip(&turn.calls) {
        let id = CallId { turn: turn.no, ix };
        let blocking = matches!(call.kind, Some(CallKind::Child(Mode::Blocking) | CallKind::Continue(Mode::Blocking)));
        if !blocking || call.phase != CallPhase::Started {
            continue;
        }
        let request =
            run.owned.get(&id).is_none_or(|owned| owned.cancel_asked || seen.cancel_asked.contains(&(owned.child, id)));
        ensure(request, InvariantId::S12, session, || {
            format!("run {} is interrupted, but blocking call {id} continues", run.no)
        })?;
    }
    Ok(())
}

/// Checks that the transcript has exactly the answers of the journal, with the same texts.
pub(super) fn no_trace_of_discarded(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(state) = seen.view.state else { continue };
        let answers = (1_u64..).map(Seq).zip(seen.view.records).filter_map(|(seq, record)| {
            let Record::TurnAnswered(answer) = record else { return None };
            Some((seq, answer.text.as_ref()))
        });
        // A branch inherits answers of its parent.
        let own = state.transcript.iter().skip(state.created.inherited.len());
        let shown = own.filter_map(|message| match message {
            Message::Assistant { seq, text, .. } => Some((*seq, text.as_ref())),
            Message::User { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
        });
        let (answers, shown): (Vec<_>, Vec<_>) = (answers.collect(), shown.collect());
        ensure(answers == shown, InvariantId::E2, *session, || {
            format!("answered {answers:?}, transcript shows {shown:?}")
        })?;
    }
    Ok(())
}
