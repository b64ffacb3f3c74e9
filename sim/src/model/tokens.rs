//! Cancellation tokens: they carry the end of a run to the runs that it owns.

use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunKey, SessionId};
use subtend_session::index::{self, RowKind};
use subtend_session::outcome::{Initiator, OutcomeKind};
use subtend_session::record::Hold;

use super::system::{Dropped, Message, System};
use super::{SystemModel, journal};
use crate::fault::EnvironmentBug;

impl System {
    pub(super) fn cancel_owned(&mut self, key: RunKey, outcome: OutcomeKind, keeps_queue: bool) {
        let kept_before = self.closing.get(&key).is_some_and(|(_, keeps_queue)| *keeps_queue);
        self.closing.insert(key, (outcome, keeps_queue || kept_before));
        for to in self.owned_runs(key) {
            self.send(Message::OwnerEnded { to, owner: key, outcome, keeps_queue });
            self.fire_tokens(to);
        }
    }

    /// Cancels one owned run and fires its token. A run that the child has not opened yet has no token. The child opens the
    /// run, then handles the cancel.
    pub(super) fn cancel_child(&mut self, owner: RunKey, child: SessionId, key: CallId, by: &Initiator) {
        let owns = self.active.get(&owner.session).and_then(|active| active.state.run.as_ref());
        // A later command of the batch may have taken the run's notice.
        if owns.is_none_or(|run| !run.owned.contains_key(&key)) {
            return;
        }
        let model = if let Initiator::Model { call } = by { Some(*call) } else { None };
        let to = self.run_opened_by(child, owner, key);
        if let Some(to) = to {
            // Recorded only for this run, because the owner's other runs continue.
            self.single.insert(to, (key, model));
        }
        self.send(Message::OwnerRow { to: child, from: owner.session, kind: RowKind::Cancel, key });
        if let Some(to) = to {
            self.fire_tokens(to);
        }
    }

    fn run_opened_by(&self, child: SessionId, owner: RunKey, key: CallId) -> Option<RunKey> {
        let (opened, ended) = journal::last_run(self.journals.get(&child)?)?;
        let mine = !ended && journal::owner_of(opened) == Some(owner) && journal::key_of(opened) == Some(key);
        mine.then_some(RunKey { session: child, run: opened.run })
    }

    fn fire_tokens(&mut self, to: RunKey) {
        let mut below = vec![to];
        while let Some(key) = below.pop() {
            if self.fired.insert(key) {
                self.drop_work(key.session, Dropped::ByToken);
            }
            below.extend(self.owned_runs(key));
        }
    }

    fn owned_runs(&self, owner: RunKey) -> Vec<RunKey> {
        let runs = self.journals.iter().filter_map(|(session, journal)| {
            let (opened, ended) = journal::last_run(journal)?;
            (!ended && journal::owner_of(opened) == Some(owner))
                .then_some(RunKey { session: *session, run: opened.run })
        });
        runs.collect()
    }

    pub(super) fn ended_owner_outcome(&self, key: RunKey) -> Option<OutcomeKind> {
        let (opened, ended) = journal::last_run(self.journals.get(&key.session)?)?;
        let owner = journal::owner_of(opened).filter(|_| !ended)?;
        let over = journal::ended(self.journals.get(&owner.session)?, owner.run);
        let fired = self.fired.contains(&key) || self.fired.contains(&owner);
        over.or_else(|| fired.then(|| self.closing_kind(owner, key)))
    }

    /// Returns the owner's outcome that ends `owned`. Without its own, an ancestor's close cancels the owner.
    pub(super) fn closing_kind(&self, owner: RunKey, owned: RunKey) -> OutcomeKind {
        match self.single.get(&owned) {
            Some((_, None)) => OutcomeKind::Interrupted,
            Some((_, Some(_))) => OutcomeKind::Cancelled,
            None => self.closing.get(&owner).map_or(OutcomeKind::Cancelled, |(outcome, _)| *outcome),
        }
    }

    /// Returns the command for a run whose token has fired: a cancel by its owner, or the owner's end.
    pub(super) fn command_from_owner(&self, model: &SystemModel, owner: RunKey, owned: RunKey) -> Command {
        match self.single.get(&owned).filter(|_| !model.fault.is(EnvironmentBug::CauseLost)) {
            Some((key, call)) => Command::OwnerCancels { owner: owner.session, key: *key, by: index::cancel_by(*call) },
            None => {
                let keeps_queue = self.closes_whole_tree(owner);
                Command::OwnerEnded { owner, outcome: self.closing_kind(owner, owned), keeps_queue }
            }
        }
    }

    /// Returns whether `owner` or an ancestor closes with its whole tree.
    fn closes_whole_tree(&self, owner: RunKey) -> bool {
        let mut at = Some(owner);
        while let Some(key) = at {
            if self.closing.get(&key).is_some_and(|(_, keeps_queue)| *keeps_queue) {
                return true;
            }
            let last = self.journals.get(&key.session).and_then(|journal| journal::last_run(journal));
            at = last.and_then(|(opened, _)| journal::owner_of(opened));
        }
        false
    }

    /// Returns the command for the end of the owner of `key`, if that end keeps queued inputs queued.
    pub(super) fn queue_kept_cancel(&self, key: RunKey) -> Option<Command> {
        let outcome = self.ended_owner_outcome(key)?;
        let (opened, _) = journal::last_run(self.journals.get(&key.session)?)?;
        let owner = journal::owner_of(opened)?;
        self.closes_whole_tree(owner).then_some(Command::OwnerEnded { owner, outcome, keeps_queue: true })
    }

    /// Returns the outcome of an owner that continues a child, if the owner has ended or closes.
    pub(super) fn owner_outcome_of(&self, owner: RunKey) -> Option<OutcomeKind> {
        let journal = self.journals.get(&owner.session)?;
        if let Some(outcome) = journal::ended(journal, owner.run) {
            return Some(outcome);
        }
        if self.boot.as_ref().is_some_and(|boot| boot.sweep.contains(&owner.session)) {
            let held = journal::hold_of(journal, owner.run).map(|hold| match hold {
                Hold::Interrupted { .. } => OutcomeKind::Interrupted,
                Hold::OutOfTurns => OutcomeKind::OutOfTurns,
                Hold::Closing { outcome, .. } => outcome.kind(),
            });
            return Some(held.unwrap_or(OutcomeKind::Lost));
        }
        let closes = self.closing.get(&owner).map(|(outcome, _)| *outcome);
        closes.or_else(|| self.fired.contains(&owner).then_some(OutcomeKind::Cancelled))
    }
}
