//! Contents and order of a model's context: S-13 and N-7.

use std::collections::{BTreeMap, BTreeSet};

use crate::wake::stops;
use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::{InputId, Seq, SessionId};
use subtend_session::message::Message;
use subtend_session::place::Owner;
use subtend_session::record::{
    Carrier, From, InputAccepted, Lane, Notice, NoticeTaken, QueueChange, Record, RunOpened,
};

/// The queue of one session, from its records.
#[derive(Debug, Default)]
struct Order<'a> {
    queue: BTreeMap<InputId, &'a InputAccepted>,
    /// The inputs that opened the run in flight.
    opened_with: Vec<InputId>,
    of_a_model: bool,
    /// True if a turn of the run has started and no hold has followed.
    turning: bool,
    /// True if the newest item before the next turn is a person's message.
    message: bool,
}

impl<'a> Order<'a> {
    fn is_message(&self, id: InputId) -> bool {
        self.queue.get(&id).is_some_and(|input| input.from == From::Person)
    }

    /// Returns whether a message is queued that the next rest point takes.
    fn has_waiting_message(&self) -> bool {
        self.queue.values().any(|input| input.from == From::Person && input.lane == Lane::Send)
    }

    fn check_open(&mut self, opened: &RunOpened) -> Result<(), String> {
        let owned = matches!(opened.owner, Owner::Run { .. });
        let messages = opened.inputs.iter().filter(|id| self.is_message(**id)).count();
        let fits = match messages {
            0 => owned || !self.queue.values().any(|input| input.from == From::Person),
            _ => opened.inputs.len() == 1,
        };
        // The inputs that open a run stay queued until its first turn takes them, with steering inputs.
        self.opened_with.clone_from(&opened.inputs);
        (self.of_a_model, self.turning, self.message) = (opened.owner.is_model_call(), false, false);
        if fits { Ok(()) } else { Err(format!("run {} is opened by {:?}", opened.run, opened.inputs)) }
    }

    fn check_take(&mut self, ids: &[InputId]) -> Result<(), String> {
        let sends = |id: &&InputId| {
            !self.opened_with.contains(id) && self.queue.get(id).is_some_and(|input| input.lane == Lane::Send)
        };
        let sent: Vec<InputId> = ids.iter().filter(sends).copied().collect();
        let messages = sent.iter().filter(|id| self.is_message(**id)).count();
        let last = ids.last().is_some_and(|id| self.is_message(*id));
        let any = ids.iter().any(|id| self.is_message(*id));
        let wrong = if self.of_a_model && !sent.is_empty() {
            Some("a queued input extends a run that a model opened")
        } else if messages > 1 || (messages == 1 && sent.len() > 1) {
            Some("a message shares its turn")
        } else if messages == 0 && !sent.is_empty() && self.has_waiting_message() {
            Some("a system entry precedes a message")
        } else if any && !last {
            Some("a system entry is between a message and its answer")
        } else {
            None
        };
        ids.iter().for_each(|id| _ = self.queue.remove(id));
        (self.turning, self.message) = (true, any);
        wrong.map_or(Ok(()), |wrong| Err(format!("{wrong}: {ids:?}")))
    }

    fn completes(&self, taken: &NoticeTaken, rest: &[Record]) -> Result<(), String> {
        let shown = taken.carrier == Carrier::Message && taken.items.iter().any(|item| item.key.is_some());
        if !shown || !self.turning || stops(rest) {
            return Ok(());
        }
        let waits = !self.of_a_model && self.has_waiting_message();
        if !self.message && !waits {
            return Ok(());
        }
        Err(format!("completions precede a message or its answer: {:?}", taken.items))
    }

    fn follow(&mut self, record: &'a Record, rest: &[Record]) -> Result<(), String> {
        if let Record::InputAccepted(input) = record {
            self.queue.insert(input.id, input);
        } else if let Record::QueueChanged { change, .. } = record {
            match change {
                QueueChange::Removed(ids) => ids.iter().for_each(|id| _ = self.queue.remove(id)),
                QueueChange::Cleared => self.queue.retain(|id, _| self.opened_with.contains(id)),
            }
        } else if let Record::RunOpened(opened) = record {
            return self.check_open(opened);
        } else if let Record::InputsTaken { ids, .. } = record {
            return self.check_take(ids);
        } else if let Record::NoticeTaken(taken) = record {
            return self.completes(taken, rest);
        } else if matches!(record, Record::TurnStarted { .. }) {
            (self.turning, self.message) = (true, false);
        } else if matches!(record, Record::RunHeld { .. }) {
            self.turning = false;
        } else if matches!(record, Record::RunEnded(_)) {
            self.opened_with.iter().for_each(|id| _ = self.queue.remove(id));
            self.opened_with.clear();
            self.turning = false;
        }
        Ok(())
    }
}

/// Checks that queued messages go first, one per turn, then completions and system entries. A run that a model's call
/// opened takes only steering inputs.
pub(super) fn messages_first(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut order = Order::default();
        for (at, record) in seen.view.records.iter().enumerate() {
            let rest = seen.view.records.get(at..).unwrap_or_default();
            let followed = order.follow(record, rest);
            ensure(followed.is_ok(), InvariantId::S13, *session, || followed.err().unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Checks that no transcript, model call or call result contains the end of a run that a person opened.
pub(super) fn persons_runs_are_not_in_context(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut persons = BTreeSet::new();
        for (seq, record) in (1_u64..).map(Seq).zip(seen.view.records) {
            let Record::NoticeTaken(taken) = record else { continue };
            let mut opened = taken.items.iter().map(|item| is_persons(world, item));
            match taken.carrier {
                Carrier::Message => {
                    if opened.all(|persons| persons) {
                        persons.insert(seq);
                    }
                }
                Carrier::Result | Carrier::Await { .. } => {
                    ensure(opened.all(|persons| !persons), InvariantId::N7, *session, || {
                        format!("record {seq} gives a call the end of a run that a person opened")
                    })?;
                }
            }
        }
        if persons.is_empty() {
            continue;
        }
        if let Some(state) = seen.view.state {
            check_stays_out(*session, seen, &persons, &state.transcript)?;
        }
        let given = world.observed.iter().flat_map(|observed| &observed.contexts);
        for messages in given.filter(|given| given.run.session == *session).filter_map(|given| given.messages.as_ref())
        {
            check_stays_out(*session, seen, &persons, messages)?;
        }
    }
    Ok(())
}

fn check_stays_out(
    session: SessionId,
    seen: &SessionFacts<'_>,
    persons: &BTreeSet<Seq>,
    messages: &[Message],
) -> Verdict {
    // Inherited messages have record numbers of the parent's journal.
    let inherited = seen.created.map_or(0, |created| created.inherited.len());
    let shown = messages.iter().skip(inherited).find_map(|message| match message {
        Message::Notice { seq, .. } => persons.get(seq),
        Message::User { .. } | Message::Assistant { .. } | Message::Result { .. } | Message::Prompt { .. } => None,
    });
    ensure(shown.is_none(), InvariantId::N7, session, || {
        format!("the model receives record {shown:?}, which holds only ends of runs that people opened")
    })
}

fn is_persons(world: &World<'_>, item: &Notice) -> bool {
    let run = item.run.and_then(|run| world.sessions.get(&item.child)?.runs.get(&run));
    run.and_then(|run| run.opened).is_some_and(|(_, opened)| opened.owner == Owner::Person)
}
