//! The archive: everything that is durable, folded as it becomes so, and judged by the predicates.

use std::collections::{BTreeMap, BTreeSet};

use subtend_journal::engine::{Payload, Placed};
use subtend_session::ids::{RunKey, RunNo, Seq, SessionId};
use subtend_session::index::Row;
use subtend_session::invariant::{self, Frame, Ledger, Observed, Verdict, View, World};
use subtend_session::outcome::{By, Outcome};
use subtend_session::place::{BranchKind, Owner, Place};
use subtend_session::record::Record;
use subtend_session::state::{Owned, State};

use crate::simulate::tally::Verb;

/// All sessions of a simulation.
#[derive(Default)]
pub(crate) struct Archive(BTreeMap<SessionId, Kept>);

struct Kept {
    records: Vec<Record>,
    frames: Vec<Frame>,
    state: State,
}

impl Archive {
    /// Takes a frame in.
    ///
    /// # Errors
    /// In words, when its records do not fold.
    pub(crate) fn keep(&mut self, placed: &Placed) -> Result<(), String> {
        let Payload::Records(records) = &placed.payload else { return Ok(()) };
        let frame = Frame { first_seq: placed.first_seq, count: placed.count, epoch: placed.epoch };
        if let Some(kept) = self.0.get_mut(&placed.session) {
            records.iter().try_for_each(|record| kept.state.follow(record)).map_err(|error| error.to_string())?;
            kept.records.extend(records.iter().cloned());
            kept.frames.push(frame);
            return Ok(());
        }
        let state = State::fold(placed.session, records).map_err(|error| error.to_string())?;
        self.0.insert(placed.session, Kept { records: records.clone(), frames: vec![frame], state });
        Ok(())
    }

    /// The present state of a session.
    pub(crate) fn state(&self, session: SessionId) -> Option<&State> {
        self.0.get(&session).map(|kept| &kept.state)
    }

    /// Sessions in which a verb finds something to do: one is picked from all of them far too seldom.
    pub(crate) fn likely(&self, verb: Verb) -> Vec<SessionId> {
        let fits = |state: &State| match verb {
            Verb::Switch => !state.alternatives.is_empty(),
            Verb::RollBack => state.run.is_none() && failed(state).is_some(),
            Verb::Close => state.created.place.parent().is_some(),
            Verb::Background | Verb::Interrupt => blocking(state).next().is_some(),
            Verb::Open
            | Verb::Send
            | Verb::Steer
            | Verb::Override
            | Verb::Continue
            | Verb::Cancel
            | Verb::CancelRun
            | Verb::CancelTree
            | Verb::Delete
            | Verb::DeleteForced
            | Verb::Queue
            | Verb::QueueRemove
            | Verb::QueueClear
            | Verb::Branch
            | Verb::Regenerate
            | Verb::Summarise
            | Verb::Detach
            | Verb::Answer
            | Verb::Look
            | Verb::Wait
            | Verb::Crash
            | Verb::Shutdown
            | Verb::ClockJump => false,
        };
        self.0.iter().filter(|(_, kept)| fits(&kept.state)).map(|(session, _)| *session).collect()
    }

    /// Whether a session works for the host, or stems from one that does: then it has no rights, whoever answers in it.
    pub(crate) fn is_service(&self, session: SessionId) -> bool {
        let mut at = self.state(session);
        while let Some(state) = at {
            if matches!(state.created.place, Place::Child { kind: BranchKind::Service, .. }) {
                return true;
            }
            at = state.created.place.parent().and_then(|parent| self.state(parent));
        }
        false
    }

    /// The records of a session that are durable.
    pub(crate) fn records(&self, session: SessionId) -> &[Record] {
        self.0.get(&session).map_or(&[], |kept| &kept.records)
    }

    /// A record.
    pub(crate) fn record(&self, session: SessionId, seq: Seq) -> Option<&Record> {
        let at = usize::try_from(seq.0).ok()?.checked_sub(1)?;
        self.0.get(&session)?.records.get(at)
    }

    /// The sessions without a parent.
    pub(crate) fn roots(&self) -> impl Iterator<Item = SessionId> {
        self.0.iter().filter(|(_, kept)| kept.state.created.place.parent().is_none()).map(|(session, _)| *session)
    }

    /// Judges everything that can be, with the slots that are granted at most: to one root, and in all.
    pub(crate) fn judge(&self, rows: &BTreeSet<Row>, observed: &Observed, slots: Slots, at_rest: bool) -> Verdict {
        let views = self.0.iter().map(|(session, kept)| {
            let view = View {
                records: &kept.records,
                frames: &kept.frames,
                state: Some(&kept.state),
                folded: None,
                activation: None,
            };
            (*session, view)
        });
        let ledger = self.ledger(slots);
        let world = World::new(views, rows, Some(&ledger), true).seen_as(observed);
        invariant::always(&world)?;
        if at_rest { invariant::quiescent(&world) } else { Ok(()) }
    }

    /// The slots as the records tell them: whether they are too many is for the predicate to say.
    fn ledger(&self, slots: Slots) -> Ledger {
        let mut ledger = Ledger::default();
        (ledger.owned.per_root, ledger.persons.per_root) = slots.per_root;
        for (session, kept) in &self.0 {
            let root = kept.state.created.place.root(*session);
            if let Some(run) = kept.state.run.as_ref().filter(|run| run.slot) {
                let pool = match run.opened.owner {
                    Owner::Run { .. } | Owner::Detached { .. } => &mut ledger.owned,
                    Owner::Person | Owner::Host(_) => &mut ledger.persons,
                };
                let used = pool.used.entry(root).or_default();
                *used = used.saturating_add(1);
            }
            // Who cancelled what is judged where it is answered.
            for record in &kept.records {
                if let Record::RunEnded(ended) = record
                    && ended.outcome == (Outcome::Cancelled { by: By::Person })
                {
                    ledger.cancelled.insert(RunKey { session: *session, run: ended.run });
                } else if let Record::RunHeld { run, .. } = record {
                    ledger.cancelled.insert(RunKey { session: *session, run: *run });
                }
            }
        }
        let used = |pool: &invariant::Pool| pool.used.values().sum::<u32>();
        // Each class has all of them: the larger one is the one to be judged.
        let most = used(&ledger.owned).max(used(&ledger.persons));
        ledger.global = (most > slots.of_class).then_some(slots.of_class);
        ledger
    }
}

/// Owned runs for which an open call of the run in flight waits.
pub(crate) fn blocking(state: &State) -> impl Iterator<Item = &Owned> {
    let owned = state.run.iter().flat_map(|run| &run.owned);
    owned.filter(|(key, _)| state.is_open(**key)).map(|(_, owned)| owned)
}

/// The last run that ended otherwise than completed, and can be rolled back.
pub(crate) fn failed(state: &State) -> Option<RunNo> {
    state.stretches.iter().rev().find(|(_, stretch)| !stretch.hidden).map(|(run, _)| *run)
}

/// Slots that there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// Of one root: for owned runs, and for those of persons.
    pub(crate) per_root: (u32, u32),
    /// Of each class, over all roots.
    pub(crate) of_class: u32,
}
