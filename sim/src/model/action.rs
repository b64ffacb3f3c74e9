//! The actions that may happen next in a state of the model.

use subtend_session::call::CallKind;
use subtend_session::command::Deadline;
use subtend_session::ids::{AttemptNo, CallId, RunNo, SessionId, TurnNo};
use subtend_session::index::{Row, RowKind};
use subtend_session::outcome::Outcome;
use subtend_session::place::{BranchKind, Mode};
use subtend_session::record::{Hold, Record};
use subtend_session::state::{Call, CallPhase, Run, State};

use super::SystemModel;
use super::plan::{self, ROOT};
use super::system::{Message, System};
use crate::fault::EnvironmentBug;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A message arrives. The message of a model stream brings the model's answer.
    Deliver(Message, FakeReply),
    /// A person sends an input to the root.
    Send,
    /// A person sends an input to a child.
    SendTo(SessionId),
    /// A person branches off the root, at its first message.
    Branch,
    /// A person regenerates the root's last answer.
    Regenerate,
    /// A person rolls back a run of the root.
    RollBack(RunNo),
    /// The host starts a service session for the root.
    Serve,
    /// The host sends the service its input.
    ServeWith(SessionId),
    /// The host delivers the service's answer to the root. `true` if it did so before.
    Describe(SessionId, bool),
    Close(SessionId),
    /// A call of the run in flight of one session sends a message to a relative.
    Write(SessionId, SessionId),
    Move(SessionId, CallId),
    CancelTree,
    Cancel(SessionId),
    /// A person cancels a run that has ended, which must change nothing.
    CancelEnded(SessionId),
    Interrupt(SessionId),
    Passed(SessionId, Deadline),
    /// A row is delivered a second time.
    Again(Row),
    /// A session's actor panics. Its state is lost, and its commands stay queued.
    Panic(SessionId),
    /// An actor panics before its last batch is in the log. Only with a seeded bug.
    PanicWithBatch(Message, FakeReply),
    /// An actor panics after its last batch is in the log, but before the batch's effects are requested.
    PanicBeforeEffects(Message, FakeReply),
    Crash,
    /// The starting host handles a session.
    Boot(SessionId),
}

/// The answer of a model, tool or person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FakeReply {
    /// The only possible reply.
    Plain,
    Final,
    /// One blocking child.
    Blocking,
    /// One background child.
    Background,
    /// Continue the first child, and wait for it.
    Continue,
    /// Continue the first child, in the background.
    ContinueAside,
    /// Cancel the first child's run.
    Stop,
    /// One read-only local tool.
    Read,
    /// One tool that needs an approval.
    Write,
    Allow,
    /// A person allows the access permanently.
    Always,
    Deny,
    /// A transient error.
    Failed,
    /// The request exceeds the model's context.
    Overflow,
    /// The provider accepts no call before the reset of a limit.
    Limited,
}

impl System {
    pub(super) fn actions(&self, model: &SystemModel, actions: &mut Vec<Action>) {
        if self.wrong.is_some() {
            return;
        }
        if self.remaining.crashes > 0 && !self.is_pristine() {
            actions.push(Action::Crash);
        }
        if let Some(boot) = &self.boot {
            actions.extend(self.next_to_boot(model, boot).into_iter().map(Action::Boot));
        }
        for (at, message) in self.flight.iter().enumerate() {
            // Equal messages lead to equal states, so one is enough.
            let first = at == 0 || self.flight.get(at.saturating_sub(1)) != Some(message);
            if first {
                self.add_deliveries(model, message, actions);
            }
        }
        if self.boot.is_some() {
            return;
        }
        if self.remaining.sends > 0 {
            actions.push(Action::Send);
        }
        if self.remaining.tree_cancels > 0 && !self.is_pristine() {
            actions.push(Action::CancelTree);
        }
        if self.remaining.doubles > 0 {
            let asks = |row: &&Row| matches!(row.kind, RowKind::Continue | RowKind::Cancel);
            actions.extend(self.rows.keys().filter(asks).map(|row| Action::Again(*row)));
        }
        self.add_run_actions(actions);
        self.add_session_actions(actions);
    }

    /// Adds actions of people on sessions, including idle ones.
    fn add_session_actions(&self, actions: &mut Vec<Action>) {
        if self.remaining.resumes > 0 {
            actions.extend(self.journals.keys().filter(|session| **session != ROOT).map(|it| Action::SendTo(*it)));
        }
        if self.remaining.messages > 0 {
            self.add_messages(actions);
        }
        let root = self.known_sessions().find(|(session, _)| *session == ROOT).map(|(_, state)| state);
        if self.remaining.branches > 0 && root.is_some_and(plan::branches) {
            actions.push(Action::Branch);
        }
        let answered = |state: &State| {
            state.run.is_none() && state.last.as_ref().is_some_and(|last| last.outcome == Outcome::Completed)
        };
        if self.remaining.regenerates > 0 && root.is_some_and(answered) {
            actions.push(Action::Regenerate);
        }
        if let Some(root) = root.filter(|root| self.remaining.rollbacks > 0 && root.run.is_none()) {
            // A second delivery changes nothing.
            actions.extend(root.message_ranges.keys().map(|run| Action::RollBack(*run)));
        }
        if let Some(root) = root {
            self.add_service_actions(root, actions);
        }
        if self.remaining.closes == 0 {
            return;
        }
        let closes = |state: &State| state.run.is_none() && state.queue.is_empty() && state.last.is_some();
        actions.extend(
            self.known_sessions().filter(|(_, state)| closes(state)).map(|(session, _)| Action::Close(session)),
        );
    }

    /// Adds messages from runs in flight to every relative, including relatives without a run.
    fn add_messages(&self, actions: &mut Vec<Action>) {
        let parent = |session: &SessionId| self.journals.get(session).and_then(super::journal::place)?.parent();
        for from in self.journals.keys().filter(|from| self.run_in_flight(**from).is_some()) {
            let above = parent(from);
            let related = |to: &&SessionId| {
                let of = parent(to);
                *to != from && (of == Some(*from) || above == Some(**to) || (of.is_some() && of == above))
            };
            actions.extend(self.journals.keys().filter(related).map(|to| Action::Write(*from, *to)));
        }
    }

    fn add_service_actions(&self, root: &State, actions: &mut Vec<Action>) {
        if self.remaining.services > 0 {
            actions.push(Action::Serve);
        }
        let services = root.children.iter().filter(|(_, child)| child.kind == BranchKind::Service);
        for (session, child) in services {
            let Some((_, state)) = self.known_sessions().find(|(known, _)| *known == *session) else { continue };
            if state.last_run == RunNo(0) && state.accepted.is_empty() {
                actions.push(Action::ServeWith(*session));
            }
            // The runtime delivers an answer only after the end of its run is durable.
            let completed =
                |record: &Record| matches!(record, Record::RunEnded(ended) if ended.outcome == Outcome::Completed);
            let answered = self.journals.get(session).is_some_and(|journal| journal.records.iter().any(completed));
            if answered && (!child.described || self.remaining.doubles > 0) {
                actions.push(Action::Describe(*session, child.described));
            }
        }
    }

    /// Returns whether nothing has happened yet, so that a fault would have no effect.
    fn is_pristine(&self) -> bool {
        self.journals.get(&ROOT).is_none_or(|journal| journal.records.len() == 1)
    }

    pub(super) fn known_sessions(&self) -> impl Iterator<Item = (SessionId, &State)> {
        let active = self.active.iter().map(|(session, active)| (*session, &*active.state));
        active.chain(self.resting.iter().map(|(session, state)| (*session, &**state)))
    }

    fn add_run_actions(&self, actions: &mut Vec<Action>) {
        for (session, state) in self.known_sessions() {
            let active = self.active.contains_key(&session);
            let Some(run) = &state.run else {
                if active && state.last.is_some() {
                    actions.push(Action::CancelEnded(session));
                }
                continue;
            };
            if self.remaining.interrupts > 0 && run.hold.is_none() {
                actions.push(Action::Interrupt(session));
            }
            let cancelled = matches!(run.hold, Some(Hold::Closing { outcome: Outcome::Cancelled { .. }, .. }));
            if self.remaining.cancels > 0 && !cancelled {
                actions.push(Action::Cancel(session));
            }
            if self.remaining.deadlines > 0 {
                actions.extend(passable_deadlines(run).into_iter().map(|deadline| Action::Passed(session, deadline)));
            }
            actions.extend(self.reset(session, run).map(|turn| Action::Passed(session, Deadline::Limit(turn))));
            if self.remaining.moves > 0 {
                actions.extend(movable_calls(run).into_iter().map(|call| Action::Move(session, call)));
            }
            if self.remaining.panics > 0 && active {
                actions.push(Action::Panic(session));
            }
        }
    }

    /// Returns the turn whose limit may reset now, because its timer is armed or a reset may be delivered twice.
    fn reset(&self, session: SessionId, run: &Run) -> Option<TurnNo> {
        let turn = run.turn.as_ref()?;
        let due = run.limit_reset_at().is_some() && self.armed.contains(&(session, Deadline::Limit(turn.no)));
        let again = self.remaining.doubles > 0 && turn.streaming && turn.attempt > AttemptNo(1);
        (due || again).then_some(turn.no)
    }

    fn add_deliveries(&self, model: &SystemModel, message: &Message, actions: &mut Vec<Action>) {
        let replies: Vec<FakeReply> = match message {
            Message::Stream { session, dropped, .. } => self.possible_replies(model, *session, dropped.is_some()),
            Message::Ask { .. } if model.size.approvers > 0 => {
                vec![FakeReply::Allow, FakeReply::Always, FakeReply::Deny]
            }
            Message::Notice { .. } | Message::OwnerRow { .. } if self.is_behind(message) => Vec::new(),
            Message::Tool { .. }
            | Message::Admit { .. }
            | Message::Granted { .. }
            | Message::Notice { .. }
            | Message::OwnerRow { .. }
            | Message::TreeCancel { .. }
            | Message::Ask { .. }
            | Message::OwnerEnded { .. }
            | Message::Restart(_)
            | Message::Append(_) => vec![FakeReply::Plain],
        };
        for reply in replies {
            if model.fault.is(EnvironmentBug::EpochNotBumped)
                && self.remaining.panics > 0
                && matches!(message, Message::Stream { .. } | Message::Granted { .. })
            {
                actions.push(Action::PanicWithBatch(message.clone(), reply));
            }
            if self.remaining.half_panics > 0 && self.active.contains_key(&message.to()) {
                actions.push(Action::PanicBeforeEffects(message.clone(), reply));
            }
            actions.push(Action::Deliver(message.clone(), reply));
        }
    }

    /// Returns the possible answers of a model. `dropped` calls may have been answered before they were dropped.
    fn possible_replies(&self, model: &SystemModel, session: SessionId, dropped: bool) -> Vec<FakeReply> {
        let mut replies = vec![FakeReply::Final];
        if !dropped && self.waits_for_summary(session) {
            return vec![FakeReply::Final, FakeReply::Failed];
        }
        if !dropped {
            let depth = self.journals.get(&session).and_then(super::journal::place).map_or(0, |place| place.depth());
            if depth <= u32::from(model.size.depth) && self.remaining.children > 0 {
                replies.extend([FakeReply::Blocking, FakeReply::Background]);
            }
            let parent = self.active.get(&session).is_some_and(|active| plan::first_child(&active.state).is_some());
            if parent && self.remaining.continues > 0 {
                replies.extend([FakeReply::Continue, FakeReply::ContinueAside]);
            }
            if parent && self.remaining.stops > 0 {
                replies.push(FakeReply::Stop);
            }
            if self.remaining.tools > 0 {
                replies.push(FakeReply::Read);
            }
            if self.remaining.asks > 0 {
                replies.push(FakeReply::Write);
            }
        }
        if !dropped && self.remaining.overflows > 0 {
            replies.push(FakeReply::Overflow);
        }
        if dropped || self.remaining.failures > 0 {
            replies.push(FakeReply::Failed);
        }
        if !dropped && self.remaining.limits > 0 {
            replies.push(FakeReply::Limited);
        }
        replies
    }

    /// Returns whether the attempt of `session` waits for a summary.
    pub(super) fn waits_for_summary(&self, session: SessionId) -> bool {
        let turn = self.active.get(&session).and_then(|active| active.state.turn());
        turn.is_some_and(|turn| turn.streaming && turn.compacting.is_some())
    }
}

fn passable_deadlines(run: &Run) -> Vec<Deadline> {
    if run.hold.is_some() {
        return Vec::new();
    }
    if !run.started {
        return if run.opened.slot { vec![Deadline::Queue(run.no)] } else { Vec::new() };
    }
    let mut passing: Vec<Deadline> = run.opened.deadline_ms.map(|_| Deadline::Run(run.no)).into_iter().collect();
    passing.extend(calls_where(run, |call| matches!(call.phase, CallPhase::Asked(_))).map(Deadline::Ask));
    passing
}

fn movable_calls(run: &Run) -> Vec<CallId> {
    let waits = |call: &Call| {
        let kind = matches!(call.kind, Some(CallKind::Child(Mode::Blocking) | CallKind::Continue(Mode::Blocking)));
        kind && call.phase == CallPhase::Started
    };
    if run.hold.is_some() { Vec::new() } else { calls_where(run, waits).collect() }
}

fn calls_where(run: &Run, wanted: impl Fn(&Call) -> bool) -> impl Iterator<Item = CallId> {
    run.turn.iter().flat_map(move |turn| {
        let calls = (0_u32..).zip(&turn.calls).filter(|(_, call)| wanted(call));
        calls.map(|(ix, _)| CallId { turn: turn.no, ix }).collect::<Vec<_>>()
    })
}
