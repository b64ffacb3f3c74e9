//! Seeded bugs that change the command or the state that it meets.

use std::sync::Arc;

use subtend_session::command::Command;
use subtend_session::decide;
use subtend_session::effect::{Decision, Rejection};
use subtend_session::ids::{InputId, RunNo};
use subtend_session::place::Owner;
use subtend_session::record::{From, Hold, InputAccepted, Lane, Record};
use subtend_session::state::State;

use super::refold::refold;
use super::{Bug, Case};

/// Decides the command of `case`.
/// # Errors
/// If nothing is decided.
pub(super) fn decide(case: &Case, state: &mut State) -> Result<Decision, Rejection> {
    match (case.bug, &case.command) {
        (Bug::ClosedTakesContinue, Command::Continue(_)) if state.closed => decide_reopened(case, state),
        (Bug::RolledBackSeen, Command::Branch(_) | Command::Regenerate(_)) => show_rolled_back(case, state),
        (Bug::QueueOpensAfterTreeCancel, _) => open_from_queue(case, state),
        (Bug::MessageExtendsOwnedRun, _) => take_message_in_model_run(case, state),
        (Bug::MessageOpensRun, Command::Submit(input)) if input.is_from_relative() => {
            open_by_message(case, state, input)
        }
        (Bug::NoCheckAfterLast, Command::OwnedEnded(_)) => skip_check(case, state),
        _ => decide_unchanged(case, state, change_command(case)),
    }
}

fn decide_unchanged(case: &Case, state: &mut State, command: Command) -> Result<Decision, Rejection> {
    decide::decide(state, command, case.clock)
}

/// Returns the command without the field that the rule checks.
fn change_command(case: &Case) -> Command {
    let mut command = case.command.clone();
    match (case.bug, &mut command) {
        (Bug::OwnerNotChecked, Command::Admitted { owner_ended, .. }) => *owner_ended = None,
        (Bug::ContinueOfOver, Command::Continue(ask)) => ask.owner_ended = None,
        (Bug::CancelReachesNextRun, Command::OwnerCancels { owner, key, .. }) => {
            let opened = case.before.run.as_ref().map(|run| &run.opened.owner);
            if let Some(Owner::Run { session, call, .. }) = opened
                && session == owner
            {
                *key = *call;
            }
        }
        _ => {}
    }
    command
}

/// Treats the session as open.
fn decide_reopened(case: &Case, state: &mut State) -> Result<Decision, Rejection> {
    state.closed = false;
    let decided = decide_unchanged(case, state, case.command.clone());
    state.closed = true;
    decided
}

/// Treats rolled-back messages as visible.
fn show_rolled_back(case: &Case, state: &mut State) -> Result<Decision, Rejection> {
    let hidden: Vec<RunNo> =
        state.message_ranges.iter().filter(|(_, stretch)| stretch.hidden).map(|(run, _)| *run).collect();
    let hide = |state: &mut State, hides: bool| {
        for run in &hidden {
            if let Some(stretch) = state.message_ranges.get_mut(run) {
                stretch.hidden = hides;
            }
        }
    };
    hide(state, false);
    let decided = decide_unchanged(case, state, case.command.clone());
    hide(state, true);
    decided
}

/// Opens the next run from a queue that should stay queued.
fn open_from_queue(case: &Case, state: &mut State) -> Result<Decision, Rejection> {
    let decision = decide_unchanged(case, state, case.command.clone())?;
    let stays = |record: &Record| matches!(record, Record::RunEnded(ended) if ended.keeps_queue);
    if state.queue.is_empty() || !decision.records.iter().any(stays) {
        return Ok(decision);
    }
    let mut other = case.before.clone();
    let hold = other.run.as_mut().and_then(|run| run.hold.as_mut());
    if let Some(Hold::Closing { keeps_queue, .. }) = hold {
        *keeps_queue = false;
    }
    let mut command = case.command.clone();
    if let Command::Cancel { keeps_queue, .. }
    | Command::OwnerEnded { keeps_queue, .. }
    | Command::Lost { keeps_queue, .. } = &mut command
    {
        *keeps_queue = false;
    }
    let mut opened = decide_unchanged(case, &mut other, command)?;
    let decided = opened.records.clone();
    for record in &mut opened.records {
        if let Record::RunEnded(ended) = record {
            ended.keeps_queue = true;
        }
    }
    refold(case, &mut other, &decided, &opened.records);
    *state = other;
    Ok(opened)
}

/// Treats a run that a model's call opened as a person's run, so that it takes a message.
fn take_message_in_model_run(case: &Case, state: &mut State) -> Result<Decision, Rejection> {
    let decision = decide_unchanged(case, state, case.command.clone())?;
    let mut other = case.before.clone();
    let Some(run) = other.run.as_mut().filter(|run| run.opened.owner.is_model_call()) else { return Ok(decision) };
    Arc::make_mut(&mut run.opened).owner = Owner::Person;
    let Ok(longer) = decide_unchanged(case, &mut other, case.command.clone()) else { return Ok(decision) };
    let ends = longer.records.iter().any(|record| matches!(record, Record::RunEnded(_)));
    if ends || taken_inputs(&longer.records).len() <= taken_inputs(&decision.records).len() {
        return Ok(decision);
    }
    refold(case, &mut other, &longer.records, &longer.records);
    *state = other;
    Ok(longer)
}

/// Treats a relative's message as an input of the host, which opens a run.
fn open_by_message(case: &Case, state: &mut State, message: &InputAccepted) -> Result<Decision, Rejection> {
    if case.before.run.is_some() {
        return decide_unchanged(case, state, case.command.clone());
    }
    let mut other = case.before.clone();
    let input = InputAccepted { from: From::Host, lane: Lane::Send, as_owner: Owner::Person, ..message.clone() };
    let mut opened = decide_unchanged(case, &mut other, Command::Submit(Box::new(input)))?;
    let decided = opened.records.clone();
    for record in &mut opened.records {
        if let Record::InputAccepted(input) = record {
            **input = message.clone();
        }
    }
    refold(case, &mut other, &decided, &opened.records);
    *state = other;
    Ok(opened)
}

fn taken_inputs(records: &[Record]) -> Vec<InputId> {
    let ids = records.iter().filter_map(|record| {
        let Record::InputsTaken { ids, .. } = record else { return None };
        Some(ids)
    });
    ids.flatten().copied().collect()
}

/// Takes the end of the last owned run, but omits the check that follows.
fn skip_check(case: &Case, state: &mut State) -> Result<Decision, Rejection> {
    let decision = decide_unchanged(case, state, case.command.clone())?;
    let Command::OwnedEnded(notices) = &case.command else { return Ok(decision) };
    let mut other = case.before.clone();
    let arrived = decide::arrive(&mut other, notices.clone(), case.clock);
    if other.run.as_ref().is_none_or(|run| !run.owned.is_empty()) {
        return Ok(decision);
    }
    *state = other;
    Ok(arrived)
}
