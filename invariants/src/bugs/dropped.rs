//! Seeded bugs that drop records and effects, or change their fields.

use subtend_session::call::{CallEnd, CallKind};
use subtend_session::command::{Command, Deadline};
use subtend_session::effect::{Decision, Effect};
use subtend_session::ids::{AttemptNo, CallId};
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::record::{AnsweredBy, Hold, Park, Record};
use subtend_session::state::{CallPhase, Due, State};

use super::refold::{force, refold, takes_message};
use super::{Bug, Case, rows};

/// Drops the records and effects that the broken rule requires. `state` becomes the fold of the remaining records.
#[expect(clippy::wildcard_enum_match_arm, reason = "each bug has a control, which fails if it does nothing")]
pub(super) fn drop_some(case: &Case, state: &mut State, decision: &mut Decision) {
    rows::drop_notifications(case.bug, &decision.records, &mut decision.effects);
    let decided = decision.records.clone();
    let (records, effects) = (&mut decision.records, &mut decision.effects);
    match case.bug {
        Bug::RowsLeftPending => records.retain(|record| !takes_message(record)),
        Bug::SlotWithoutTaking => take_nothing_for_a_slot(case, records),
        Bug::NoCheckAfterLast => stop_after_the_tool(case, state, decision),
        Bug::CallsLeftOpen => leave_calls_open(case, records),
        Bug::UnstartedForgotten => forget_unstarted(case, state, decision),
        Bug::OpenCallsFromLiveSet => wait_for_live_children(case, decision),
        Bug::InterruptStopsHere => {
            records.retain(|record| !matches!(record, Record::CancelAsked { call: None, .. }));
            effects.retain(|effect| !matches!(effect, Effect::CancelChild { .. }) || !interrupts(case));
        }
        Bug::AskLeftOpen => records.retain(|record| !closes_ask(record)),
        Bug::SlotKeptWhileAsking => {
            let parks = |record: &Record| matches!(record, Record::RunParked { why: Park::Ask, .. });
            if records.iter().any(parks) {
                records.retain(|record| !parks(record));
                effects.retain(|effect| !matches!(effect, Effect::ReleaseSlot { .. }));
            }
        }
        Bug::AskWithoutDeadline => {
            effects.retain(|effect| !matches!(effect, Effect::Arm { deadline: Deadline::Ask(_), .. }));
        }
        Bug::ResetForgotten => {
            let again = matches!(case.command, Command::Reactivated { .. });
            let arms = |effect: &Effect| matches!(effect, Effect::Arm { deadline: Deadline::Limit(_), .. });
            effects.retain(|effect| !(again && arms(effect)));
        }
        Bug::SlotKeptAtLimit => {
            let parks = |record: &Record| matches!(record, Record::RunParked { why: Park::Limit { .. }, .. });
            if records.iter().any(parks) {
                effects.retain(|effect| !matches!(effect, Effect::ReleaseSlot { .. }));
            }
        }
        Bug::OwnersEndNamesPerson => name_a_person(decision),
        Bug::OwedCompacted => hide_all_before(records),
        _ => {}
    }
    if decision.records != decided {
        refold(case, state, &decided, &decision.records);
    }
}

/// Clears `verbatim`, so that a compaction hides every earlier message.
fn hide_all_before(records: &mut [Record]) {
    for record in records {
        if let Record::Compacted(compacted) = record {
            compacted.verbatim.clear();
        }
    }
}

fn interrupts(case: &Case) -> bool {
    matches!(case.command, Command::Interrupt { .. } | Command::Reactivated { .. })
}

fn closes_ask(record: &Record) -> bool {
    matches!(record, Record::AskAnswered { by: AnsweredBy::Closed, .. })
}

/// Drops the inputs and notices taken before a slot request. In a held run they remain: the input ends the hold.
fn take_nothing_for_a_slot(case: &Case, records: &mut Vec<Record>) {
    let held = case.before.run.as_ref().is_some_and(|run| run.hold.is_some());
    let asks = |record: &Record| matches!(record, Record::RunParked { why: Park::Slot, .. });
    if !held && records.iter().any(asks) {
        records.retain(|record| !matches!(record, Record::InputsTaken { .. }) && !takes_message(record));
    }
}

/// Drops everything after the result of the last local call.
fn stop_after_the_tool(case: &Case, state: &mut State, decision: &mut Decision) {
    let Command::ToolFinished { call: of, .. } = &case.command else { return };
    let finishes = |record: &Record| matches!(record, Record::CallFinished(finished) if finished.call == *of);
    let Some(at) = decision.records.iter().position(finishes) else { return };
    let mut then = case.before.clone();
    decision.records.iter().take(at.saturating_add(1)).for_each(|record| force(&mut then, record));
    if then.run.as_ref().is_some_and(|run| run.has_local_work()) {
        return;
    }
    decision.records.truncate(at.saturating_add(1));
    decision.effects.retain(|effect| *effect == Effect::Disarm { deadline: Deadline::Call(*of) });
    state.due = case.before.due.clone();
}

/// Drops the results of calls at a hold or an end, except those of started local calls.
fn leave_calls_open(case: &Case, records: &mut Vec<Record>) {
    let held = case.before.run.as_ref().is_some_and(|run| run.hold.is_some());
    if !held && !records.iter().any(|record| matches!(record, Record::RunHeld { .. } | Record::RunEnded(_))) {
        return;
    }
    let is_local = |call: CallId| {
        let call = case.before.call(call).filter(|call| call.phase == CallPhase::Started);
        call.is_some_and(|call| matches!(call.kind, Some(CallKind::Local(_))))
    };
    records.retain(|record| {
        let Record::CallFinished(finished) = record else { return !closes_ask(record) };
        !matches!(finished.end, CallEnd::Cancelled | CallEnd::Interrupted) || is_local(finished.call)
    });
}

/// Drops the starts of unstarted calls in a new activation.
fn forget_unstarted(case: &Case, state: &mut State, decision: &mut Decision) {
    let Command::Reactivated { owner_ended: None, .. } = case.command else { return };
    let is_unstarted = |call: CallId| case.before.call(call).is_some_and(|call| call.phase == CallPhase::Unstarted);
    let starts_next_turn = case.before.run.as_ref().is_some_and(|run| run.hold.is_none());
    let some = case.before.turn().is_some_and(|turn| turn.unstarted > 0);
    if !starts_next_turn || !some {
        return;
    }
    let about = |record: &Record| {
        if let Record::CallStarted { call, .. } | Record::AskOpened { call, .. } = record {
            is_unstarted(*call)
        } else if let Record::CallFinished(finished) = record {
            is_unstarted(finished.call)
        } else {
            matches!(record, Record::RunParked { .. } | Record::RunResumed { .. })
        }
    };
    let at = decision.records.iter().position(about).unwrap_or(decision.records.len());
    decision.records.truncate(at);
    decision.effects.retain(|effect| {
        if let Effect::RunTool { call }
        | Effect::AskPerson { call }
        | Effect::Arm { deadline: Deadline::Call(call) | Deadline::Ask(call), .. } = effect
        {
            return !is_unstarted(*call);
        }
        !matches!(effect, Effect::Admit { .. } | Effect::CallModel { .. } | Effect::ReleaseSlot { .. })
    });
    let due = std::mem::take(&mut state.due);
    let mut requests = due.asked;
    requests.retain(|ix, _| case.before.turn().is_some_and(|turn| !is_unstarted(CallId { turn: turn.no, ix: *ix })));
    state.due = Due { asked: requests, ..Due::default() };
}

/// Counts calls as open while an owned run is live, including background runs.
fn wait_for_live_children(case: &Case, decision: &mut Decision) {
    let over =
        |record: &Record| matches!(record, Record::RunHeld { .. } | Record::RunEnded(_) | Record::RunStarted { .. });
    if decision.records.iter().any(over) {
        return;
    }
    let (mut state, mut kept, mut waits) = (case.before.clone(), Vec::new(), false);
    for record in std::mem::take(&mut decision.records) {
        waits |= starts_next_turn(&record) && has_live_owned_run(&state);
        if !(waits && starts_next_turn(&record)) {
            force(&mut state, &record);
            kept.push(record);
        }
    }
    if waits {
        let turn = |effect: &Effect| matches!(effect, Effect::Arm { deadline: Deadline::Turn(_), .. });
        let next = |effect: &Effect| matches!(effect, Effect::CallModel { .. } | Effect::RequestSlot { .. });
        decision.effects.retain(|effect| !turn(effect) && !next(effect));
        if let Some(run) = state.run.as_ref().filter(|run| run.has_clock() && run.parked.is_none()) {
            kept.push(Record::RunParked { run: run.no, why: Park::MidTurn, worked_ms: case.clock.worked_ms });
            let slot = Effect::ReleaseSlot { run: run.no };
            decision.effects.extend(Some(slot).filter(|_| run.slot));
        }
    }
    decision.records = kept;
}

fn starts_next_turn(record: &Record) -> bool {
    let starts = matches!(record, Record::TurnStarted { attempt: AttemptNo(1), .. } | Record::InputsTaken { .. });
    starts || takes_message(record) || matches!(record, Record::RunParked { .. } | Record::RunResumed { .. })
}

/// Returns whether all calls of the turn have results and an owned run is live.
fn has_live_owned_run(state: &State) -> bool {
    let Some(run) = state.run.as_ref().filter(|run| run.hold.is_none() && !run.owned.is_empty()) else { return false };
    run.turn.as_ref().is_some_and(|turn| !turn.streaming && turn.open == 0 && !turn.calls.is_empty())
}

fn name_a_person(decision: &mut Decision) {
    let rename = |outcome: &mut Outcome| {
        if matches!(outcome, Outcome::Cancelled { by: Initiator::Owner { .. } }) {
            *outcome = Outcome::Cancelled { by: Initiator::Person };
        }
    };
    for record in &mut decision.records {
        if let Record::RunHeld { why, .. } = record {
            if let Hold::Closing { outcome, .. } = &mut **why {
                rename(outcome);
            }
        } else if let Record::RunEnded(ended) = record {
            rename(&mut ended.outcome);
        }
    }
    for effect in &mut decision.effects {
        if let Effect::DeliverCompletion { notice, .. } = effect {
            rename(&mut notice.outcome);
        } else if let Effect::Ended { outcome, .. } = effect {
            rename(outcome);
        }
    }
}
