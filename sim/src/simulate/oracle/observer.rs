//! Observations of events within the runtime: tokens, inboxes, controls, approvals and states.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use subtend_actors::faults::InternalEvent;
use subtend_invariants::When;
use subtend_invariants::observed::{
    Activated, ActivationCause, Approver, Listing, ObservedAsk, ObservedControl, ObservedQueue, QueueAnswer, Restart,
    Stop,
};
use subtend_session::ids::{CallId, Epoch, InputId, RunKey, RunNo, Seq, SessionId};
use subtend_session::state::State;

use crate::simulate::oracle::OracleState;

/// One in this many batches reports the session's state. Each report is a full copy, so not every batch does.
const BATCHES_PER_REPORT: u64 = 8;

/// Incomplete observations of the current process.
#[derive(Default)]
pub(crate) struct PendingObservations {
    fired: Vec<(RunKey, When)>,
    /// Queued controls of each session, in order.
    controls: BTreeMap<SessionId, Vec<PendingControl>>,
    /// The position of each accepted input in the list of queue insertions.
    puts: BTreeMap<(SessionId, InputId), usize>,
    asks: BTreeMap<(SessionId, CallId), When>,
    /// Asks that were open when an event occurred that excuses a delay.
    excused: BTreeSet<(SessionId, CallId)>,
    /// Sessions whose actor died. Their asks are not observed: an ask reported after the restart may be older.
    died: BTreeSet<SessionId>,
    batches: u64,
    live: BTreeMap<SessionId, State>,
    /// Runs in flight that the tree of their root omitted.
    unlisted: BTreeSet<RunKey>,
    /// Runs in flight that no cancel by session id reached.
    unreached: BTreeSet<RunKey>,
    /// Roots whose sessions were cancelled one by one.
    cancelled_roots: BTreeSet<SessionId>,
}

struct PendingControl {
    command: &'static str,
    given: When,
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancels {
    Session,
    Run(RunNo),
    Tree,
    /// The cancel of a tree by its deletion. It also ends runs that were opened after the request.
    Deletion,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CancelAsked {
    pub(crate) session: SessionId,
    pub(crate) what: Cancels,
    pub(crate) at: Duration,
}

impl PendingObservations {
    /// Returns the reported state of a session's actor after its first `records`, if it was reported.
    pub(crate) fn live(&self, session: SessionId, records: usize) -> Option<&State> {
        let live = self.live.get(&session)?;
        (usize::try_from(live.next_seq.0) == Ok(records.saturating_add(1))).then_some(live)
    }

    pub(crate) fn open_asks(&self) -> Vec<ObservedAsk> {
        let open = |(&(session, call), &opened): (&(SessionId, CallId), &When)| ObservedAsk {
            session,
            call,
            opened,
            answered: None,
        };
        self.asks.iter().map(open).collect()
    }

    /// Marks the open asks of these sessions as excused, because the current event may delay their answers.
    fn excuse(&mut self, of: impl Fn(SessionId) -> bool) {
        let open = self.asks.keys().filter(|(session, _)| of(*session));
        self.excused.extend(open.copied().collect::<Vec<_>>());
        self.asks.retain(|(session, _), _| !of(*session));
    }
}

impl OracleState {
    pub(crate) fn observe(&mut self, event: InternalEvent<'_>) {
        let now = self.now();
        let at = self.observations.tick(now);
        match event {
            InternalEvent::Fired(run) => self.observer.fired.push((run, at)),
            InternalEvent::Put { session, input, len, bound, taken } => {
                let queues = &mut self.observations.all_mut().queues;
                if taken {
                    self.observer.puts.insert((session, input), queues.len());
                }
                let answer = if taken { QueueAnswer::Taken(None) } else { QueueAnswer::Busy };
                let (len, bound) = (len as u64, bound as u64);
                queues.push(ObservedQueue { session, queue: "inbox".into(), at, len, bound, answer });
            }
            InternalEvent::Control { session, command } => {
                let pending = PendingControl { command, given: at, rounds: 0 };
                self.observer.controls.entry(session).or_default().push(pending);
            }
            InternalEvent::Round(session) => {
                let pending = self.observer.controls.get_mut(&session).into_iter().flatten();
                pending.for_each(|pending| pending.rounds = pending.rounds.saturating_add(1));
            }
            InternalEvent::Handles { session, command } => self.handles(session, command, at),
            // A test of `actors` checks these events.
            InternalEvent::Parsed(_) => {}
            InternalEvent::Died(session) => {
                self.observer.died.insert(session);
                self.observer.controls.remove(&session);
                self.observer.live.remove(&session);
                self.excuse_all(|other| other == session);
            }
            InternalEvent::GivesUp(run) => {
                let restart = Restart { session: run.session, at, supervisor: 0, admitted: false, run: Some(run.run) };
                self.observations.all_mut().restarts.push(restart);
            }
            InternalEvent::Activated(session) => {
                // The cause and the last record are unknown here. The predicates use them only for effects with this epoch.
                let (epoch, why, last) = (Epoch(u32::MAX), ActivationCause::Message, Seq(0));
                self.observations.all_mut().activations.push(Activated { session, epoch, at, why, last });
            }
            InternalEvent::Asked { session, call } => {
                if !self.observer.excused.contains(&(session, call)) && !self.observer.died.contains(&session) {
                    self.observer.asks.entry((session, call)).or_insert(at);
                }
            }
            InternalEvent::Answered { session, call, by } => {
                self.tally.mark(&format!("ask answered by {by:?}"));
                if let Some(opened) = self.observer.asks.remove(&(session, call)) {
                    self.observations.all_mut().asks.push(ObservedAsk {
                        session,
                        call,
                        opened,
                        answered: Some((at, by)),
                    });
                }
            }
            InternalEvent::Stopped { session, run } => {
                self.observations.all_mut().stops.push(Stop { session, at, killed: false, run });
            }
            InternalEvent::Committed(state) => {
                self.observer.batches = self.observer.batches.wrapping_add(1);
                if self.observer.batches.is_multiple_of(BATCHES_PER_REPORT) {
                    self.observer.live.insert(state.id, state.clone());
                }
            }
        }
    }

    fn handles(&mut self, session: SessionId, command: &'static str, at: When) {
        let Some(pending) = self.observer.controls.get_mut(&session) else { return };
        if let Some(first) = pending.iter().position(|pending| pending.command == command) {
            let PendingControl { given, rounds, .. } = pending.remove(first);
            // Does not count the round that handles the command itself.
            let seen = ObservedControl { session, given, handled: at, waited_for: rounds.saturating_sub(1) };
            self.observations.all_mut().controls.push(seen);
        }
    }

    /// Marks all pending answers and ends of these sessions as excused, because the current event delays them.
    pub(crate) fn excuse_all(&mut self, of: impl Fn(SessionId) -> bool) {
        self.observer.excuse(of);
        let ended: BTreeSet<RunKey> = self.ends.keys().copied().collect();
        self.observations.all_mut().cancelled.retain(|run, _| ended.contains(run));
    }

    /// Forgets the pending observations of a process that was killed.
    pub(crate) fn forget_observed(&mut self) {
        self.excuse_all(|_| true);
        let ended: BTreeSet<RunKey> = self.ends.keys().copied().collect();
        let has_ended =
            |restart: &Restart| restart.run.is_none_or(|run| ended.contains(&RunKey { session: restart.session, run }));
        self.observations.all_mut().restarts.retain(has_ended);
        let now = self.now();
        let ended_at = self.observations.tick(now);
        for approver in self.observations.all_mut().approvers.iter_mut().flatten() {
            approver.until.get_or_insert(ended_at);
        }
        let excused = std::mem::take(&mut self.observer.excused);
        self.observer = PendingObservations { excused, ..PendingObservations::default() };
    }

    /// Records that an approver is attached from now on.
    pub(crate) fn record_approver(&mut self) {
        let now = self.now();
        let from = self.observations.tick(now);
        self.observations.all_mut().approvers.get_or_insert_default().push(Approver { from, until: None });
    }

    pub(crate) fn record_receipt(&mut self, session: SessionId, input: InputId) {
        let put = self.observer.puts.get(&(session, input)).copied();
        if let Some(put) = put.and_then(|at| self.observations.all_mut().queues.get_mut(at)) {
            put.answer = QueueAnswer::Taken(Some(input));
        }
    }

    /// Compares the sessions `listed` by a tree with the runs `alive` that were in flight before the request (T-9).
    pub(crate) fn compare_tree(&mut self, alive: &BTreeSet<RunKey>, listed: &BTreeSet<SessionId>) {
        self.observer.unlisted.extend(alive.iter().filter(|run| !listed.contains(&run.session)));
    }

    /// Compares the sessions `lost` that no cancel by id reached with the runs `alive` that were in flight before (T-9).
    pub(crate) fn compare_cancels(&mut self, root: SessionId, alive: &BTreeSet<RunKey>, lost: &BTreeSet<SessionId>) {
        self.observer.cancelled_roots.insert(root);
        self.observer.unreached.extend(alive.iter().filter(|run| lost.contains(&run.session)));
    }

    /// Returns whether a run in flight was not listed or not reached.
    pub(crate) fn has_missed(&self) -> bool {
        let missed = self.observer.unlisted.iter().chain(&self.observer.unreached);
        missed.into_iter().any(|run| self.archive.is_in_flight(*run))
    }

    /// Returns the sessions of `below` that the tree of `root` lists, and those that a cancel by id reaches.
    pub(crate) fn listing(&self, root: SessionId, below: BTreeSet<SessionId>) -> Listing {
        let without = |missed: &BTreeSet<RunKey>| {
            let missed = missed.iter().filter(|run| self.archive.is_in_flight(**run)).map(|run| run.session);
            let missed: BTreeSet<SessionId> = missed.collect();
            below.difference(&missed).copied().collect()
        };
        let reached = self.observer.cancelled_roots.contains(&root).then(|| without(&self.observer.unreached));
        Listing { root, listed: without(&self.observer.unlisted), reached }
    }

    /// Records an input that was refused because of a shutdown.
    pub(crate) fn record_refusal(&mut self, session: SessionId) {
        let now = self.now();
        let at = self.observations.tick(now);
        let (queue, answer) = ("inbox".into(), QueueAnswer::Stopped);
        self.observations.all_mut().queues.push(ObservedQueue { session, queue, at, len: 0, bound: 0, answer });
    }

    /// Records a cancel that was answered as done, unless a fault excuses a delay.
    pub(crate) fn record_cancel(&mut self, run: RunKey) {
        let now = self.now();
        if self.is_undisturbed_since(now) {
            let at = self.observations.tick(now);
            self.observations.all_mut().cancelled.entry(run).or_insert(at);
        }
    }

    /// Returns for each run with effects the time when a token that covers it first fired: its own or that of an owner.
    pub(crate) fn fired_tokens(&self) -> BTreeMap<RunKey, When> {
        let first = |run: RunKey| self.observer.fired.iter().filter(move |(of, _)| *of == run).map(|(_, at)| *at);
        let runs: BTreeSet<RunKey> = self.observations.all().effects.iter().map(|effect| effect.run).collect();
        let of = |run: RunKey| self.owners_of(run).flat_map(first).min().map(|at| (run, at));
        runs.into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use subtend_session::outcome::{Initiator, Outcome};
    use uuid::Uuid;

    use super::*;
    use crate::simulate::oracle::ClosedRun;
    use crate::simulate::oracle::archive::Archive;

    fn session(no: u128) -> SessionId {
        SessionId(Uuid::from_u128(no))
    }

    fn waited_for(rounds: u32) -> u32 {
        let (mut state, session) = (OracleState::default(), session(1));
        state.observe(InternalEvent::Control { session, command: "cancel" });
        (0..rounds).for_each(|_| state.observe(InternalEvent::Round(session)));
        state.observe(InternalEvent::Handles { session, command: "cancel" });
        state.observations.all().controls[0].waited_for
    }

    #[test]
    fn control_waits_for_earlier_rounds() {
        assert_eq!([1, 2, 3].map(waited_for), [0, 1, 2], "the last wait must violate B-2");
    }

    #[test]
    fn cancel_counts_only_for_requests_before_its_close() {
        let run = RunKey { session: session(1), run: RunNo(1) };
        let closed = ClosedRun { at: Duration::from_secs(10), outcome: Outcome::Cancelled { by: Initiator::Person } };
        let closed = BTreeMap::from([(run, closed)]);
        let counts = |session, what, secs| {
            let request = CancelAsked { session, what, at: Duration::from_secs(secs) };
            !Archive::default().cancelled(&[request], &closed).is_empty()
        };
        assert!(counts(run.session, Cancels::Session, 5) && counts(run.session, Cancels::Tree, 10));
        assert!(counts(run.session, Cancels::Run(RunNo(1)), 5));
        assert!(!counts(run.session, Cancels::Session, 11), "a cancel after the close must not count");
        assert!(!counts(run.session, Cancels::Run(RunNo(2)), 5), "another run");
        assert!(!counts(session(2), Cancels::Tree, 5), "another tree");
    }

    #[test]
    fn receipt_names_the_input_of_its_queue_entry() {
        let (mut state, session, input) = (OracleState::default(), session(1), InputId(Uuid::from_u128(9)));
        state.observe(InternalEvent::Put { session, input, len: 0, bound: 2, taken: true });
        assert_eq!(state.observations.all().queues[0].answer, QueueAnswer::Taken(None));
        state.record_receipt(session, input);
        assert_eq!(state.observations.all().queues[0].answer, QueueAnswer::Taken(Some(input)));
    }

    #[test]
    fn token_of_an_owner_covers_its_children() {
        let (mut state, run) = (OracleState::default(), RunKey { session: session(1), run: RunNo(1) });
        let work = subtend_invariants::observed::Work::Held("x".into());
        state.observations.begin_effect(Duration::ZERO, run, work, None);
        state.observe(InternalEvent::Fired(RunKey { session: session(2), run: RunNo(1) }));
        assert!(state.fired_tokens().is_empty(), "a token of another tree must not fire");
        state.observe(InternalEvent::Fired(run));
        assert_eq!(state.fired_tokens().keys().collect::<Vec<_>>(), [&run]);
    }
}
