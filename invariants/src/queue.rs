//! Inputs from receipt to run: V-2, B-1, and rule 9 of S-12.

use std::collections::{BTreeSet, VecDeque};

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{InputId, SessionId};
use subtend_session::record::{Hold, QueueChange, Record};

/// The accepted inputs of a session by location.
#[derive(Debug, Default)]
struct Inputs {
    accepted: BTreeSet<InputId>,
    queue: VecDeque<InputId>,
    /// Inputs of the run in flight, until it takes them.
    waiting: Vec<InputId>,
}

impl Inputs {
    /// Applies one record; fails if it names a missing input.
    fn apply(&mut self, record: &Record) -> Result<(), &'static str> {
        if let Record::InputAccepted(input) = record {
            self.queue.push_back(input.id);
            return if self.accepted.insert(input.id) { Ok(()) } else { Err("it was accepted before") };
        }
        if let Record::RunOpened(opened) = record {
            self.waiting.clone_from(&opened.inputs);
            return if opened.inputs.iter().all(|id| self.unqueue(*id)) { Ok(()) } else { Err("it is not queued") };
        }
        if let Record::InputsTaken { ids, .. } = record {
            for id in ids {
                let waiting = self.waiting.len();
                self.waiting.retain(|other| other != id);
                if self.waiting.len() == waiting && !self.unqueue(*id) {
                    return Err("it is not queued");
                }
            }
        } else if let Record::QueueChanged { change, .. } = record {
            match change {
                QueueChange::Removed(ids) => {
                    return if ids.iter().all(|id| self.unqueue(*id)) { Ok(()) } else { Err("it is not queued") };
                }
                QueueChange::Cleared => self.queue.clear(),
            }
        } else if matches!(record, Record::RunEnded(_)) {
            self.waiting.clear();
        }
        Ok(())
    }

    fn unqueue(&mut self, id: InputId) -> bool {
        let at = self.queue.iter().position(|other| *other == id);
        at.is_some_and(|at| self.queue.remove(at).is_some())
    }
}

/// Checks that each accepted input is taken, removed or consumed once, and is in the state until then.
pub(super) fn accepted_inputs_are_kept(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut inputs = Inputs::default();
        for record in seen.view.records {
            let applied = inputs.apply(record);
            ensure(applied.is_ok(), InvariantId::V2, *session, || {
                format!("an input of {record:?}: {}", applied.err().unwrap_or_default())
            })?;
        }
        let Some(state) = seen.view.state else { continue };
        let queued: BTreeSet<InputId> = state.queue.iter().map(|queued| queued.input.id).collect();
        let expected: BTreeSet<InputId> = inputs.queue.iter().copied().collect();
        ensure(queued == expected, InvariantId::V2, *session, || {
            format!("the state queues {queued:?}, but {expected:?} were accepted and never taken")
        })?;
        let waiting = state.run.iter().flat_map(|run| &run.waiting).map(|queued| queued.input.id);
        ensure(waiting.eq(inputs.waiting.iter().copied()), InvariantId::V2, *session, || {
            format!("the run in flight was opened with {:?}, but lacks some", inputs.waiting)
        })?;
    }
    Ok(())
}

/// Checks that the queue never exceeds its bound. An input that opens a run immediately is not queued.
pub(super) fn queue_bounded(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(bound) = seen.limits().and_then(|limits| usize::try_from(limits.queue).ok()) else { continue };
        let mut inputs = Inputs::default();
        let mut records = seen.view.records.iter().peekable();
        while let Some(record) = records.next() {
            let applied = inputs.apply(record);
            let opens = matches!(records.peek(), Some(Record::RunOpened(_)));
            let len = inputs.queue.len().saturating_sub(usize::from(opens));
            ensure(applied.is_err() || len <= bound, InvariantId::B1, *session, || {
                format!("{len} inputs are queued, but the bound is {bound}")
            })?;
        }
    }
    Ok(())
}

/// Checks rule 9: at the end of a run the queue opens the next run, unless its inputs must stay queued.
pub(super) fn queue_opens_next_run(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut inputs = Inputs::default();
        let mut must_stay = false;
        let mut records = seen.view.records.iter().peekable();
        while let Some(record) = records.next() {
            if inputs.apply(record).is_err() {
                break;
            }
            if matches!(record, Record::InputAccepted(_)) {
                // An input after the cancel of the tree is a request to continue, so the queue may open a run again.
                must_stay = false;
            } else if let Record::RunHeld { why, .. } = record {
                must_stay |= matches!(**why, Hold::Closing { keeps_queue: true, .. });
            } else if let Record::RunEnded(ended) = record {
                check_after_end(*session, seen, &inputs, (must_stay, ended.keeps_queue), records.peek().copied())?;
                must_stay = false;
            }
        }
    }
    Ok(())
}

fn check_after_end(
    session: SessionId,
    seen: &SessionFacts<'_>,
    inputs: &Inputs,
    (must_stay, stays): (bool, bool),
    next: Option<&Record>,
) -> Verdict {
    ensure_if(must_stay, stays, InvariantId::S12, session, || {
        "queued inputs had to stay queued when the run began to close, but not when it ended".to_owned()
    })?;
    let opens = matches!(next, Some(Record::RunOpened(_)));
    let waits = !inputs.queue.is_empty();
    ensure(opens == (waits && !stays), InvariantId::S12, session, || {
        let len = seen.view.records.len();
        format!(
            "{} inputs are queued at the end of a run (must stay queued: {stays}), but the next of {len} records is {next:?}",
            inputs.queue.len()
        )
    })
}
