//! Effects that a decision requests from the environment.

use subtend_session::command::Deadline;
use subtend_session::effect::Effect;
use subtend_session::ids::{AttemptNo, CallId, RunKey, RunNo, SessionId, TurnNo};
use subtend_session::index::{RowKey, RowKind};
use subtend_session::record::Notice;
use subtend_session::state::{CallPhase, State};

use super::system::{Dropped, Message, Slots, System};
use super::{SystemModel, journal};
use crate::fault::EnvironmentBug;

impl System {
    pub(super) fn perform(&mut self, model: &SystemModel, session: SessionId, effects: Vec<Effect>) {
        if self.discards_effects {
            return;
        }
        for effect in effects {
            match effect {
                Effect::RequestSlot { run, resumed } => self.request(model, RunKey { session, run }, resumed),
                Effect::ReleaseSlot { run } => self.release(model, RunKey { session, run }),
                // The attempt waits for its summary in the same way as for an answer.
                Effect::CallModel { turn, attempt, .. } | Effect::Compact { turn, attempt } => {
                    self.call_model(model, session, turn, attempt)
                }
                Effect::RunTool { call } => self.run_tool(model, session, call),
                Effect::StopTool { call } => self.stop_tool(session, call),
                Effect::Admit { turn, calls } => self.send(Message::Admit { session, turn, calls }),
                Effect::StartChild { child } => self.request(model, RunKey { session: child, run: RunNo(1) }, false),
                Effect::DeliverCompletion { to, notice } => self.notify(to, &notice),
                Effect::CancelLocal => self.drop_work(session, Dropped::ByRun),
                Effect::CancelOwned { run, outcome, keeps_queue } => {
                    self.cancel_owned(RunKey { session, run }, outcome, keeps_queue);
                }
                Effect::CancelChild { run, child, key, by } => {
                    self.cancel_child(RunKey { session, run }, child, key, &by);
                }
                Effect::AskToContinue { child, ask } => {
                    self.send(Message::OwnerRow { to: child, from: session, kind: RowKind::Continue, key: ask.key });
                }
                Effect::AskPerson { call } => self.ask_person(session, call),
                Effect::Ended { run, .. } => self.run_ended(model, RunKey { session, run }),
                Effect::Unload => self.unload(session),
                // In the model a deadline may pass at any time. S-6 still checks that it is armed.
                Effect::Arm { deadline, .. } => _ = self.armed.insert((session, deadline)),
                Effect::Disarm { deadline } => _ = self.armed.remove(&(session, deadline)),
            }
        }
    }

    pub(super) fn request(&mut self, model: &SystemModel, key: RunKey, resumed: bool) {
        if !resumed {
            self.armed.insert((key.session, Deadline::Queue(key.run)));
        }
        self.pool(model, key).ask(key, resumed);
        self.grant(model);
    }

    pub(super) fn release(&mut self, model: &SystemModel, key: RunKey) {
        let twice = model.fault.is(EnvironmentBug::SlotFreedTwice);
        self.pool(model, key).release(key, twice);
        // A grant for the released slot is dropped.
        self.flight.retain(|message| *message != Message::Granted { to: key });
        self.grant(model);
    }

    fn pool(&mut self, model: &SystemModel, key: RunKey) -> &mut Slots {
        let persons = self.journals.get(&key.session).is_some_and(|journal| journal::is_persons(journal, key.run));
        let persons = persons && !model.fault.is(EnvironmentBug::OnePool);
        if persons { &mut self.slots.persons } else { &mut self.slots.owned }
    }

    fn grant(&mut self, model: &SystemModel) {
        while let Some(to) = self.slots.owned.next(u32::from(model.size.slots)) {
            self.send(Message::Granted { to });
        }
        while let Some(to) = self.slots.persons.next(u32::from(model.size.person_slots)) {
            self.send(Message::Granted { to });
        }
    }

    /// Sends an ask to the approvers, once.
    fn ask_person(&mut self, session: SessionId, call: CallId) {
        let is_asked = |state: &State| matches!(state.call(call).map(|call| &call.phase), Some(CallPhase::Asked(_)));
        let message = Message::Ask { session, call };
        if self.active.get(&session).is_some_and(|active| is_asked(&active.state)) && !self.flight.contains(&message) {
            self.send(message);
        }
    }

    fn call_model(&mut self, model: &SystemModel, session: SessionId, turn: TurnNo, attempt: AttemptNo) {
        let due = self.active.get(&session).and_then(|active| active.state.turn());
        // A later command of the batch may have ended work that an earlier command started.
        if !due.is_some_and(|due| due.streaming && (due.no, due.attempt) == (turn, attempt)) {
            return;
        }
        let Some((epoch, dropped)) = self.activation_for_work(model, session) else { return };
        self.send(Message::Stream { session, epoch, turn, attempt, dropped });
    }

    fn run_tool(&mut self, model: &SystemModel, session: SessionId, call: CallId) {
        if !self.active.get(&session).is_some_and(|active| active.state.is_open(call)) {
            return;
        }
        let Some((epoch, dropped)) = self.activation_for_work(model, session) else { return };
        self.send(Message::Tool { session, epoch, call, dropped });
    }

    /// Returns the activation that starts the work, and why it is dropped first, if the token of its run has fired.
    fn activation_for_work(
        &mut self,
        model: &SystemModel,
        session: SessionId,
    ) -> Option<(subtend_session::ids::Epoch, Option<Dropped>)> {
        let active = self.active.get(&session)?;
        let epoch = active.epoch;
        let fired =
            active.state.run.as_ref().map(|run| RunKey { session, run: run.no }).filter(|key| self.fired.contains(key));
        match fired {
            Some(key) if model.fault.is(EnvironmentBug::TokenIgnored) => {
                self.late.insert(key);
                Some((epoch, None))
            }
            Some(_) => Some((epoch, Some(Dropped::ByToken))),
            None => Some((epoch, None)),
        }
    }

    fn stop_tool(&mut self, session: SessionId, call: CallId) {
        self.flight.retain(
            |message| !matches!(message, Message::Tool { session: of, call: at, .. } if *of == session && *at == call),
        );
    }

    fn notify(&mut self, to: SessionId, notice: &Notice) {
        // The start of the process has not handled this owner yet. It will deliver the owner's rows.
        if self.boot.as_ref().is_some_and(|boot| boot.awaits(to)) {
            return;
        }
        let key = match (notice.key, notice.run) {
            (Some(call), _) => RowKey::Call(call),
            (None, Some(run)) => RowKey::Run(run),
            (None, None) => return,
        };
        self.send(Message::Notice { to, from: notice.child, key });
    }

    /// Marks the running work of `session` as stopped. Each call still answers.
    pub(super) fn drop_work(&mut self, session: SessionId, why: Dropped) {
        for message in &mut self.flight {
            if let Message::Stream { session: of, dropped, .. } | Message::Tool { session: of, dropped, .. } = message
                && *of == session
            {
                *dropped = dropped.or(Some(why));
            }
        }
        self.flight.sort();
    }

    fn run_ended(&mut self, model: &SystemModel, key: RunKey) {
        self.flight.retain(|message| match message {
            // The runtime drops the run's work. Results that are already in the inbox stay there, and are stale.
            Message::Stream { session, dropped, .. } | Message::Tool { session, dropped, .. } => {
                *session != key.session || dropped.is_none()
            }
            Message::Ask { session, .. } => *session != key.session,
            Message::Admit { .. }
            | Message::Granted { .. }
            | Message::Notice { .. }
            | Message::OwnerRow { .. }
            | Message::TreeCancel { .. }
            | Message::OwnerEnded { .. }
            | Message::Restart(_)
            | Message::Append(_) => true,
        });
        self.closing.remove(&key);
        self.single.remove(&key);
        self.fired.remove(&key);
        self.armed.retain(|(session, _)| *session != key.session);
        let pool = self.pool(model, key);
        if pool.holders.contains(&key) || pool.queue.iter().any(|(_, queued)| *queued == key) {
            self.release(model, key);
        }
    }

    /// Unloads the session, unless a message to it is in flight.
    fn unload(&mut self, session: SessionId) {
        // An open ask waits at its approver, and is not in the session's inbox.
        let in_inbox = |message: &Message| message.to() == session && !matches!(message, Message::Ask { .. });
        let addressed = self.addressed == Some(session) || self.flight.iter().any(in_inbox);
        if !addressed && let Some(active) = self.active.remove(&session) {
            self.resting.insert(session, active.state);
        }
    }
}

impl Message {
    pub(super) fn to(&self) -> SessionId {
        match self {
            Self::Stream { session, .. }
            | Self::Tool { session, .. }
            | Self::Admit { session, .. }
            | Self::Ask { session, .. } => *session,
            Self::Granted { to } | Self::OwnerEnded { to, .. } | Self::TreeCancel { to } => to.session,
            Self::Notice { to, .. } | Self::OwnerRow { to, .. } | Self::Restart(to) => *to,
            Self::Append(batch) => batch.session,
        }
    }
}
