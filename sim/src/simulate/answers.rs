//! Answers: whether what somebody was told is true, and durable.

use std::fmt::Debug;

use subtend_actors::{Control, ControlError, Ended, Receipt, SendError, WaitError};
use subtend_journal::ReadError;
use subtend_session::ids::{RunKey, RunNo, SessionId, Text};
use subtend_session::invariant::observed::{Answer, Given};
use subtend_session::outcome::{By, Outcome};
use subtend_session::record::Record;
use subtend_session::state::Phase;

use crate::simulate::archive::blocking;
use crate::simulate::deed::Deed;
use crate::simulate::tally::{Mishap, Verb};
use crate::simulate::world::World;

/// An input was sent.
pub(crate) fn sent(world: &World, deed: &Deed, sent: Result<Receipt, SendError>) {
    let session = deed.session.id();
    let mut book = world.book.open();
    match sent {
        Ok(receipt) => {
            book.receipt(session, receipt.input);
            book.acknowledged(session, receipt.input);
        }
        Err(SendError::Busy { .. }) => book.mishap(Mishap::FullQueue),
        Err(SendError::Stopped(_)) => {
            book.refused(session);
            book.tally.mark("sent to one that stopped");
        }
        Err(error @ (SendError::BadInput(_) | SendError::Refused(_))) => {
            // A deleted session takes nothing.
            if book.deletions == 0 {
                book.wrong("S-3", format!("{:?} of {session} was refused: {error}", deed.verb));
            }
        }
    }
}

/// A control was given.
pub(crate) fn controlled(world: &World, deed: &Deed, told: Result<Control, WaitError>) {
    let (verb, session) = (deed.verb, deed.session.id());
    let mut book = world.book.open();
    match told {
        Ok(Control::Done(run)) => {
            let key = RunKey { session, run };
            let now = book.now();
            book.sights.answered(now, key, given(verb), Answer::Done);
            if verb != Verb::Interrupt {
                book.was_cancelled(key);
            }
            let done = book.fixed(key).is_some() || (verb == Verb::Interrupt && book.was_held(key));
            if !done {
                book.wrong("J-5", format!("{verb:?} of {key:?} is acknowledged and not durable"));
            }
            let held = book.archive.state(session).filter(|state| state.phase() == Phase::HeldInterrupted);
            let missed =
                held.and_then(|state| blocking(state).find(|owned| !owned.cancel_asked).map(|owned| owned.child));
            if let Some(child) = missed {
                book.wrong("T-6", format!("{verb:?} of {key:?} did not reach the run of {child} that it waits for"));
            }
        }
        Ok(Control::AlreadyEnded(outcome)) => {
            if !book.has_outcome(session, &outcome) {
                book.wrong("S-2", format!("{verb:?} of {session} is told of {outcome:?}, which no run of it has"));
            }
        }
        Ok(Control::NotFound) => book.tally.mark("not found"),
        Err(WaitError::Stopped(_)) => book.tally.mark("controlled one that stopped"),
        Err(error @ (WaitError::NoSuchRun { .. } | WaitError::Refused(_))) => {
            if book.deletions == 0 {
                book.wrong("S-3", format!("{verb:?} of {session} was refused: {error}"));
            }
        }
    }
}

/// What a verb is to the predicates.
fn given(verb: Verb) -> Given {
    if verb == Verb::Interrupt { Given::Interrupt(By::Person) } else { Given::Cancel(By::Person) }
}

/// Something else was asked for.
pub(crate) fn told<T: Debug>(world: &World, deed: &Deed, told: Result<T, ControlError>) {
    let mut book = world.book.open();
    let verb = deed.verb;
    let answer = match told {
        Ok(answer) => {
            book.tell(|| format!("  {verb:?}: {answer:?}").chars().take(160).collect());
            "done".to_owned()
        }
        Err(ControlError::Stopped(_)) => "stopped".to_owned(),
        Err(ControlError::Working(_)) => "working".to_owned(),
        Err(ControlError::Waiting(_)) => "waiting".to_owned(),
        Err(ControlError::NotFound(_)) => "not found".to_owned(),
        Err(ControlError::Deleted) => "deleted".to_owned(),
        Err(ControlError::Refused(why)) => {
            // By kind, whatever the number of the record.
            let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).take(48).collect();
            format!("refused: {kind}")
        }
    };
    book.tally.mark(&format!("{verb:?} {answer}"));
}

/// A run was rolled back: that is durable, and it was none that completed.
pub(crate) fn rolled_back(world: &World, deed: &Deed, run: Result<RunNo, ControlError>) {
    let session = deed.session.id();
    if let Ok(run) = run {
        let mut book = world.book.open();
        let noted = |record: &Record| matches!(record, Record::RolledBack { run: noted, .. } if *noted == run);
        if !book.archive.records(session).iter().any(noted) {
            book.wrong("J-5", format!("run {run} of {session} is said to be rolled back, and that is not durable"));
        }
        if book.ends.get(&RunKey { session, run }).is_none_or(|outcome| *outcome == Outcome::Completed) {
            book.wrong("E-2", format!("run {run} of {session} is rolled back, and did not fail"));
        }
    }
    told(world, deed, run);
}

/// A session was summed up: that is durable.
pub(crate) fn summed_up(world: &World, deed: &Deed, summary: Result<Text, ControlError>) {
    let session = deed.session.id();
    if let Ok(text) = &summary {
        let mut book = world.book.open();
        let noted = |record: &Record| matches!(record, Record::SummarySet(set) if set.text == *text);
        if !book.archive.records(session).iter().any(noted) {
            book.wrong("J-5", format!("{session} is said to be summed up as {text:?}, and that is not durable"));
        }
    }
    told(world, deed, summary);
}

/// Something was read.
pub(crate) fn read<T>(world: &World, deed: &Deed, read: Result<T, ReadError>) {
    match read {
        Ok(_) => world.book.mark("looked"),
        Err(ReadError::Closed) => world.book.mark("looked at a closed journal"),
        // The birth may be appended and not durable.
        Err(ReadError::NoSuchSession(_)) => world.book.mark("looked at nothing"),
        Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::Engine(_))) => {
            world.book.wrong("J-8", format!("a look at {} failed: {error}", deed.session.id()));
        }
    }
}

/// The end of a run was waited for.
pub(crate) fn ended(world: &World, session: SessionId, run: RunNo, ended: Result<Ended, WaitError>) {
    let mut book = world.book.open();
    match ended {
        Ok(ended) => {
            let key = RunKey { session, run };
            let now = book.now();
            book.sights.answered(now, key, Given::End, Answer::Ended(ended.outcome.clone()));
            let durable = book.ends.get(&key).cloned();
            if durable.as_ref() != Some(&ended.outcome) {
                book.wrong("S-2", format!("{key:?} is told to end {:?}; the journal has {durable:?}", ended.outcome));
            }
        }
        Err(WaitError::NoSuchRun { .. }) => book.tally.mark("no such run"),
        Err(WaitError::Stopped(_)) => book.tally.mark("waited for one that stopped"),
        Err(error @ WaitError::Refused(_)) => book.wrong("wait", error.to_string()),
    }
}
