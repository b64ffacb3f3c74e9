//! Checks that replies to people are true and that the records that they report are durable.

use std::fmt::Debug;

use subtend_actors::{CompactedHistory, Control, ControlError, Ended, Receipt, SendError, WaitError};
use subtend_invariants::observed::{ControlAnswer, ReplySubject};
use subtend_journal::ReadError;
use subtend_session::ids::{RunKey, RunNo, SessionId, Text};
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::record::Record;
use subtend_session::state::Phase;

use crate::simulate::action::Action;
use crate::simulate::oracle::archive::blocking_runs;
use crate::simulate::tally::{FaultKind, Verb};
use crate::simulate::world::World;

pub(crate) fn check_sent(world: &World, action: &Action, sent: Result<Receipt, SendError>) {
    let session = action.session.id();
    let mut oracle = world.oracle.lock();
    match sent {
        Ok(receipt) => {
            oracle.record_receipt(session, receipt.input);
            oracle.check_acknowledged(session, receipt.input);
        }
        Err(SendError::Busy { .. }) => oracle.record_fault(FaultKind::FullQueue),
        Err(SendError::Stopped(_)) => {
            oracle.record_refusal(session);
            oracle.tally.mark("sent to a stopped session");
        }
        Err(error @ (SendError::BadInput(_) | SendError::Refused(_))) => {
            // A deleted session accepts no input.
            if oracle.deletions == 0 {
                oracle.wrong("S-3", format!("{:?} of {session} was refused: {error}", action.verb));
            }
        }
    }
}

pub(crate) fn check_control(world: &World, action: &Action, reply: Result<Control, WaitError>) {
    let (verb, session) = (action.verb, action.session.id());
    let mut oracle = world.oracle.lock();
    match reply {
        Ok(Control::Done(run)) => {
            let key = RunKey { session, run };
            let now = oracle.now();
            oracle.observations.record_answer(now, key, reply_subject(verb), ControlAnswer::Done);
            if verb != Verb::Interrupt {
                oracle.record_cancel(key);
            }
            let done = oracle.decided_outcome(key).is_some() || (verb == Verb::Interrupt && oracle.was_held(key));
            if !done {
                oracle.wrong("J-5", format!("{verb:?} of {key:?} is acknowledged, but not durable"));
            }
            let held = oracle.archive.state(session).filter(|state| state.phase() == Phase::HeldInterrupted);
            let missed =
                held.and_then(|state| blocking_runs(state).find(|owned| !owned.cancel_asked).map(|owned| owned.child));
            if let Some(child) = missed {
                oracle.wrong("T-6", format!("{verb:?} of {key:?} did not reach the run of {child} that it waits for"));
            }
        }
        Ok(Control::AlreadyEnded(run, outcome)) => {
            let key = RunKey { session, run };
            if oracle.decided_outcome(key) != Some(&outcome) {
                oracle.wrong(
                    "S-2",
                    format!("{verb:?} of {key:?} is answered with {outcome:?}, which is not its outcome"),
                );
            }
        }
        Ok(Control::NotFound) => oracle.tally.mark("not found"),
        Err(WaitError::Stopped(_)) => oracle.tally.mark("controlled a stopped session"),
        Err(error @ (WaitError::NoSuchRun { .. } | WaitError::Refused(_))) => {
            if oracle.deletions == 0 {
                oracle.wrong("S-3", format!("{verb:?} of {session} was refused: {error}"));
            }
        }
    }
}

fn reply_subject(verb: Verb) -> ReplySubject {
    if verb == Verb::Interrupt {
        ReplySubject::Interrupt(Initiator::Person)
    } else {
        ReplySubject::Cancel(Initiator::Person)
    }
}

pub(crate) fn check_reply<T: Debug>(world: &World, action: &Action, reply: Result<T, ControlError>) {
    let mut oracle = world.oracle.lock();
    let verb = action.verb;
    let answer = match reply {
        Ok(answer) => {
            oracle.trace(|| format!("  {verb:?}: {answer:?}").chars().take(160).collect());
            "done".to_owned()
        }
        Err(ControlError::Stopped(_)) => "stopped".to_owned(),
        Err(ControlError::Working(_)) => "working".to_owned(),
        Err(ControlError::Waiting(_)) => "waiting".to_owned(),
        Err(ControlError::NotFound(_)) => "not found".to_owned(),
        Err(ControlError::Deleted) => "deleted".to_owned(),
        Err(ControlError::Refused(why)) => {
            // Removes the numbers of records, so that equal refusals count together.
            let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).take(48).collect();
            format!("refused: {kind}")
        }
    };
    oracle.tally.mark(&format!("{verb:?} {answer}"));
}

/// Checks that a reported rollback is durable, and that its run did not complete.
pub(crate) fn check_rollback(world: &World, action: &Action, run: Result<RunNo, ControlError>) {
    let session = action.session.id();
    if let Ok(run) = run {
        let mut oracle = world.oracle.lock();
        let noted = |record: &Record| matches!(record, Record::RolledBack { run: noted, .. } if *noted == run);
        if !oracle.archive.records(session).iter().any(noted) {
            oracle.wrong("J-5", format!("the rollback of run {run} of {session} is reported, but not durable"));
        }
        if oracle.ends.get(&RunKey { session, run }).is_none_or(|outcome| *outcome == Outcome::Completed) {
            oracle.wrong("E-2", format!("run {run} of {session} is rolled back, but did not fail"));
        }
    }
    check_reply(world, action, run);
}

pub(crate) fn check_summary(world: &World, action: &Action, summary: Result<Text, ControlError>) {
    let session = action.session.id();
    if let Ok(text) = &summary {
        let mut oracle = world.oracle.lock();
        let noted = |record: &Record| matches!(record, Record::SummarySet(set) if set.text == *text);
        if !oracle.archive.records(session).iter().any(noted) {
            oracle.wrong("J-5", format!("the summary {text:?} of {session} is reported, but not durable"));
        }
    }
    check_reply(world, action, summary);
}

pub(crate) fn check_compaction(world: &World, action: &Action, done: Result<CompactedHistory, ControlError>) {
    let session = action.session.id();
    if let Ok(done) = &done {
        let mut oracle = world.oracle.lock();
        let tokens = (done.before, done.after);
        let noted =
            |record: &Record| matches!(record, Record::Compacted(noted) if (noted.before, noted.after) == tokens);
        if !oracle.archive.records(session).iter().any(noted) {
            oracle.wrong("J-5", format!("the compaction {done:?} of {session} is reported, but not durable"));
        }
        oracle.tally.mark("compacted on request");
    }
    check_reply(world, action, done);
}

pub(crate) fn check_read<T>(world: &World, action: &Action, read: Result<T, ReadError>) {
    match read {
        Ok(_) => world.oracle.mark("read"),
        Err(ReadError::Closed) => world.oracle.mark("read a closed journal"),
        // The first record of the session may not be durable yet.
        Err(ReadError::NoSuchSession(_)) => world.oracle.mark("read an unknown session"),
        Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::Engine(_))) => {
            world.oracle.wrong("J-8", format!("a read of {} failed: {error}", action.session.id()));
        }
    }
}

pub(crate) fn check_end(world: &World, session: SessionId, run: RunNo, ended: Result<Ended, WaitError>) {
    let mut oracle = world.oracle.lock();
    match ended {
        Ok(ended) => {
            let key = RunKey { session, run };
            let now = oracle.now();
            oracle.observations.record_answer(now, key, ReplySubject::End, ControlAnswer::Ended(ended.outcome.clone()));
            let durable = oracle.ends.get(&key).cloned();
            if durable.as_ref() != Some(&ended.outcome) {
                oracle.wrong(
                    "S-2",
                    format!("{key:?} is reported as {:?}, but the journal has {durable:?}", ended.outcome),
                );
            }
        }
        Err(WaitError::NoSuchRun { .. }) => oracle.tally.mark("no such run"),
        Err(WaitError::Stopped(_)) => oracle.tally.mark("waited for a stopped session"),
        Err(error @ WaitError::Refused(_)) => oracle.wrong("wait", error.to_string()),
    }
}
