//! The state of the model: durable data, volatile data, and the number of events that may still happen.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use subtend_invariants::When;
use subtend_invariants::observed::{Activated, ActivationCause, Death};
use subtend_session::command::Deadline;
use subtend_session::effect::Reply as Answered;
use subtend_session::ids::{AttemptNo, CallId, Epoch, RunKey, RunNo, Seq, SessionId, TurnNo};
use subtend_session::index::{Changes, Row, RowKey, RowKind};
use subtend_session::outcome::{OutcomeKind, TimeLimit};
use subtend_session::record::Record;
use subtend_session::state::{Due, State};

use super::journal::Journal;
use super::plan::{self, ROOT};
use super::{SystemModel, journal};
use crate::size::Size;

#[derive(Clone, Debug)]
pub(super) struct Active {
    pub(super) epoch: Epoch,
    pub(super) state: Arc<State>,
}

/// A message in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    Stream {
        session: SessionId,
        /// The activation that requested it.
        epoch: Epoch,
        turn: TurnNo,
        attempt: AttemptNo,
        dropped: Option<Dropped>,
    },
    Tool {
        session: SessionId,
        /// The activation that requested it.
        epoch: Epoch,
        call: CallId,
        dropped: Option<Dropped>,
    },
    /// Child calls that wait for admission.
    Admit {
        session: SessionId,
        turn: TurnNo,
        /// The positions of the calls in the answer.
        calls: Vec<u32>,
    },
    Granted {
        to: RunKey,
    },
    /// The end of a run, for its owner.
    Notice {
        to: SessionId,
        /// The session whose run ended.
        from: SessionId,
        key: RowKey,
    },
    /// A row by which an owner continues a child, or cancels the run that the key opened.
    OwnerRow {
        to: SessionId,
        from: SessionId,
        kind: RowKind,
        key: CallId,
    },
    /// A cancel of the whole tree, for one of its runs.
    TreeCancel {
        to: RunKey,
    },
    Ask {
        session: SessionId,
        call: CallId,
    },
    OwnerEnded {
        to: RunKey,
        owner: RunKey,
        outcome: OutcomeKind,
        /// True if queued inputs stay queued.
        keeps_queue: bool,
    },
    /// The supervisor restarts a session.
    Restart(SessionId),
    /// A batch that is not in the log yet. Only with a seeded bug.
    Append(Box<Batch>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dropped {
    /// The run to which the work belongs stopped it.
    ByRun,
    /// The cancellation token of that run fired.
    ByToken,
}

/// Records that are not in the log yet.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) session: SessionId,
    pub(super) epoch: Epoch,
    pub(super) records: Vec<Record>,
    pub(super) changes: Changes,
}

impl Batch {
    fn key(&self) -> (SessionId, Epoch, usize) {
        (self.session, self.epoch, self.records.len())
    }
}

impl PartialEq for Batch {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Batch {}

impl PartialOrd for Batch {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Batch {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Batch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// The slots of one root run: either for owned runs or for runs that people opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Slots {
    pub(super) used: u32,
    pub(super) holders: BTreeSet<RunKey>,
    /// Runs that wait for a slot. `true` if the run worked before: it is served first.
    pub(super) queue: Vec<(bool, RunKey)>,
}

impl Slots {
    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Runs that hold a slot or wait for one.
    pub(super) fn keys(&self) -> impl Iterator<Item = RunKey> {
        self.holders.iter().copied().chain(self.queue.iter().map(|(_, key)| *key))
    }

    pub(super) fn ask(&mut self, key: RunKey, resumed: bool) {
        if !self.holders.contains(&key) && !self.queue.iter().any(|(_, queued)| *queued == key) {
            self.queue.push((resumed, key));
        }
    }

    /// Releases a slot or a position in the queue. If `counts` is true, the count falls even if the run held no slot.
    pub(super) fn release(&mut self, key: RunKey, counts: bool) {
        self.queue.retain(|(_, queued)| *queued != key);
        if self.holders.remove(&key) || counts {
            self.used = self.used.saturating_sub(1);
        }
    }

    pub(super) fn next(&mut self, limit: u32) -> Option<RunKey> {
        if self.used >= limit {
            return None;
        }
        let at = self.queue.iter().position(|(resumed, _)| *resumed).or(if self.queue.is_empty() {
            None
        } else {
            Some(0)
        })?;
        let (_, key) = self.queue.remove(at);
        self.used = self.used.saturating_add(1);
        self.holders.insert(key);
        Some(key)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Pools {
    pub(super) owned: Slots,
    pub(super) persons: Slots,
}

impl Pools {
    pub(super) fn both(&self) -> [&Slots; 2] {
        [&self.owned, &self.persons]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Boot {
    /// Sessions without a run in flight that have a `continue` row. They answer before their owners end.
    pub(super) reached: BTreeSet<SessionId>,
    /// Sessions whose lost run the sweep has not ended yet.
    pub(super) sweep: BTreeSet<SessionId>,
    /// Sessions with pending rows that the start has not handled. Set after the sweep.
    pub(super) owed: Option<BTreeSet<SessionId>>,
    /// Sessions whose runs resume after the pending rows: runs parked at a limit, and the queued runs that these own.
    pub(super) resuming: BTreeSet<SessionId>,
}

impl Boot {
    /// Returns whether the start still has to handle the session's run. It then also handles the run's pending rows.
    pub(super) fn awaits(&self, session: SessionId) -> bool {
        self.sweep.contains(&session) || self.resuming.contains(&session)
    }
}

#[derive(Clone, Debug)]
pub struct System {
    pub(super) journals: BTreeMap<SessionId, Journal>,
    /// Rows of the outbox, with the position of their record.
    pub(super) rows: BTreeMap<Row, Seq>,
    pub(super) active: BTreeMap<SessionId, Active>,
    /// The messages in flight: a sorted multiset.
    pub(super) flight: Vec<Message>,
    pub(super) slots: Pools,
    /// Runs whose cancellation token has fired.
    pub(super) fired: BTreeSet<RunKey>,
    /// Closing runs, with their outcome, and whether queued inputs stay queued.
    pub(super) closing: BTreeMap<RunKey, (OutcomeKind, bool)>,
    /// Runs that their owner cancelled individually: the key, and the model's call that requested the cancel.
    pub(super) single: BTreeMap<RunKey, (CallId, Option<CallId>)>,
    pub(super) boot: Option<Boot>,
    pub(super) remaining: Size,
    pub(super) cancelled: BTreeSet<RunKey>,
    pub(super) interrupts: BTreeSet<RunKey>,
    pub(super) passed: BTreeSet<(RunKey, TimeLimit)>,
    /// Runs that started an effect after their token had fired.
    pub(super) late: BTreeSet<RunKey>,
    /// A rejection that no interleaving may cause.
    pub(super) wrong: Option<String>,
    pub(super) crashed_in_boot: bool,
    /// Sessions that the last step changed. Only these are folded and compared again. Not part of the identity.
    pub(super) touched: BTreeSet<SessionId>,
    /// Armed deadlines. Not part of the identity, because they follow from it.
    pub(super) armed: BTreeSet<(SessionId, Deadline)>,
    /// Activations and deaths of actors so far. Not part of the identity.
    pub(super) activations: Vec<Activated>,
    pub(super) deaths: Vec<Death>,
    /// The session with a queued command; absent between two steps.
    pub(super) addressed: Option<SessionId>,
    /// The answer to the last command; absent between two steps.
    pub(super) answered: Answered,
    /// True while effects of a decision are discarded; false between two steps.
    pub(super) discards_effects: bool,
    /// Folds of sessions without an activation. Not part of the identity.
    pub(super) resting: BTreeMap<SessionId, Arc<State>>,
}

impl System {
    pub(super) fn new(model: &SystemModel) -> Self {
        let mut system = Self {
            journals: BTreeMap::new(),
            rows: BTreeMap::new(),
            active: BTreeMap::new(),
            flight: Vec::new(),
            slots: Pools::default(),
            fired: BTreeSet::new(),
            closing: BTreeMap::new(),
            single: BTreeMap::new(),
            boot: None,
            remaining: model.size,
            cancelled: BTreeSet::new(),
            interrupts: BTreeSet::new(),
            passed: BTreeSet::new(),
            late: BTreeSet::new(),
            armed: BTreeSet::new(),
            activations: Vec::new(),
            deaths: Vec::new(),
            addressed: None,
            answered: Answered::None,
            wrong: None,
            crashed_in_boot: false,
            touched: BTreeSet::new(),
            discards_effects: false,
            resting: BTreeMap::new(),
        };
        system.create_session(ROOT, &plan::root(model).records);
        system
    }

    pub(super) fn create_session(&mut self, session: SessionId, records: &[Record]) {
        let journal = self.journals.entry(session).or_default();
        journal.append(records);
        journal.epoch = Epoch(1);
        match State::fold(session, &*journal.records) {
            Ok(state) => {
                self.touched.insert(session);
                self.record_activation(session, Epoch(1), ActivationCause::Creation);
                self.active.insert(session, Active { epoch: Epoch(1), state: Arc::new(state) });
            }
            Err(error) => self.wrong = Some(error.to_string()),
        }
    }

    pub(super) fn record_activation(&mut self, session: SessionId, epoch: Epoch, why: ActivationCause) {
        let records = self.journals.get(&session).map_or(0, |journal| journal.records.len());
        let last = Seq(u64::try_from(records).unwrap_or(u64::MAX));
        let at = self.now();
        self.activations.push(Activated { session, epoch, at, why, last });
    }

    /// Returns the next instant. Nothing takes time in the model.
    pub(super) fn now(&self) -> When {
        let order = self.activations.len().saturating_add(self.deaths.len());
        When { order: u64::try_from(order).unwrap_or(u64::MAX), ms: 0 }
    }

    pub(super) fn send(&mut self, message: Message) {
        let at = self.flight.partition_point(|other| *other < message);
        self.flight.insert(at, message);
    }

    pub(super) fn run_in_flight(&self, session: SessionId) -> Option<RunNo> {
        let (opened, ended) = journal::last_run(self.journals.get(&session)?)?;
        (!ended).then_some(opened.run)
    }

    /// Hashes the identity of a state. The state of an activation follows from its journal, except for the volatile fields.
    fn identity<H: Hasher>(&self, hasher: &mut H) {
        for (session, journal) in &self.journals {
            (session, journal.digest, journal.epoch, journal.records.len()).hash(hasher);
        }
        for (session, active) in &self.active {
            (session, active.epoch).hash(hasher);
            for notice in active.state.arrived.iter() {
                (notice.child, notice.run, notice.key).hash(hasher);
            }
            if active.state.due != Due::default() {
                format!("{:?}", active.state.due).hash(hasher);
            }
        }
        (&self.rows, &self.flight, &self.slots, &self.fired, &self.closing, &self.single).hash(hasher);
        (&self.boot, self.remaining, &self.cancelled, &self.interrupts, &self.passed).hash(hasher);
        (&self.late, &self.wrong, self.crashed_in_boot).hash(hasher);
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.identity(&mut hasher);
        hasher.finish()
    }
}

impl Hash for System {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity(state);
    }
}

impl PartialEq for System {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint() == other.fingerprint()
    }
}

impl Eq for System {}
