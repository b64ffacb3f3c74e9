use std::collections::{BTreeMap, BTreeSet};

use subtend_invariants::observed::{Causes, Effect, Work};
use subtend_invariants::{Activation, InvariantId, Ledger, Observed, Pool, View, Violation, When, World};
use subtend_session::ids::{CallId, RunKey, SessionId};
use subtend_session::index::Row;
use subtend_session::outcome::Initiator;
use subtend_session::state::State;

use super::SystemModel;
use super::journal::Journal;
use super::plan::ROOT;
use super::system::{Message, Slots, System};

impl System {
    /// Checks every predicate that applies to the model.
    /// # Errors
    /// The first violation.
    pub fn judge(&self, model: &SystemModel) -> Result<(), Violation> {
        if let Some(wrong) = &self.wrong {
            return Err(Violation { id: InvariantId::S3, session: ROOT, what: wrong.clone() });
        }
        let mut folds: BTreeMap<SessionId, State> = BTreeMap::new();
        for (session, journal) in &self.journals {
            let known = self.active.contains_key(session) || self.resting.contains_key(session);
            if known && !self.touched.contains(session) {
                continue;
            }
            match State::fold(*session, &*journal.records) {
                Ok(state) => _ = folds.insert(*session, state),
                // If only another invariant is judged, this is not a violation.
                Err(_) if model.only.is_some_and(|only| only != InvariantId::J4) => {}
                Err(error) => {
                    return Err(Violation { id: InvariantId::J4, session: *session, what: error.to_string() });
                }
            }
        }
        let rows: BTreeSet<Row> = self.rows.keys().copied().collect();
        let ledger = self.ledger(model);
        let views = self.journals.iter().map(|(session, journal)| (*session, self.view(*session, journal, &folds)));
        // During the start of the process, only the journals and the rows are meaningful.
        let observed = self.observed(model);
        let world = World::new(views, &rows, self.boot.is_none().then_some(&ledger), true).with_observations(&observed);
        match model.only {
            Some(id) => id.check(&world, self.is_at_rest(model)),
            None => model.coverage.judge(&world, self.is_at_rest(model)),
        }
    }

    fn view<'a>(&'a self, session: SessionId, journal: &'a Journal, folds: &'a BTreeMap<SessionId, State>) -> View<'a> {
        let active = self.active.get(&session);
        let late =
            self.flight.iter().any(|message| matches!(message, Message::Append(batch) if batch.session == session));
        let folded = folds.get(&session);
        View {
            records: &journal.records,
            frames: &[],
            state: active.map(|active| &active.state).or(self.resting.get(&session)).map(|state| &**state).or(folded),
            folded: folded.filter(|_| !late),
            activation: active
                .map(|active| self.activation(session, active.epoch))
                .or_else(|| self.queued(session, journal)),
        }
    }

    /// Returns an activation for a queued run. The run keeps its position in the slot queue when its session is unloaded.
    fn queued(&self, session: SessionId, journal: &Journal) -> Option<Activation> {
        let awaits = self.activation(session, journal.epoch);
        awaits.slot.is_some().then_some(awaits)
    }

    fn activation(&self, session: SessionId, epoch: subtend_session::ids::Epoch) -> Activation {
        let mut awaits = Activation { epoch, ..Activation::default() };
        for message in self.flight.iter().filter(|message| message.to() == session) {
            match message {
                Message::Stream { epoch: by, turn, attempt, .. } if *by == epoch => {
                    awaits.models.push((*turn, *attempt))
                }
                Message::Tool { epoch: by, call, .. } if *by == epoch => _ = awaits.tools.insert(*call),
                Message::Admit { turn, calls, .. } => {
                    awaits.admits.extend(calls.iter().map(|ix| CallId { turn: *turn, ix: *ix }));
                }
                Message::Granted { to } => awaits.slot = Some(to.run),
                Message::Stream { .. }
                | Message::Tool { .. }
                | Message::Notice { .. }
                | Message::OwnerRow { .. }
                | Message::TreeCancel { .. }
                | Message::Ask { .. }
                | Message::OwnerEnded { .. }
                | Message::Restart(_)
                | Message::Append(_) => {}
            }
        }
        let mut waiting = self.slots.both().into_iter().flat_map(|pool| &pool.queue);
        let queued = waiting.find(|(_, key)| key.session == session);
        awaits.slot = awaits.slot.or(queued.map(|(_, key)| key.run));
        awaits
    }

    fn ledger(&self, model: &SystemModel) -> Ledger {
        let granted = |slots: &Slots| {
            let in_transit =
                |message: &&Message| matches!(message, Message::Granted { to } if slots.holders.contains(to));
            u32::try_from(self.flight.iter().filter(in_transit).count()).unwrap_or(u32::MAX)
        };
        let pool = |slots: &Slots, per_root: u8| Pool {
            per_root: u32::from(per_root),
            used: BTreeMap::from([(ROOT, slots.used)]),
            in_transit: BTreeMap::from([(ROOT, granted(slots))]),
        };
        Ledger {
            global: None,
            lagging: false,
            owned: pool(&self.slots.owned, model.size.slots),
            persons: pool(&self.slots.persons, model.size.person_slots),
            cancelled: self.cancelled.clone(),
            fired: !self.fired.is_empty(),
            late_effects: self.late.clone(),
        }
    }

    /// Returns the observations that are in no journal.
    fn observed(&self, model: &SystemModel) -> Observed {
        let by_person = |runs: &BTreeSet<_>| runs.iter().map(|run| (*run, Initiator::Person)).collect();
        let trees = model.size.tree_cancels > self.remaining.tree_cancels;
        let causes = Causes {
            cancels: by_person(&self.cancelled),
            trees: trees.then_some(ROOT).into_iter().collect(),
            interrupts: by_person(&self.interrupts),
            passed: self.passed.iter().copied().collect(),
            boots: u32::from(model.size.crashes.saturating_sub(self.remaining.crashes)),
            ..Causes::default()
        };
        Observed {
            causes: Some(causes),
            armed: Some(self.armed.clone()),
            effects: self.effects(),
            activations: self.activations.clone(),
            deaths: self.deaths.clone(),
            ..Observed::default()
        }
    }

    /// Returns the running work of runs in flight, except work that was stopped.
    fn effects(&self) -> Vec<Effect> {
        let at_work = self.flight.iter().filter_map(|message| {
            let (session, epoch, work) = match message {
                Message::Stream { session, epoch, turn, attempt, dropped: None } => {
                    (*session, *epoch, Work::Model(*turn, *attempt))
                }
                Message::Tool { session, epoch, call, dropped: None } => {
                    (*session, *epoch, Work::Tool { call: *call, repeatable: true })
                }
                Message::Stream { .. }
                | Message::Tool { .. }
                | Message::Admit { .. }
                | Message::Granted { .. }
                | Message::Notice { .. }
                | Message::OwnerRow { .. }
                | Message::TreeCancel { .. }
                | Message::Ask { .. }
                | Message::OwnerEnded { .. }
                | Message::Restart(_)
                | Message::Append(_) => return None,
            };
            let run = RunKey { session, run: self.run_in_flight(session)? };
            Some(Effect { run, epoch, work, started: When::default(), durable: None, gone: None })
        });
        at_work.collect()
    }

    /// Returns whether the process is running, and only people can act.
    fn is_at_rest(&self, model: &SystemModel) -> bool {
        let outside = |message: &Message| match message {
            Message::Stream { session, epoch, dropped, .. } | Message::Tool { session, epoch, dropped, .. } => {
                let current = self.active.get(session).is_some_and(|active| active.epoch == *epoch);
                dropped.is_none() || !current
            }
            // Without an approver, the denial of the call is still due.
            Message::Ask { .. } => model.size.approvers > 0,
            Message::Admit { .. }
            | Message::Granted { .. }
            | Message::Notice { .. }
            | Message::OwnerRow { .. }
            | Message::TreeCancel { .. }
            | Message::OwnerEnded { .. }
            | Message::Restart(_)
            | Message::Append(_) => false,
        };
        self.boot.is_none() && self.flight.iter().all(outside)
    }
}
