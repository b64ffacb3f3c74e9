//! What the records say, and what the predicates say of the whole.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{CallId, RunKey, RunNo, SessionId};
use subtend_session::index::{self, Row, RowKey};
use subtend_session::invariant::{self, Activation, InvariantId, Ledger, View, Violation, World};
use subtend_session::outcome::{By, Outcome, OutcomeKind};
use subtend_session::place::{Owner, Place};
use subtend_session::record::{Carrier, Hold, Notice, Record, RunEnded, RunOpened, SessionCreated};
use subtend_session::state::State;

use super::Whole;
use super::plan::{self, ROOT};
use super::system::{Journal, Message, System};

fn created(journal: &Journal) -> Option<&SessionCreated> {
    let Some(Record::SessionCreated(created)) = journal.records.first() else { return None };
    Some(created)
}

pub(super) fn place(journal: &Journal) -> Option<&Place> {
    created(journal).map(|created| &created.place)
}

/// The last run, and whether it has ended.
pub(super) fn last_run(journal: &Journal) -> Option<(&RunOpened, bool)> {
    let mut ended = false;
    for record in journal.records.iter().rev() {
        if let Record::RunOpened(opened) = record {
            return Some((opened, ended));
        }
        ended |= matches!(record, Record::RunEnded(_));
    }
    None
}

pub(super) fn owner_of(opened: &RunOpened) -> Option<RunKey> {
    match &opened.owner {
        Owner::Run { session, run, .. } => Some(RunKey { session: *session, run: *run }),
        Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
    }
}

fn ends(journal: &Journal) -> impl DoubleEndedIterator<Item = &RunEnded> {
    journal.records.iter().filter_map(|record| {
        let Record::RunEnded(ended) = record else { return None };
        Some(&**ended)
    })
}

/// How a run ended, if it has.
pub(super) fn ended(journal: &Journal, run: RunNo) -> Option<OutcomeKind> {
    ends(journal).find(|ended| ended.run == run).map(|ended| ended.outcome.kind())
}

/// What a row tells of.
pub(super) fn notice(from: SessionId, journal: &Journal, key: RowKey) -> Option<Notice> {
    let place = place(journal)?;
    let openings = journal.records.iter().filter_map(|record| {
        let Record::RunOpened(opened) = record else { return None };
        Some(opened)
    });
    let told = |opened: &RunOpened| match (key, &opened.owner) {
        (RowKey::Call(call), Owner::Run { call: by, .. }) => call == *by,
        (RowKey::Run(run), _) => run == opened.run,
        (RowKey::Call(_), Owner::Person | Owner::Host(_) | Owner::Detached { .. }) => false,
    };
    let opened = openings.into_iter().find(|opened| told(opened))?;
    let ended = ends(journal).find(|ended| ended.run == opened.run)?;
    index::notice_from(from, place, &opened.owner, ended).map(|(_, notice)| notice)
}

impl System {
    /// Every predicate that can be judged here.
    ///
    /// # Errors
    /// The first violation.
    pub fn judge(&self, whole: &Whole) -> Result<(), Violation> {
        if let Some(wrong) = &self.wrong {
            return Err(Violation { id: InvariantId::S3, session: ROOT, what: wrong.clone() });
        }
        let mut folds: BTreeMap<SessionId, State> = BTreeMap::new();
        for (session, journal) in &self.journals {
            let known = self.active.contains_key(session) || self.resting.contains_key(session);
            if known && !self.touched.contains(session) {
                continue;
            }
            match plan::fold(whole, *session, &journal.records) {
                Ok(state) => _ = folds.insert(*session, state),
                Err(error) => {
                    return Err(Violation { id: InvariantId::J4, session: *session, what: error.to_string() });
                }
            }
        }
        let rows: BTreeSet<Row> = self.rows.keys().copied().collect();
        let ledger = self.ledger(whole);
        let views = self.journals.iter().map(|(session, journal)| (*session, self.view(*session, journal, &folds)));
        // While the sweep is on, only the journals and the rows say something.
        let world = World::new(views, &rows, self.boot.is_none().then_some(&ledger), true);
        invariant::always(&world)?;
        if self.at_rest() { invariant::quiescent(&world) } else { Ok(()) }
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
            activation: active.map(|active| self.activation(session, active.epoch)),
        }
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
                | Message::OwnerOver { .. }
                | Message::Restart(_)
                | Message::Append(_) => {}
            }
        }
        let queued = self.slots.queue.iter().find(|(_, key)| key.session == session);
        awaits.slot = awaits.slot.or(queued.map(|(_, key)| key.run));
        awaits
    }

    fn ledger(&self, whole: &Whole) -> Ledger {
        let on_the_way = self.flight.iter().filter(|message| matches!(message, Message::Granted { .. })).count();
        Ledger {
            per_root: u32::from(whole.size.slots),
            used: BTreeMap::from([(ROOT, self.slots.used)]),
            on_the_way: BTreeMap::from([(ROOT, u32::try_from(on_the_way).unwrap_or(u32::MAX))]),
            cancelled: self.cancelled.clone(),
            late_effects: self.late.clone(),
        }
    }

    /// The process is up, and only models, tools and persons can act.
    fn at_rest(&self) -> bool {
        let outside = |message: &Message| match message {
            Message::Stream { session, epoch, dropped, .. } | Message::Tool { session, epoch, dropped, .. } => {
                let current = self.active.get(session).is_some_and(|active| active.epoch == *epoch);
                dropped.is_none() || !current
            }
            Message::Admit { .. }
            | Message::Granted { .. }
            | Message::Notice { .. }
            | Message::OwnerOver { .. }
            | Message::Restart(_)
            | Message::Append(_) => false,
        };
        self.boot.is_none() && self.flight.iter().all(outside)
    }

    fn outcomes(&self) -> impl Iterator<Item = (u32, SessionId, &Outcome)> {
        self.journals.iter().flat_map(|(session, journal)| {
            let depth = place(journal).map_or(0, Place::depth);
            ends(journal).map(move |ended| (depth, *session, &ended.outcome))
        })
    }

    fn noticed(&self, of: impl Fn(&Notice) -> bool) -> bool {
        self.journals.values().flat_map(|journal| journal.records.iter()).any(|record| {
            let Record::NoticeTaken(taken) = record else { return false };
            taken.items.iter().any(&of)
        })
    }

    pub(super) fn root_completed(&self) -> bool {
        let completed = self.outcomes().any(|(depth, _, outcome)| depth == 0 && *outcome == Outcome::Completed);
        completed && self.noticed(|notice| notice.outcome == Outcome::Completed)
    }

    pub(super) fn lost_child_noticed(&self) -> bool {
        self.noticed(|notice| notice.outcome == Outcome::Lost)
    }

    pub(super) fn revived_completes(&self) -> bool {
        self.outcomes().any(|(depth, session, outcome)| {
            let revived = self.active.get(&session).is_some_and(|active| active.epoch.0 > 1);
            depth > 0 && *outcome == Outcome::Completed && revived
        })
    }

    pub(super) fn grandchild_cancelled(&self) -> bool {
        let by_person = Outcome::Cancelled { by: By::Person };
        let root = self.outcomes().any(|(depth, _, outcome)| depth == 0 && *outcome == by_person);
        let below = |outcome: &Outcome| matches!(outcome, Outcome::Cancelled { by: By::Owner { .. } });
        root && self.outcomes().any(|(depth, _, outcome)| depth == 2 && below(outcome))
    }

    /// Runs that were held interrupted, with what their journals say after that.
    fn interrupted(&self) -> impl Iterator<Item = (RunNo, &[Record])> {
        self.journals.values().filter_map(|journal| {
            let (at, run) = journal.records.iter().enumerate().find_map(|(at, record)| {
                let Record::RunHeld { run, why } = record else { return None };
                matches!(**why, Hold::Interrupted { .. }).then_some((at, *run))
            })?;
            Some((run, journal.records.get(at..)?))
        })
    }

    /// Whether `run` ends so in `records`.
    fn ends_as(run: RunNo, records: &[Record], kind: OutcomeKind) -> bool {
        records.iter().any(|record| {
            let Record::RunEnded(ended) = record else { return false };
            ended.run == run && ended.outcome.kind() == kind
        })
    }

    pub(super) fn spared_completes(&self) -> bool {
        let completed = |record: &Record| {
            let Record::NoticeTaken(taken) = record else { return false };
            taken.carrier == Carrier::Message && taken.items.iter().any(|item| item.outcome == Outcome::Completed)
        };
        self.interrupted()
            .any(|(run, after)| after.iter().any(completed) && Self::ends_as(run, after, OutcomeKind::Interrupted))
    }

    pub(super) fn interrupt_ends_child(&self) -> bool {
        let by_owner = Outcome::Cancelled { by: By::Owner { outcome: OutcomeKind::Interrupted } };
        self.outcomes().any(|(_, _, outcome)| *outcome == by_owner)
    }

    pub(super) fn resumed_completes(&self) -> bool {
        self.interrupted().any(|(run, after)| Self::ends_as(run, after, OutcomeKind::Completed))
    }

    pub(super) fn children_completed(&self) -> usize {
        self.outcomes().filter(|(depth, _, outcome)| *depth > 0 && **outcome == Outcome::Completed).count()
    }
}
