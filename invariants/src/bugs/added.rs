//! Seeded bugs that add records or change the state.

use std::collections::BTreeSet;
use std::sync::Arc;

use subtend_session::call::CallEnd;
use subtend_session::command::{Command, Deadline};
use subtend_session::context;
use subtend_session::effect::{Decision, Effect, Rejection, Reply};
use subtend_session::ids::{AttemptNo, CallId, Hash, InputId, Seq};
use subtend_session::index::{cancel_by, continue_input};
use subtend_session::message::Message;
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, Owner};
use subtend_session::record::{
    AttemptDiscarded, CallFinished, Carrier, From, Hold, InputAccepted, Lane, Notice, NoticeTaken, Prompt, Record,
    RunEnded, TurnAnswered,
};
use subtend_session::render;
use subtend_session::state::{Owned, State};

use super::refold::{force, refold, takes_message};
use super::{Bug, Case};

#[expect(clippy::wildcard_enum_match_arm, reason = "each bug has a control, which fails if it does nothing")]
pub(super) fn add(case: &Case, state: &mut State, decision: &mut Decision) {
    match case.bug {
        Bug::RowTakenTwice => append_records(state, decision, take_again(case)),
        Bug::EndTwice => append_records(state, decision, end_again(case, &decision.reply.clone())),
        Bug::OpenCallsFromLiveSet => start_early(case, state, decision),
        Bug::InterruptEndsAll => cancel_owned(case, state, decision, |_| true),
        Bug::BackgroundStaysBlocking => {
            stay_blocking(state, &decision.records);
            cancel_owned(case, state, decision, |owned| owned.mode == Mode::Blocking);
        }
        Bug::MessageRenewsTurns => renew_turns(case, state, &decision.records),
        Bug::CompletionsJoinMessages => join(case, state, decision),
        Bug::AlternativeOverwrites => overwrite(state, &decision.records),
        Bug::PersonsRunShown => {
            keep_text(case, state, &mut decision.records);
            show_ends(case, state, &decision.records);
        }
        Bug::UnreadTextKept => keep_text(case, state, &mut decision.records),
        Bug::BranchSeesLater => see_later(case, decision),
        _ => {}
    }
}

/// Returns the decision that the bug makes instead of `rejection`.
pub(super) fn replace_rejection(case: &Case, state: &mut State, rejection: &Rejection) -> Option<Decision> {
    let Rejection::Stale(_) = rejection else { return None };
    let records = if case.bug == Bug::StaleAccepted {
        stale_completion(case).into_iter().collect()
    } else if case.bug == Bug::RowTakenTwice {
        take_again(case)
    } else if case.bug == Bug::ContinueTwice {
        accept_again(case).into_iter().collect()
    } else if case.bug == Bug::ResetTwice {
        resume_again(case).into_iter().collect()
    } else {
        Vec::new()
    };
    let mut decision = Decision::default();
    if let [Record::TurnStarted { turn, attempt, .. }] = *records {
        decision.effects.push(Effect::CallModel { turn, attempt, after_ms: 0 });
    }
    append_records(state, &mut decision, records);
    Some(decision).filter(|decision| !decision.records.is_empty())
}

fn append_records(state: &mut State, decision: &mut Decision, records: Vec<Record>) {
    records.iter().for_each(|record| force(state, record));
    decision.records.extend(records);
}

/// Returns the record of a result that nothing awaits.
fn stale_completion(case: &Case) -> Option<Record> {
    let run = case.before.run.as_ref()?;
    run.turn.as_ref()?;
    if let Command::ModelAnswered(answer) = &case.command {
        Some(Record::TurnAnswered(Box::new(TurnAnswered {
            run: run.no,
            turn: answer.turn,
            attempt: answer.attempt,
            text: answer.text.clone(),
            reasoning: answer.reasoning.clone(),
            calls: answer.calls.iter().map(|call| call.asked.clone()).collect(),
            stop: answer.stop,
            model: answer.model.clone(),
            usage: answer.usage,
            answers: run.unanswered.clone(),
            worked_ms: case.clock.worked_ms,
            queued_ms: 0,
        })))
    } else if let Command::AttemptFailed(failed) = &case.command {
        Some(Record::AttemptDiscarded(Box::new(AttemptDiscarded {
            turn: failed.turn,
            attempt: failed.attempt,
            error: failed.error,
            message: failed.message.clone(),
            model: failed.model.clone(),
            retry_delay_ms: None,
            awaits: None,
            usage: failed.usage,
            queued_ms: 0,
        })))
    } else if let Command::ToolFinished { call, result, worked_ms } = &case.command {
        case.before.call(*call)?;
        Some(Record::CallFinished(Box::new(CallFinished {
            call: *call,
            end: result.end.clone(),
            content: Arc::clone(&result.content),
            truncated_from: result.truncated_from,
            worked_ms: *worked_ms,
        })))
    } else {
        None
    }
}

fn take_again(case: &Case) -> Vec<Record> {
    let Command::OwnedEnded(notices) = &case.command else { return Vec::new() };
    let is_owed = |notice: &Notice| match (notice.key, notice.run) {
        (Some(key), _) => case.before.owes(key),
        (None, Some(run)) => !case.before.noticed.contains(&(notice.child, run)),
        (None, None) => true,
    };
    let again = notices.iter().filter(|notice| !is_owed(notice));
    let taken = |notice: &Notice| NoticeTaken { items: vec![notice.clone()], carrier: Carrier::Message };
    again.map(|notice| Record::NoticeTaken(Box::new(taken(notice)))).collect()
}

/// Returns the record that accepts the input of an answered row again.
fn accept_again(case: &Case) -> Option<Record> {
    let Command::Continue(ask) = &case.command else { return None };
    let owner = Owner::Run { session: ask.owner, run: ask.run, call: ask.key };
    Some(Record::InputAccepted(Box::new(InputAccepted {
        id: continue_input(ask.owner, ask.key),
        key: None,
        from: From::Model { session: ask.owner, run: ask.run, call: ask.key },
        lane: Lane::Send,
        text: Arc::clone(&ask.text),
        agent_override: None,
        turns: ask.turns,
        metadata: None,
        format: None,
        tools: ask.tools.clone(),
        as_owner: owner,
    })))
}

/// Returns the record that repeats the model call of a turn although its limit has already reset.
fn resume_again(case: &Case) -> Option<Record> {
    let Command::Deadline(Deadline::Limit(of)) = case.command else { return None };
    let run = case.before.run.as_ref()?;
    let turn = run.turn.as_ref().filter(|turn| turn.no == of && turn.streaming)?;
    let (turn, attempt, prompt, model) = (turn.no, turn.attempt.next(), turn.prompt, Arc::clone(&turn.model));
    Some(Record::TurnStarted { run: run.no, turn, attempt, prompt, reserved: None, model, compacts: None })
}

fn end_again(case: &Case, reply: &Reply) -> Vec<Record> {
    let (Command::Cancel { by, .. }, Reply::AlreadyEnded(key, _)) = (&case.command, reply) else { return Vec::new() };
    let last = case.before.last.as_ref().filter(|last| last.run == key.run);
    let ended = last.map(|last| RunEnded {
        run: key.run,
        outcome: Outcome::Cancelled { by: by.clone() },
        result: None,
        returned: None,
        text: None,
        len: 0,
        hash: Hash::of(b""),
        turns: last.turns,
        usage_self: last.usage_self,
        usage_owned: last.usage_owned,
        worked_ms: case.clock.worked_ms,
        keeps_queue: false,
        gave_up: None,
    });
    ended.map(|ended| Record::RunEnded(Box::new(ended))).into_iter().collect()
}

/// Starts the next turn if no child is live, although calls of the answer have not started.
fn start_early(case: &Case, state: &mut State, decision: &mut Decision) {
    let Command::OwnedEnded(_) = case.command else { return };
    let waits = state.run.as_ref().filter(|run| run.hold.is_none() && run.parked.is_none() && run.owned.is_empty());
    let Some(run) = waits.filter(|run| !run.has_local_work()) else { return };
    let Some(turn) = run.turn.as_ref().filter(|turn| turn.open > 0 && turn.asked == 0) else { return };
    if turn.open as usize == turn.calls.len() {
        return;
    }
    let (run, no, model) = (run.no, state.last_turn.next(), Arc::clone(&turn.model));
    let attempt = AttemptNo(1);
    let prompt = Prompt::Plain;
    let started = Record::TurnStarted { run, turn: no, attempt, prompt, reserved: None, model, compacts: None };
    append_records(state, decision, vec![started]);
    decision.effects.push(Effect::CallModel { turn: no, attempt, after_ms: 0 });
}

/// Cancels the owned runs that `reaches` selects on an interrupt, in addition to the usual ones.
fn cancel_owned(case: &Case, state: &mut State, decision: &mut Decision, reaches: impl Fn(&Owned) -> bool) {
    let (Command::Interrupt { .. } | Command::Reactivated { .. }) = case.command else { return };
    let is_interrupted = |hold: &Hold| matches!(hold, Hold::Interrupted { .. });
    let Some(run) = state.run.as_ref().filter(|run| run.hold.as_ref().is_some_and(is_interrupted)) else { return };
    let no = run.no;
    let spared = |key: CallId| {
        let mut effects = decision.effects.iter();
        !effects.any(|effect| matches!(effect, Effect::CancelChild { key: reached, .. } if *reached == key))
    };
    let others = run.owned.iter().filter(|(key, owned)| reaches(owned) && spared(**key));
    let others: Vec<(CallId, Owned)> = others.map(|(key, owned)| (*key, owned.clone())).collect();
    for (key, Owned { child, cancel_asked, .. }) in others {
        if !cancel_asked {
            append_records(state, decision, vec![Record::CancelAsked { call: None, child, key }]);
        }
        decision.effects.push(Effect::CancelChild { run: no, child, key, by: cancel_by(None) });
    }
}

/// Keeps treating a call as blocking after it moved to the background.
fn stay_blocking(state: &mut State, records: &[Record]) {
    for record in records {
        if let Record::CallFinished(finished) = record
            && finished.end == CallEnd::Backgrounded
            && let Some(owned) = state.run.as_mut().and_then(|run| run.owned.get_mut(&finished.call))
        {
            owned.mode = Mode::Blocking;
        }
    }
}

/// Renews the turns of a run that takes only messages of relatives.
fn renew_turns(case: &Case, state: &mut State, records: &[Record]) {
    let queued = case.before.queue.iter().filter(|queued| queued.input.is_from_relative());
    let messages: Vec<InputId> = queued.map(|queued| queued.input.id).collect();
    let takes = |record: &Record| matches!(record, Record::InputsTaken { ids, .. } if ids.iter().all(|id| messages.contains(id)));
    if let Some(run) = state.run.as_mut().filter(|_| records.iter().any(takes)) {
        run.spent = 0;
    }
}

fn join(case: &Case, state: &mut State, decision: &mut Decision) {
    let waiting = case.before.run.iter().flat_map(|run| &run.waiting).chain(&case.before.queue);
    let accepted = decision.records.iter().filter_map(|record| {
        let Record::InputAccepted(input) = record else { return None };
        (input.from == From::Person).then_some(input.id)
    });
    let messages = waiting.filter(|queued| queued.is_message()).map(|queued| queued.input.id);
    let messages: BTreeSet<InputId> = messages.chain(accepted).collect();
    let takes = |record: &Record| matches!(record, Record::InputsTaken { ids, .. } if ids.iter().any(|id| messages.contains(id)));
    let Some(at) = decision.records.iter().position(takes).filter(|_| !state.arrived.is_empty()) else { return };
    let items: Vec<Notice> = state.arrived.iter().cloned().collect();
    let joined = Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message }));
    let decided = decision.records.clone();
    decision.records.insert(at.saturating_add(1), joined);
    refold(case, state, &decided, &decision.records);
}

/// Replaces the original message with the selected alternative.
fn overwrite(state: &mut State, records: &[Record]) {
    for record in records {
        let Record::AlternativeSwitched { of, to, .. } = record else { continue };
        let other = state.alternatives.get(of).and_then(|alternatives| alternatives.text(*to)).cloned();
        let Some(other) = other else { continue };
        let inherited = state.created.inherited.len();
        for message in Arc::make_mut(&mut state.transcript).iter_mut().skip(inherited) {
            if let Message::Assistant { seq, text, .. } = message
                && seq == of
            {
                *text = Some(Arc::clone(&other));
            }
        }
    }
}

/// Gives the ends of people's runs to the model.
fn show_ends(case: &Case, state: &mut State, records: &[Record]) {
    for (record, seq) in records.iter().zip(case.before.next_seq.0..) {
        let Record::NoticeTaken(taken) = record else { continue };
        let kept_out = taken.items.iter().filter(|item| !state.reaches_model(item));
        let kept_out: Vec<Notice> = kept_out.filter(|_| takes_message(record)).cloned().collect();
        if kept_out.is_empty() {
            continue;
        }
        let message = Message::Notice { seq: Seq(seq), text: render::notices(state, &kept_out) };
        match state.run.as_mut().filter(|run| run.open_calls() > 0) {
            Some(run) => run.deferred.push(message),
            None => Arc::make_mut(&mut state.transcript).push(message),
        }
    }
}

fn keep_text(case: &Case, state: &mut State, records: &mut [Record]) {
    let Command::OwnedEnded(notices) = &case.command else { return };
    let row = |notice: &Notice| (notice.child, notice.row_key());
    let whole = |item: &Notice| notices.iter().find(|notice| row(notice) == row(item)).unwrap_or(item).clone();
    let arrived: Vec<Notice> = state.arrived.iter().map(whole).collect();
    state.arrived.clear();
    for notice in arrived {
        state.arrived.push(notice);
    }
    for record in records {
        if let Record::NoticeTaken(taken) = record {
            taken.items.iter_mut().for_each(|item| *item = whole(item));
        }
    }
}

/// Makes a branch inherit all visible messages.
fn see_later(case: &Case, decision: &mut Decision) {
    let (Command::Branch(_) | Command::Regenerate(_)) = case.command else { return };
    for record in decision.new_sessions.iter_mut().flat_map(|creation| &mut creation.records) {
        if let Record::SessionCreated(created) = record
            && !created.inherited.is_empty()
        {
            created.inherited = context::visible(&case.before);
        }
    }
}
