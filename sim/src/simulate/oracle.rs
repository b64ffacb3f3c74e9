//! The oracle: it records durable data and replies to callers, and keeps the first violation.

pub(crate) mod archive;
pub(crate) mod contexts;
pub(crate) mod observations;
pub(crate) mod observer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_invariants::Coverage;
use subtend_invariants::observed::Work;
use subtend_session::ids::{AttemptNo, CallId, InputId, RunKey, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::outcome::Outcome;
use subtend_session::place::{BranchKind, Owner, Place};
use subtend_session::record::{Hold, Record};
use subtend_tools::tool::ToolKey;
use tokio::time::Instant;

use crate::simulate::report::SimFailure;
use crate::simulate::tally::{FaultKind, Tally, Verb};
use archive::Archive;
use contexts::Contexts;
use observations::Observations;
use observer::{CancelAsked, Cancels, PendingObservations};

/// Time after the answer to a request within which a fault still counts as during the request.
const RECENT: Duration = Duration::from_secs(1);

/// A function that returns the numbers of slots below a root: those of owned runs, and those of people's runs.
type SlotsOfRoot = Box<dyn Fn(SessionId) -> [usize; 2] + Send + Sync>;

/// The oracle of one simulation. It outlives every process.
#[derive(Default)]
pub(crate) struct Oracle(Mutex<OracleState>);

#[derive(Default)]
pub(crate) struct OracleState {
    /// Virtual time at which the current process began.
    before: Duration,
    began: Option<Instant>,
    pub(crate) steps: u32,
    pub(crate) trace: bool,
    pub(crate) calm: bool,
    /// True if the process was killed. No record becomes durable any more.
    pub(crate) dead: bool,
    pub(crate) booting: bool,
    pub(crate) attended_since: Option<Duration>,
    pub(crate) contexts: Contexts,
    pub(crate) writes: u64,
    /// The write at which the process is killed, and whether that write succeeds.
    pub(crate) dies_at: Option<(u64, bool)>,
    pub(crate) archive: Archive,
    pub(crate) coverage: Coverage,
    pub(crate) observations: Observations,
    pub(crate) observer: PendingObservations,
    /// Counts the slots of runs below a root.
    pub(crate) slots: Option<SlotsOfRoot>,
    pub(crate) cancels: Vec<CancelAsked>,
    pub(crate) hash: blake3::Hasher,
    pub(crate) records: u64,
    pub(crate) sessions: Vec<SessionId>,
    pub(crate) seen: BTreeMap<SessionId, DurableSession>,
    /// The run of each model call whose start is durable, and the time when it became durable.
    turns: BTreeMap<(SessionId, TurnNo, AttemptNo), (RunNo, Duration)>,
    calls: BTreeSet<(SessionId, CallId)>,
    owners: BTreeMap<RunKey, RunKey>,
    pub(crate) runs: BTreeMap<SessionId, RunNo>,
    /// Time and outcome at which the close or end of a run became durable.
    over: BTreeMap<RunKey, ClosedRun>,
    pub(crate) ends: BTreeMap<RunKey, Outcome>,
    held: BTreeSet<RunKey>,
    last_death: Option<Duration>,
    last_jump: Option<Duration>,
    /// The end of the last jump of the clock.
    last_landing: Option<Duration>,
    /// Total length of the clock's jumps.
    pub(crate) jumped: Duration,
    pub(crate) waits: u64,
    inputs: BTreeMap<(SessionId, InputId), Seq>,
    pub(crate) acknowledged: BTreeSet<(SessionId, InputId)>,
    /// Short names of the children of each session.
    pub(crate) children: BTreeMap<SessionId, Vec<Text>>,
    pub(crate) answers: BTreeMap<SessionId, Vec<Seq>>,
    /// The last call of each session that opened a run.
    pub(crate) child_calls: BTreeMap<SessionId, CallId>,
    /// Number of requested deletions. After the first, many requests may be refused.
    pub(crate) deletions: u64,
    effects: BTreeMap<ToolKey, u32>,
    pub(crate) failure: Option<SimFailure>,
    pub(crate) tally: Tally,
    /// Requests, and the times of their answers.
    pending: BTreeMap<u64, (Verb, Option<Duration>)>,
    next_asked: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DurableSession {
    pub(crate) created_at: Duration,
    pub(crate) last: Seq,
}

#[derive(Clone, Debug)]
pub(crate) struct ClosedRun {
    pub(crate) at: Duration,
    pub(crate) outcome: Outcome,
}

/// Time for which the disk may be busy with the ends of runs after a jump of the clock.
const BACKLOG: Duration = Duration::from_secs(5);
/// Time within which a restarted actor must notify the sessions that its run owns.
const RESTARTS: Duration = Duration::from_secs(60);

impl Oracle {
    pub(crate) fn lock(&self) -> MutexGuard<'_, OracleState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wrong(&self, id: &str, what: String) {
        self.lock().wrong(id, what);
    }

    pub(crate) fn mark(&self, mark: &str) {
        self.lock().tally.mark(mark);
    }
}

impl OracleState {
    /// Starts a process. Called inside the process's runtime.
    pub(crate) fn begin(&mut self) {
        self.began = Some(Instant::now());
        self.trace(|| "--- a process begins".to_owned());
        self.dead = false;
        // Callers that waited for a reply died with the previous process.
        self.waits = 0;
        self.attended_since = None;
        self.observations.record_shutdown(None);
    }

    pub(crate) fn end(&mut self, at: Duration) {
        self.before = at;
        self.began = None;
        self.dead = true;
        self.observations.end_all_effects(at);
        self.forget_observed();
        self.slots = None;
        self.contexts.forget();
        for (_, answered) in self.pending.values_mut() {
            answered.get_or_insert(at);
        }
    }

    /// Returns the virtual time since the simulation began.
    pub(crate) fn now(&self) -> Duration {
        let lived = self.began.map_or(Duration::ZERO, |began| Instant::now().saturating_duration_since(began));
        self.before.saturating_add(lived)
    }

    pub(crate) fn wrong(&mut self, id: &str, what: String) {
        if self.failure.is_none() {
            let (id, at_ms) = (id.to_owned(), u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX));
            self.failure = Some(SimFailure { id, what, at_ms });
        }
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{:9} {}", self.now().as_millis(), what());
        }
    }

    /// Returns the number of a session in creation order, for traces: it is shorter than the id.
    pub(crate) fn session_number(&self, session: SessionId) -> String {
        let at = self.sessions.iter().position(|other| *other == session);
        at.map_or_else(|| session.to_string(), |at| format!("#{at}"))
    }

    /// Returns whether no actor died around or after `then`, and the clock did not jump. If so, no fault excuses a delay.
    pub(crate) fn is_undisturbed_since(&self, then: Duration) -> bool {
        let restarted = self.last_death.is_none_or(|last| last.saturating_add(RESTARTS) < then);
        restarted && self.last_jump.is_none_or(|last| last < then)
    }

    /// Records the end of a jump of the clock.
    pub(crate) fn end_jump(&mut self) {
        self.last_landing = Some(self.now());
    }

    /// Returns whether no fault since `then` excuses a delay, including a busy disk after a jump of the clock.
    pub(crate) fn has_no_excuse_since(&self, then: Duration) -> bool {
        self.is_undisturbed_since(then) && self.last_landing.is_none_or(|last| last.saturating_add(BACKLOG) < then)
    }

    /// Returns whether no run that the closed run owns may start work any more. Its notification may still be in flight in
    /// the instant of the close, and a dead actor sends it only after a restart.
    fn forbids_starts(&self, over: &ClosedRun) -> bool {
        let since = self.now().saturating_sub(over.at);
        since > RESTARTS.saturating_add(self.jumped) || (!since.is_zero() && self.is_undisturbed_since(over.at))
    }

    pub(crate) fn ask(&mut self, verb: Verb) -> u64 {
        self.next_asked = self.next_asked.saturating_add(1);
        let now = self.now();
        self.pending.retain(|_, (_, answered)| answered.is_none_or(|at| now.saturating_sub(at) < RECENT));
        self.pending.insert(self.next_asked, (verb, None));
        self.next_asked
    }

    pub(crate) fn answer(&mut self, request: u64) {
        let now = self.now();
        if let Some((_, answered)) = self.pending.get_mut(&request) {
            *answered = Some(now);
        }
    }

    pub(crate) fn record_fault(&mut self, fault: FaultKind) {
        self.tally.mark(&format!("{fault:?}"));
        match fault {
            FaultKind::HandlerPanic | FaultKind::AppendPanic => {
                self.last_death = Some(self.now());
                // A batch that was not appended is lost with the actor: the turn is repeated with another context.
                self.contexts.forget();
            }
            FaultKind::ClockJump => {
                self.last_jump = Some(self.now());
                self.excuse_all(|_| true);
            }
            FaultKind::TaskPanic
            | FaultKind::WriteFails
            | FaultKind::SyncFails
            | FaultKind::Crash
            | FaultKind::CrashInRecovery
            | FaultKind::ModelPanic
            | FaultKind::ModelHangs
            | FaultKind::ModelFails
            | FaultKind::ModelGarbage
            | FaultKind::ToolPanic
            | FaultKind::ToolHangs
            | FaultKind::ToolFails
            | FaultKind::SlowSubscriber
            | FaultKind::FullQueue => {}
        }
        self.trace(|| format!("! {fault:?}"));
        let now = self.now();
        for (verb, answered) in self.pending.values() {
            if answered.is_none_or(|at| now.saturating_sub(at) < RECENT) {
                let count = self.tally.matrix.entry((fault, *verb)).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    pub(crate) fn durable(&mut self, session: SessionId, seq: Seq, record: &Record) {
        let now = self.now();
        self.records = self.records.saturating_add(1);
        self.tally.mark(record.kind());
        self.seen.entry(session).or_insert_with(|| {
            self.sessions.push(session);
            DurableSession { created_at: now, last: seq }
        });
        if let Some(seen) = self.seen.get_mut(&session) {
            seen.last = seq;
        }
        self.trace(|| format!("{} {seq} {}", self.session_number(session), record_line(record)));
        if let Record::RunOpened(opened) = record {
            self.runs.insert(session, opened.run);
            if let Owner::Run { session: owner, run, .. } = &opened.owner {
                let key = RunKey { session, run: opened.run };
                self.owners.insert(key, RunKey { session: *owner, run: *run });
            }
        } else if let Record::RunHeld { run, why } = record {
            let key = RunKey { session, run: *run };
            match &**why {
                Hold::Closing { outcome, .. } => self.close(key, outcome),
                Hold::Interrupted { .. } | Hold::OutOfTurns => _ = self.held.insert(key),
            }
        } else if let Record::RunEnded(ended) = record {
            let key = RunKey { session, run: ended.run };
            self.tally.mark(ended.outcome.kind().as_str());
            self.close(key, &ended.outcome);
            self.observations.record_end(now, key);
            if self.ends.insert(key, ended.outcome.clone()).is_some() {
                self.wrong("S-1", format!("run {} of {session} has a second end", ended.run));
            }
        } else if let Record::RunStarted { run, .. } = record {
            let run = RunKey { session, run: *run };
            let over =
                self.ended_ancestor(run).map(|(key, over)| format!("{run:?} starts, but {key:?} has ended: {over:?}"));
            if let Some(what) = over {
                self.wrong("T-4", what);
            }
        } else if let Record::InputAccepted(input) = record {
            self.inputs.insert((session, input.id), seq);
        } else if let Record::TurnStarted { run, turn, attempt, .. } = record {
            self.turns.insert((session, *turn, *attempt), (*run, now));
            contexts::judge(self, (session, *turn, *attempt));
        } else if let Record::CallStarted { call, kind, .. } = record {
            self.calls.insert((session, *call));
            if kind.is_child() {
                self.child_calls.insert(session, *call);
            }
        } else if let Record::ChildSpawned(spawned) = record {
            self.children.entry(session).or_default().push(Text::clone(&spawned.short.0));
        } else if let Record::TurnAnswered(_) = record {
            self.answers.entry(session).or_default().push(seq);
        }
    }

    pub(crate) fn started_at(&self, turn: (SessionId, TurnNo, AttemptNo)) -> Option<Duration> {
        self.turns.get(&turn).map(|(_, at)| *at)
    }

    /// Returns the run of a turn whose start is durable.
    pub(crate) fn run_of(&self, turn: (SessionId, TurnNo, AttemptNo)) -> Option<RunNo> {
        self.turns.get(&turn).map(|(run, _)| *run)
    }

    /// Returns whether a person opened the run of a turn, and the answer stays in the run's session. Excludes the first run
    /// of an alternative, whose answer the parent session shows.
    pub(crate) fn is_persons(&self, turn: (SessionId, TurnNo, AttemptNo)) -> bool {
        let Some(run) = self.run_of(turn) else { return false };
        let Some(state) = self.archive.state(turn.0) else { return false };
        let is_alternative = matches!(state.created.place, Place::Child { kind: BranchKind::Alternative, .. });
        let opened = state.run.as_ref().filter(|it| it.no == run).map(|run| &run.opened.owner);
        opened == Some(&Owner::Person) && !(is_alternative && run == RunNo(1))
    }

    fn close(&mut self, run: RunKey, outcome: &Outcome) {
        let at = self.now();
        self.over.entry(run).or_insert_with(|| ClosedRun { at, outcome: outcome.clone() });
    }

    /// Checks that an external effect has a durable intent, and that neither its run nor an owner has ended (J-5, T-4).
    pub(crate) fn effect(&mut self, session: SessionId, intent: Intent, leaves: bool) -> Option<usize> {
        let run = match intent {
            Intent::Turn(turn, attempt) => self.turns.get(&(session, turn, attempt)).map(|(run, _)| *run),
            Intent::Call(run, call, _) => self.calls.contains(&(session, call)).then_some(run),
        };
        let Some(run) = run else {
            if leaves {
                self.wrong("J-5", format!("{intent:?} of {session} leaves the process before its intent is durable"));
            }
            return None;
        };
        let now = self.now();
        if let Some((key, over)) = self.ended_ancestor(RunKey { session, run }) {
            let what = format!("{intent:?} of {session} begins at {now:?}, but {key:?} has ended: {over:?}");
            self.wrong("T-4", what);
            return None;
        }
        let last = self.seen.get(&session).map(|seen| seen.last);
        // A local effect may be repeated if its intent is lost.
        leaves.then(|| self.observations.begin_effect(now, RunKey { session, run }, intent.work(), last))
    }

    /// Returns the run itself, or an owner, that has ended so that no work may start.
    fn ended_ancestor(&self, run: RunKey) -> Option<(RunKey, &ClosedRun)> {
        let mut at = Some(run);
        while let Some(key) = at {
            if let Some(over) = self.over.get(&key).filter(|over| self.forbids_starts(over)) {
                return Some((key, over));
            }
            at = self.owners.get(&key).copied();
        }
        None
    }

    pub(crate) fn owners_of(&self, run: RunKey) -> impl Iterator<Item = RunKey> {
        std::iter::successors(Some(run), |run| self.owners.get(run).copied())
    }

    pub(crate) fn cancels(&mut self, session: SessionId, what: Cancels) {
        let at = self.now();
        self.cancels.push(CancelAsked { session, what, at });
    }

    /// Returns the runs that people cancelled, according to the requests rather than the outcomes.
    pub(crate) fn cancelled(&self) -> BTreeSet<RunKey> {
        self.archive.cancelled(&self.cancels, &self.over)
    }

    pub(crate) fn record_single_start(&mut self, key: ToolKey) {
        let count = self.effects.entry(key).or_default();
        *count = count.saturating_add(1);
        if *count > 1 {
            self.wrong("E-1", format!("the effect of call {} of {} is repeated", key.call, key.session));
        }
    }

    pub(crate) fn some_input(&self, session: SessionId, back: usize) -> Option<InputId> {
        let mut of = self.inputs.keys().filter(|(at, _)| *at == session).map(|(_, id)| *id).rev();
        of.nth(back)
    }

    /// Checks that an acknowledged input is durable (J-5).
    pub(crate) fn check_acknowledged(&mut self, session: SessionId, input: InputId) {
        self.acknowledged.insert((session, input));
        let seq = self.inputs.get(&(session, input)).copied();
        if let Some(seq) = seq {
            let (now, last) = (self.now(), self.seen.get(&session).map(|seen| seen.last));
            self.observations.record_acknowledgement(now, session, seq, last);
        } else {
            self.wrong("J-5", format!("input {input} of {session} is acknowledged, but not durable"));
        }
    }

    /// Records that the store is about to fail. From now on no reply may depend on records that are not durable yet (J-9).
    pub(crate) fn begin_store_failure(&mut self) {
        let (now, durable) = (self.now(), self.seen.iter().map(|(session, seen)| (*session, seen.last)).collect());
        self.observations.begin_store_failure(now, durable);
    }

    /// Returns the outcome of a run that has ended or whose outcome is fixed.
    pub(crate) fn decided_outcome(&self, run: RunKey) -> Option<&Outcome> {
        self.over.get(&run).map(|over| &over.outcome)
    }

    pub(crate) fn was_held(&self, run: RunKey) -> bool {
        self.held.contains(&run)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent {
    Turn(TurnNo, AttemptNo),
    /// A tool call, and whether it may be repeated.
    Call(RunNo, CallId, bool),
}

impl Intent {
    fn work(self) -> Work {
        match self {
            Self::Turn(turn, attempt) => Work::Model(turn, attempt),
            Self::Call(_, call, repeatable) => Work::Tool { call, repeatable },
        }
    }
}

/// Returns a record in one line, without long fields.
fn record_line(record: &Record) -> String {
    let full = serde_json::to_string(record).unwrap_or_default();
    let mut end = full.len().min(260);
    while !full.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    full.get(..end).unwrap_or_default().to_owned()
}
