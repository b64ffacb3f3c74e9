use subtend_session::command::Command;
use subtend_session::effect::Reply as Answered;
use subtend_session::ids::{Epoch, RunKey, SessionId};
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::state::State;

use super::action::Action;
use super::plan::{self, ROOT};
use super::step::{Decided, SessionCommand};
use super::system::{Batch, Message, System};
use super::{SystemModel, journal};
use crate::fault::EnvironmentBug;

impl System {
    pub(super) fn step_by_person(&mut self, model: &SystemModel, action: &Action) -> bool {
        match action {
            Action::Send => {
                let input = Box::new(plan::input(model, self.remaining.sends));
                self.remaining.sends = self.remaining.sends.saturating_sub(1);
                self.send_commands(model, ROOT, vec![Command::Submit(input)])
            }
            Action::SendTo(session) => {
                let input = Box::new(plan::input_to_child(self.remaining.resumes));
                self.remaining.resumes = self.remaining.resumes.saturating_sub(1);
                self.send_commands(model, *session, vec![Command::Submit(input)])
            }
            Action::Branch => {
                let Some(plan) = self.state_of(ROOT).map(|state| plan::branch(model, state, self.remaining.branches))
                else {
                    return false;
                };
                self.remaining.branches = self.remaining.branches.saturating_sub(1);
                self.send_commands(model, ROOT, vec![Command::Branch(Box::new(plan))])
            }
            Action::Regenerate => {
                let plan = Box::new(plan::regenerate(model, self.remaining.regenerates));
                self.remaining.regenerates = self.remaining.regenerates.saturating_sub(1);
                self.send_commands(model, ROOT, vec![Command::Regenerate(plan)])
            }
            Action::RollBack(run) => {
                self.remaining.rollbacks = self.remaining.rollbacks.saturating_sub(1);
                self.send_commands(model, ROOT, vec![Command::RollBack { run: Some(*run), by: Initiator::Person }])
            }
            Action::Serve => {
                let plan = plan::service(model, self.remaining.services);
                self.remaining.services = self.remaining.services.saturating_sub(1);
                self.send_commands(model, ROOT, vec![Command::Branch(Box::new(plan))])
            }
            Action::ServeWith(session) => {
                let input = Box::new(plan::input_to_service(*session));
                self.send_commands(model, *session, vec![Command::Submit(input)])
            }
            Action::Describe(session, again) => {
                self.remaining.doubles = self.remaining.doubles.saturating_sub(u8::from(*again));
                let titled = self.state_of(ROOT).is_some_and(State::is_titled);
                let description = plan::description(*session, titled);
                // A repeated description changes nothing, but is answered.
                self.send_commands(model, ROOT, vec![Command::Describe(Box::new(description))])
            }
            Action::Close(session) => {
                self.remaining.closes = self.remaining.closes.saturating_sub(1);
                self.send_commands(model, *session, vec![Command::Close { by: Initiator::Person }])
            }
            Action::Write(from, to) => {
                let Some(run) = self.run_in_flight(*from) else { return false };
                let input = plan::message(RunKey { session: *from, run }, self.remaining.messages);
                self.remaining.messages = self.remaining.messages.saturating_sub(1);
                self.send_commands(model, *to, vec![Command::Submit(Box::new(input))]);
                true
            }
            Action::Move(session, call) => {
                self.remaining.moves = self.remaining.moves.saturating_sub(1);
                self.send_commands(model, *session, vec![Command::Background { call: *call }])
            }
            Action::CancelTree => {
                self.remaining.tree_cancels = self.remaining.tree_cancels.saturating_sub(1);
                for to in self.unowned_runs() {
                    self.send(Message::TreeCancel { to });
                }
                true
            }
            Action::Cancel(session) => self.cancel(model, *session),
            Action::CancelEnded(session) => self.cancel_ended_run(model, *session),
            Action::Interrupt(session) => self.interrupt(model, *session),
            Action::Deliver(..)
            | Action::Passed(..)
            | Action::Again(_)
            | Action::Panic(_)
            | Action::PanicWithBatch(..)
            | Action::PanicBeforeEffects(..)
            | Action::Crash
            | Action::Boot(_) => false,
        }
    }

    fn state_of(&self, session: SessionId) -> Option<&State> {
        let active = self.active.get(&session).map(|active| &*active.state);
        active.or_else(|| self.resting.get(&session).map(|state| &**state))
    }

    /// Returns the runs in flight of the tree that have no owner.
    fn unowned_runs(&self) -> Vec<RunKey> {
        let tops = self.journals.iter().filter_map(|(session, journal)| {
            let (opened, ended) = journal::last_run(journal)?;
            let top = !ended && journal::owner_of(opened).is_none();
            top.then_some(RunKey { session: *session, run: opened.run })
        });
        tops.collect()
    }

    pub(super) fn cancel_tree(&mut self, model: &SystemModel, to: RunKey) -> bool {
        let closed = self.decided_outcome(to).is_some();
        if !closed {
            self.cancelled.insert(to);
        }
        let command = Command::Cancel { run: Some(to.run), by: Initiator::Person, keeps_queue: true };
        self.send_commands(model, to.session, vec![command]);
        self.check_control_answer(to, true);
        true
    }

    fn cancel(&mut self, model: &SystemModel, session: SessionId) -> bool {
        self.remaining.cancels = self.remaining.cancels.saturating_sub(1);
        let Some(run) = self.run_in_flight(session) else { return false };
        let key = RunKey { session, run };
        self.cancelled.insert(key);
        let command = Command::Cancel { run: Some(run), by: Initiator::Person, keeps_queue: false };
        if !model.fault.is(EnvironmentBug::CancelNotDurable) {
            self.send_commands(model, session, vec![command]);
            self.check_control_answer(key, true);
            return true;
        }
        let Some(decided) = self.decide(model.fault.rules(), session, vec![SessionCommand::Command(command)]) else {
            return false;
        };
        let epoch = self.active.get(&session).map_or(Epoch(0), |active| active.epoch);
        let Decided { records, new_sessions, effects, changes, .. } = decided;
        self.send(Message::Append(Box::new(Batch { session, epoch, records, changes })));
        self.create_children(session, &new_sessions);
        self.perform(model, session, effects);
        true
    }

    fn cancel_ended_run(&mut self, model: &SystemModel, session: SessionId) -> bool {
        let Some(run) = self.active.get(&session).map(|active| active.state.last_run) else { return false };
        let command = Command::Cancel { run: Some(run), by: Initiator::Person, keeps_queue: false };
        self.send_commands(model, session, vec![command]);
        self.check_control_answer(RunKey { session, run }, false);
        true
    }

    fn interrupt(&mut self, model: &SystemModel, session: SessionId) -> bool {
        self.remaining.interrupts = self.remaining.interrupts.saturating_sub(1);
        let run = self.journals.get(&session).and_then(journal::last_run).map(|(opened, _)| opened.run);
        let Some(run) = run else { return false };
        let key = RunKey { session, run };
        self.interrupts.insert(key);
        self.send_commands(model, session, vec![Command::Interrupt { by: Initiator::Person }]);
        self.check_control_answer(key, true);
        true
    }

    fn decided_outcome(&self, key: RunKey) -> Option<&Outcome> {
        journal::decided_outcome(self.journals.get(&key.session)?, key.run)
    }

    /// Checks S-2 and S-3: the reply to a control is `Done` or the decided outcome.
    fn check_control_answer(&mut self, key: RunKey, may_be_done: bool) {
        let right = match (&self.answered, self.decided_outcome(key)) {
            (Answered::Done(run), _) => may_be_done && *run == key.run,
            (Answered::AlreadyEnded(run, outcome), Some(fixed)) => *run == key && outcome == fixed,
            (
                Answered::None
                | Answered::Accepted { .. }
                | Answered::AlreadyEnded(..)
                | Answered::Branched { .. }
                | Answered::Switched { .. }
                | Answered::NotFound,
                _,
            ) => false,
        };
        if !right && self.wrong.is_none() {
            self.wrong = Some(format!("a control of {key:?} was answered {:?}", self.answered));
        }
    }
}
