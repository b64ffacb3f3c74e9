//! Persons: inputs, controls, and their answers.

use subtend_session::command::Command;
use subtend_session::effect::Reply as Answered;
use subtend_session::ids::{Epoch, RunKey, SessionId};
use subtend_session::outcome::{By, Outcome};
use subtend_session::state::State;

use super::action::Action;
use super::plan::{self, ROOT};
use super::step::{Decided, SessionCommand};
use super::system::{Batch, Message, System};
use super::{Whole, journal};
use crate::fault::Around;

impl System {
    pub(super) fn by_person(&mut self, whole: &Whole, action: &Action) -> bool {
        match action {
            Action::Send => {
                let input = Box::new(plan::input(whole, self.left.sends));
                self.left.sends = self.left.sends.saturating_sub(1);
                self.tell(whole, ROOT, vec![Command::Submit(input)])
            }
            Action::SendTo(session) => {
                let input = Box::new(plan::input_to_child(self.left.resumes));
                self.left.resumes = self.left.resumes.saturating_sub(1);
                self.tell(whole, *session, vec![Command::Submit(input)])
            }
            Action::Branch => {
                let Some(plan) = self.state_of(ROOT).map(|state| plan::branch(whole, state, self.left.branches)) else {
                    return false;
                };
                self.left.branches = self.left.branches.saturating_sub(1);
                self.tell(whole, ROOT, vec![Command::Branch(Box::new(plan))])
            }
            Action::Regenerate => {
                let plan = Box::new(plan::regenerate(whole, self.left.regenerates));
                self.left.regenerates = self.left.regenerates.saturating_sub(1);
                self.tell(whole, ROOT, vec![Command::Regenerate(plan)])
            }
            Action::RollBack(run) => {
                self.left.rollbacks = self.left.rollbacks.saturating_sub(1);
                self.tell(whole, ROOT, vec![Command::RollBack { run: Some(*run), by: By::Person }])
            }
            Action::Serve => {
                let plan = plan::service(whole, self.left.services);
                self.left.services = self.left.services.saturating_sub(1);
                self.tell(whole, ROOT, vec![Command::Branch(Box::new(plan))])
            }
            Action::ServeWith(session) => {
                let input = Box::new(plan::input_to_service(*session));
                self.tell(whole, *session, vec![Command::Submit(input)])
            }
            Action::Describe(session, again) => {
                self.left.doubles = self.left.doubles.saturating_sub(u8::from(*again));
                let titled = self.state_of(ROOT).is_some_and(State::is_titled);
                let description = plan::description(*session, titled);
                // A repeated description changes nothing, and is answered so.
                self.tell(whole, ROOT, vec![Command::Describe(Box::new(description))])
            }
            Action::Close(session) => {
                self.left.closes = self.left.closes.saturating_sub(1);
                self.tell(whole, *session, vec![Command::Close { by: By::Person }])
            }
            Action::Write(from, to) => {
                let Some(run) = self.run_in_flight(*from) else { return false };
                let input = plan::message(RunKey { session: *from, run }, self.left.messages);
                self.left.messages = self.left.messages.saturating_sub(1);
                self.tell(whole, *to, vec![Command::Submit(Box::new(input))]);
                true
            }
            Action::Move(session, call) => {
                self.left.moves = self.left.moves.saturating_sub(1);
                self.tell(whole, *session, vec![Command::Background { call: *call }])
            }
            Action::CancelTree => {
                self.left.tree_cancels = self.left.tree_cancels.saturating_sub(1);
                for to in self.tops() {
                    self.send(Message::TreeCancel { to });
                }
                true
            }
            Action::Cancel(session) => self.cancel(whole, *session),
            Action::CancelEnded(session) => self.cancel_ended(whole, *session),
            Action::Interrupt(session) => self.interrupt(whole, *session),
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

    /// Runs in flight of the tree without an owner.
    fn tops(&self) -> Vec<RunKey> {
        let tops = self.journals.iter().filter_map(|(session, journal)| {
            let (opened, ended) = journal::last_run(journal)?;
            let top = !ended && journal::owner_of(opened).is_none();
            top.then_some(RunKey { session: *session, run: opened.run })
        });
        tops.collect()
    }

    pub(super) fn tree_cancel(&mut self, whole: &Whole, to: RunKey) -> bool {
        let closed = self.fixed(to).is_some();
        if !closed {
            self.cancelled.insert(to);
        }
        let command = Command::Cancel { run: Some(to.run), by: By::Person, queue_stands: true };
        self.tell(whole, to.session, vec![command]);
        self.is_told(to, true);
        true
    }

    fn cancel(&mut self, whole: &Whole, session: SessionId) -> bool {
        self.left.cancels = self.left.cancels.saturating_sub(1);
        let Some(run) = self.run_in_flight(session) else { return false };
        let key = RunKey { session, run };
        self.cancelled.insert(key);
        let command = Command::Cancel { run: Some(run), by: By::Person, queue_stands: false };
        if !whole.fault.is(Around::CancelNotDurable) {
            self.tell(whole, session, vec![command]);
            self.is_told(key, true);
            return true;
        }
        let Some(decided) = self.decide(whole.fault.rules(), session, vec![SessionCommand::Command(command)]) else {
            return false;
        };
        let epoch = self.active.get(&session).map_or(Epoch(0), |active| active.epoch);
        let Decided { records, new_sessions, effects, changes, .. } = decided;
        self.send(Message::Append(Box::new(Batch { session, epoch, records, changes })));
        self.be_born_all(session, &new_sessions);
        self.perform(whole, session, effects);
        true
    }

    fn cancel_ended(&mut self, whole: &Whole, session: SessionId) -> bool {
        let Some(run) = self.active.get(&session).map(|active| active.state.last_run) else { return false };
        let command = Command::Cancel { run: Some(run), by: By::Person, queue_stands: false };
        self.tell(whole, session, vec![command]);
        self.is_told(RunKey { session, run }, false);
        true
    }

    fn interrupt(&mut self, whole: &Whole, session: SessionId) -> bool {
        self.left.interrupts = self.left.interrupts.saturating_sub(1);
        let run = self.journals.get(&session).and_then(journal::last_run).map(|(opened, _)| opened.run);
        let Some(run) = run else { return false };
        let key = RunKey { session, run };
        self.interrupts.insert(key);
        self.tell(whole, session, vec![Command::Interrupt { by: By::Person }]);
        self.is_told(key, true);
        true
    }

    fn fixed(&self, key: RunKey) -> Option<&Outcome> {
        journal::fixed(self.journals.get(&key.session)?, key.run)
    }

    /// S-2, S-3: a control is answered as done, or with the one end.
    fn is_told(&mut self, key: RunKey, may_be_done: bool) {
        let right = match (&self.answered, self.fixed(key)) {
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
