//! The input of the predicates: plain data from the model checker, the simulator or an audit.

use std::collections::{BTreeMap, BTreeSet};

use crate::observed::{Causes, Observed};
use subtend_session::authority::Authority;
use subtend_session::call::CallEnd;
use subtend_session::ids::{AttemptNo, CallId, Epoch, RunKey, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::index::Row;
use subtend_session::limits::Limits;
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::place::{Mode, Owner, Place};
use subtend_session::record::{
    AnsweredBy, AskVerdict, BranchCreated, Carrier, ChildSpawned, ContinueAsked, ContinueRefusal, Hold, Notice, Record,
    RunEnded, RunOpened, SessionCreated,
};
use subtend_session::state::State;

/// Sessions, outbox rows and resources at one instant. [`World::new`] indexes the records once for all predicates.
#[derive(Debug)]
pub struct World<'a> {
    pub(super) sessions: BTreeMap<SessionId, SessionFacts<'a>>,
    pub(super) rows: &'a BTreeSet<Row>,
    pub(super) ledger: Option<&'a Ledger>,
    pub(super) observed: Option<&'a Observed>,
    pub(super) complete: bool,
    pub(super) erased: BTreeSet<SessionId>,
}

#[derive(Clone, Debug, Default)]
pub struct View<'a> {
    /// The session's durable records, from sequence number 1.
    pub records: &'a [Record],
    /// The frames with these records; empty if unknown.
    pub frames: &'a [Frame],
    /// The state of the activation, else the fold of the records.
    pub state: Option<&'a State>,
    /// The fold of the records, which must equal the state.
    pub folded: Option<&'a State>,
    /// Outstanding requests of the activation; `None` if the session is not activated.
    pub activation: Option<Activation>,
}

/// The records of one session in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    pub first_seq: Seq,
    pub count: u32,
    pub epoch: Epoch,
}

/// Outstanding requests of an activation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    pub epoch: Epoch,
    /// Model calls that are active or due.
    pub models: Vec<(TurnNo, AttemptNo)>,
    pub tools: BTreeSet<CallId>,
    /// The run that requests a slot.
    pub slot: Option<RunNo>,
    /// Child calls awaiting admission.
    pub admits: BTreeSet<CallId>,
}

/// Slots and tokens of all trees, and cancels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ledger {
    /// Slots of the host per class, if bounded.
    pub global: Option<u32>,
    /// True if session states may lag behind these counts. Predicates then do not compare them.
    pub lagging: bool,
    /// Slots of owned and detached runs.
    pub owned: Pool,
    /// Slots of runs that people opened in branches.
    pub persons: Pool,
    pub cancelled: BTreeSet<RunKey>,
    /// True if a cancellation token has fired. Until then, no effect can be late.
    pub fired: bool,
    /// Runs that started an effect after an owner's token had fired.
    pub late_effects: BTreeSet<RunKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pool {
    pub per_root: u32,
    /// Slots in use by root.
    pub used: BTreeMap<SessionId, u32>,
    /// Granted slots whose message is in flight, by root.
    pub in_transit: BTreeMap<SessionId, u32>,
}

#[derive(Debug, Default)]
pub(super) struct SessionFacts<'a> {
    pub(super) view: View<'a>,
    pub(super) created: Option<&'a SessionCreated>,
    pub(super) runs: BTreeMap<RunNo, RunFacts<'a>>,
    pub(super) spawned: Vec<(usize, &'a ChildSpawned)>,
    pub(super) continued: Vec<(usize, &'a ContinueAsked)>,
    pub(super) branches: Vec<(usize, &'a BranchCreated)>,
    pub(super) refused: Vec<(SessionId, CallId, ContinueRefusal)>,
    pub(super) taken: Vec<(usize, &'a Notice)>,
    pub(super) cancel_asked: Vec<(SessionId, CallId)>,
    /// Cancels by models: the call, the child, and the key of the cancelled run.
    pub(super) model_cancels: Vec<(CallId, SessionId, CallId)>,
    /// Asks to approvers, by call.
    pub(super) asks: BTreeMap<CallId, AskFacts<'a>>,
    pub(super) backgrounded: BTreeSet<CallId>,
    pub(super) results: BTreeMap<CallId, u32>,
}

#[derive(Debug)]
pub(super) struct AskFacts<'a> {
    pub(super) at: usize,
    pub(super) access: (&'a Text, &'a Text),
    pub(super) root: SessionId,
    pub(super) answered: Option<(usize, AskVerdict, AnsweredBy)>,
    /// The number of times that the ask was opened, and the number of times that it was answered.
    pub(super) counts: (u32, u32),
}

#[derive(Debug, Default)]
pub(super) struct RunFacts<'a> {
    pub(super) opened: Option<(usize, &'a RunOpened)>,
    pub(super) started: bool,
    pub(super) interrupted: bool,
    pub(super) closing: Option<(usize, &'a Outcome, bool)>,
    /// The position of the last record that put the run on hold.
    pub(super) held: Option<usize>,
    pub(super) ended: Option<(usize, &'a RunEnded)>,
    pub(super) ends: usize,
}

impl RunFacts<'_> {
    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.ended.map(|(_, ended)| &ended.outcome).or(self.closing.map(|(_, outcome, _)| outcome))
    }

    /// Returns the number of records before the one that fixed the outcome, if any.
    pub(super) fn outcome_at(&self) -> Option<usize> {
        self.closing.map(|(at, ..)| at).or(self.ended.map(|(at, _)| at))
    }

    /// Returns the owning run, and the call by which it opened this run.
    pub(super) fn owner(&self) -> Option<(RunKey, CallId)> {
        match &self.opened?.1.owner {
            Owner::Run { session, run, call } => Some((RunKey { session: *session, run: *run }, *call)),
            Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
        }
    }
}

impl<'a> SessionFacts<'a> {
    /// Returns the activation that wrote the record `at`, if known.
    pub(super) fn epoch(&self, at: usize) -> Option<Epoch> {
        let at = u64::try_from(at).ok()?.checked_add(1)?;
        let holds =
            |frame: &&Frame| (frame.first_seq.0..frame.first_seq.0.saturating_add(frame.count.into())).contains(&at);
        self.view.frames.iter().find(holds).map(|frame| frame.epoch)
    }

    fn new(view: View<'a>) -> Self {
        let mut seen = Self { view, ..Self::default() };
        for (at, record) in seen.view.records.iter().enumerate() {
            seen.read(at, record);
        }
        seen
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other records change nothing here")]
    fn read(&mut self, at: usize, record: &'a Record) {
        match record {
            Record::SessionCreated(created) => self.created = self.created.or(Some(created)),
            Record::RunOpened(opened) => {
                let run = self.runs.entry(opened.run).or_default();
                run.opened = run.opened.or(Some((at, opened)));
            }
            Record::RunHeld { run, why } => {
                let run = self.runs.entry(*run).or_default();
                run.held = Some(at);
                match &**why {
                    Hold::Closing { outcome, keeps_queue } => {
                        run.closing = run.closing.or(Some((at, outcome, *keeps_queue)));
                    }
                    Hold::Interrupted { .. } => run.interrupted = true,
                    Hold::OutOfTurns => {}
                }
            }
            Record::RunEnded(ended) => {
                let run = self.runs.entry(ended.run).or_default();
                run.ended = run.ended.or(Some((at, ended)));
                run.ends = run.ends.saturating_add(1);
            }
            Record::ChildSpawned(spawned) => self.spawned.push((at, spawned)),
            Record::ContinueAsked(request) => self.continued.push((at, request)),
            Record::ContinueRefused { owner, key, why } => self.refused.push((*owner, *key, *why)),
            Record::NoticeTaken(taken) => {
                self.taken.extend(taken.items.iter().map(|item| (at, item)));
                match taken.carrier {
                    Carrier::Result => {
                        taken.items.iter().filter_map(|item| item.key).for_each(|call| self.result(call))
                    }
                    Carrier::Await { call } => self.result(call),
                    Carrier::Message => {}
                }
            }
            Record::CancelAsked { call, child, key } => {
                self.cancel_asked.push((*child, *key));
                self.model_cancels.extend(call.map(|call| (call, *child, *key)));
            }
            Record::CallFinished(finished) => {
                self.result(finished.call);
                if finished.end == CallEnd::Backgrounded {
                    self.backgrounded.insert(finished.call);
                }
            }
            Record::AskOpened { call, action, resource, root, .. } => {
                let access = (action, resource);
                let new = AskFacts { at, access, root: *root, answered: None, counts: (0, 0) };
                let ask = self.asks.entry(*call).or_insert(new);
                ask.counts.0 = ask.counts.0.saturating_add(1);
            }
            Record::AskAnswered { call, verdict, by } => {
                if let Some(ask) = self.asks.get_mut(call) {
                    ask.answered = ask.answered.or(Some((at, *verdict, *by)));
                    ask.counts.1 = ask.counts.1.saturating_add(1);
                }
            }
            Record::BranchCreated(created) => self.branches.push((at, created)),
            Record::RunStarted { run, .. } => self.runs.entry(*run).or_default().started = true,
            _ => {}
        }
    }

    fn result(&mut self, call: CallId) {
        let results = self.results.entry(call).or_default();
        *results = results.saturating_add(1);
    }

    pub(super) fn limits(&self) -> Option<&Limits> {
        let recorded = || self.created.and_then(|created| created.limits.body.as_deref());
        self.view.state.map(|state| &*state.limits).or_else(recorded)
    }

    /// Returns the session's ceiling, if known. Excludes the bound of an import, which applies only to records after it.
    pub(super) fn ceiling(&self) -> Option<&Authority> {
        let recorded = || self.created.and_then(|created| created.ceiling.body.as_deref());
        let Some(state) = self.view.state else { return recorded() };
        match (&state.created.imported, &state.created.ceiling.body) {
            (Some(_), Some(recorded)) => Some(recorded),
            (Some(_) | None, _) => Some(&state.ceiling),
        }
    }

    /// Returns the records of a run, from its opening to its end.
    pub(super) fn records_of(&self, run: &RunFacts<'a>) -> &'a [Record] {
        let Some((from, _)) = run.opened else { return &[] };
        let to = run.ended.map_or(self.view.records.len(), |(at, _)| at.saturating_add(1));
        self.view.records.get(from..to).unwrap_or_default()
    }

    /// Returns the run in flight after the first `records`, and whether its outcome was fixed.
    pub(super) fn run_in_flight_at(&self, records: usize) -> Option<(RunNo, bool)> {
        let opened = |run: &RunFacts<'_>| run.opened.is_some_and(|(at, _)| at < records);
        let (no, run) = self.runs.iter().rev().find(|(_, run)| opened(run))?;
        let ended = run.ended.is_some_and(|(at, _)| at < records);
        (!ended).then(|| (*no, run.outcome_at().is_some_and(|at| at < records)))
    }

    pub(super) fn place(&self) -> Option<&'a Place> {
        self.created.map(|created| &created.place)
    }

    /// Returns the notices taken for the run that `key` opened.
    pub(super) fn notices_by_key(&self, child: SessionId, key: CallId) -> impl Iterator<Item = (usize, &'a Notice)> {
        self.taken.iter().copied().filter(move |(_, item)| item.child == child && item.key == Some(key))
    }

    /// Returns the keys of blocking calls that stayed blocking, each with its child.
    pub(super) fn blocking_keys(&self) -> impl Iterator<Item = (CallId, SessionId)> {
        let spawned = self.spawned.iter().map(|(_, spawned)| (spawned.mode, spawned.call, spawned.child));
        let all = spawned.chain(self.continued.iter().map(|(_, request)| (request.mode, request.call, request.child)));
        all.filter(|(mode, call, _)| *mode == Mode::Blocking && !self.backgrounded.contains(call))
            .map(|(_, call, child)| (call, child))
    }

    /// Returns the calls of this session that requested owned runs: position, call, child. Excludes detached runs.
    pub(super) fn owned_keys(&self) -> impl Iterator<Item = (usize, CallId, SessionId)> {
        let spawned = self.spawned.iter().filter(|(_, spawned)| !spawned.detached);
        spawned
            .map(|(at, spawned)| (*at, spawned.call, spawned.child))
            .chain(self.continued.iter().map(|(at, request)| (*at, request.call, request.child)))
    }
}

impl<'a> World<'a> {
    /// Indexes the records of `sessions`. Unless their trees are `complete`, predicates skip absent sessions.
    pub fn new(
        sessions: impl IntoIterator<Item = (SessionId, View<'a>)>,
        rows: &'a BTreeSet<Row>,
        ledger: Option<&'a Ledger>,
        complete: bool,
    ) -> Self {
        let sessions = sessions.into_iter().map(|(id, view)| (id, SessionFacts::new(view))).collect();
        Self { sessions, rows, ledger, observed: None, complete, erased: BTreeSet::new() }
    }

    /// Marks sessions as erased, so that predicates do not require them.
    #[must_use]
    pub fn without(mut self, erased: impl IntoIterator<Item = SessionId>) -> Self {
        self.erased = erased.into_iter().collect();
        self
    }

    /// Returns whether predicates must skip `session` because it may be absent or erased.
    pub(super) fn may_lack(&self, session: SessionId) -> bool {
        !self.complete || self.erased.contains(&session)
    }

    #[must_use]
    pub fn with_observations(mut self, observed: &'a Observed) -> Self {
        self.observed = Some(observed);
        self
    }

    pub(super) fn causes(&self) -> Option<&'a Causes> {
        self.observed?.causes.as_ref()
    }

    /// Returns the ancestors of `session`, parent first.
    pub(super) fn ancestors(&self, session: SessionId) -> Vec<SessionId> {
        let parent = |of: &SessionId| self.sessions.get(of).and_then(SessionFacts::place).and_then(Place::parent);
        let mut found = Vec::new();
        let mut at = parent(&session);
        while let Some(id) = at.filter(|id| !found.contains(id) && *id != session) {
            found.push(id);
            at = parent(&id);
        }
        found
    }

    /// Returns whether `ancestor` owns `run`, directly or indirectly.
    pub(super) fn is_owned_by(&self, run: RunKey, ancestor: RunKey) -> bool {
        let mut visited = BTreeSet::from([run]);
        let mut at = self.run(run).and_then(RunFacts::owner).map(|(owner, _)| owner);
        while let Some(owner) = at.filter(|owner| visited.insert(*owner)) {
            if owner == ancestor {
                return true;
            }
            at = self.run(owner).and_then(RunFacts::owner).map(|(owner, _)| owner);
        }
        false
    }

    pub(super) fn run(&self, key: RunKey) -> Option<&RunFacts<'a>> {
        self.sessions.get(&key.session)?.runs.get(&key.run)
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = (RunKey, &RunFacts<'a>)> {
        self.sessions.iter().flat_map(|(session, seen)| {
            seen.runs.iter().map(|(run, facts)| (RunKey { session: *session, run: *run }, facts))
        })
    }
}

/// Returns the owner's outcome, if the owner's end caused `outcome`.
pub(super) fn owner_outcome(outcome: &Outcome) -> Option<subtend_session::outcome::OutcomeKind> {
    match outcome {
        Outcome::Cancelled { by: Initiator::Owner { outcome } } => Some(*outcome),
        Outcome::Cancelled { by: Initiator::Person | Initiator::Host | Initiator::Model { .. } | Initiator::Sweep }
        | Outcome::Completed
        | Outcome::Failed { .. }
        | Outcome::Interrupted { .. }
        | Outcome::TimedOut { .. }
        | Outcome::OutOfTurns
        | Outcome::OutOfBudget { .. }
        | Outcome::Lost
        | Outcome::RestartsExhausted { .. } => None,
    }
}
