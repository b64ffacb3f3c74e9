//! What can happen next.

use subtend_session::ids::SessionId;
use subtend_session::outcome::Outcome;
use subtend_session::record::Hold;
use subtend_session::state::State;

use super::Whole;
use super::plan::ROOT;
use super::system::{Message, System};
use crate::fault::Around;

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A message arrives; a stream's with what the model says.
    Deliver(Message, Reply),
    /// A person sends an input to the root.
    Send,
    /// A person cancels the run of a session.
    Cancel(SessionId),
    /// A person cancels a run that has ended: nothing may change.
    CancelEnded(SessionId),
    /// A person interrupts the run of a session.
    Interrupt(SessionId),
    /// The working time of a session's run is over.
    Deadline(SessionId),
    /// A session's actor panics: its handler comes to nothing, and what it was about to do stays in its lane.
    Panic(SessionId),
    /// The same, but its last batch was on its way to the log; only with a seeded bug.
    PanicWithBatch(Message, Reply),
    /// The same, but its last batch is in the log, and what it asks of the world was not asked for.
    PanicBeforeEffects(Message, Reply),
    /// The process dies.
    Crash,
    /// The boot looks after a session.
    Boot(SessionId),
}

/// What a model or tool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing to be chosen.
    Plain,
    /// A final answer.
    Final,
    /// One blocking child.
    Blocking,
    /// One background child.
    Background,
    /// One read-only local tool.
    Read,
    /// An error that may pass.
    Failed,
}

impl System {
    pub(super) fn actions(&self, whole: &Whole, actions: &mut Vec<Action>) {
        if self.wrong.is_some() {
            return;
        }
        if self.left.crashes > 0 && !self.pristine() {
            actions.push(Action::Crash);
        }
        if let Some(boot) = &self.boot {
            actions.extend(self.next_to_boot(whole, boot).into_iter().map(Action::Boot));
        }
        for (at, message) in self.flight.iter().enumerate() {
            // Equal messages lead to equal states.
            let first = at == 0 || self.flight.get(at.saturating_sub(1)) != Some(message);
            if first {
                self.deliveries(whole, message, actions);
            }
        }
        if self.boot.is_some() {
            return;
        }
        if self.left.sends > 0 {
            actions.push(Action::Send);
        }
        self.outside(actions);
    }

    /// Nothing has happened yet: what falls here teaches nothing.
    fn pristine(&self) -> bool {
        self.journals.get(&ROOT).is_none_or(|journal| journal.records.len() == 1)
    }

    fn outside(&self, actions: &mut Vec<Action>) {
        if self.left.interrupts > 0 {
            // One that waits for a child has no activation as a rule: it is woken by the interrupt.
            let active = self.active.iter().map(|(session, active)| (session, &active.state));
            let held_or_quiet = |state: &State| state.run.as_ref().is_none_or(|run| run.hold.is_some());
            let in_flight = active.chain(&self.resting).filter(|(_, state)| !held_or_quiet(state));
            actions.extend(in_flight.map(|(session, _)| Action::Interrupt(*session)));
        }
        for (session, active) in &self.active {
            let Some(run) = &active.state.run else {
                if active.state.last.is_some() {
                    actions.push(Action::CancelEnded(*session));
                }
                continue;
            };
            let cancelled = matches!(run.hold, Some(Hold::Closing { outcome: Outcome::Cancelled { .. } }));
            if self.left.cancels > 0 && !cancelled {
                actions.push(Action::Cancel(*session));
            }
            if self.left.deadlines > 0 && run.opened.deadline_ms.is_some() && run.started && run.hold.is_none() {
                actions.push(Action::Deadline(*session));
            }
            if self.left.panics > 0 {
                actions.push(Action::Panic(*session));
            }
        }
    }

    fn deliveries(&self, whole: &Whole, message: &Message, actions: &mut Vec<Action>) {
        let replies: Vec<Reply> = match message {
            Message::Stream { session, dropped, .. } => {
                let mut replies = vec![Reply::Final];
                if dropped.is_none() {
                    let depth =
                        self.journals.get(session).and_then(super::view::place).map_or(0, |place| place.depth());
                    // Also where nothing is left: then the call is refused, which costs the model a turn.
                    if depth <= u32::from(whole.size.depth) && self.left.children > 0 {
                        replies.extend([Reply::Blocking, Reply::Background]);
                    }
                    if self.left.tools > 0 {
                        replies.push(Reply::Read);
                    }
                }
                if dropped.is_some() || self.left.failures > 0 {
                    replies.push(Reply::Failed);
                }
                replies
            }
            Message::Tool { .. }
            | Message::Admit { .. }
            | Message::Granted { .. }
            | Message::Notice { .. }
            | Message::OwnerOver { .. }
            | Message::Restart(_)
            | Message::Append(_) => vec![Reply::Plain],
        };
        for reply in replies {
            if whole.fault.is(Around::EpochNotBumped)
                && self.left.panics > 0
                && matches!(message, Message::Stream { .. } | Message::Granted { .. })
            {
                actions.push(Action::PanicWithBatch(message.clone(), reply));
            }
            if self.left.half_panics > 0 && self.active.contains_key(&message.to()) {
                actions.push(Action::PanicBeforeEffects(message.clone(), reply));
            }
            actions.push(Action::Deliver(message.clone(), reply));
        }
    }
}
