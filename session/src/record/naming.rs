//! The sessions that a record names.

use super::{From, InputAccepted, Record, SessionCreated};
use crate::call::CallKind;
use crate::ids::SessionId;
use crate::place::{Owner, Place};

impl Record {
    /// Calls `visit` with each session that a field names. Ids within texts do not count: only models read those.
    pub fn named_sessions(&self, visit: &mut dyn FnMut(SessionId)) {
        match self {
            Self::SessionCreated(created) => created.named_sessions(visit),
            Self::RunOpened(opened) => opened.owner.named_sessions(visit),
            Self::InputAccepted(input) => input.named_sessions(visit),
            Self::CallStarted { kind, .. } => kind.named_sessions(visit),
            Self::ChildSpawned(spawned) => visit(spawned.child),
            Self::ContinueAsked(request) => visit(request.child),
            Self::ContinueRefused { owner, .. } => visit(*owner),
            Self::CancelAsked { child, .. } => visit(*child),
            Self::NoticeTaken(taken) => taken.items.iter().for_each(|item| visit(item.child)),
            Self::AskOpened { root, .. } => visit(*root),
            Self::BranchCreated(created) => visit(created.child),
            Self::TitleSet(set) => set.of.into_iter().for_each(visit),
            Self::SummarySet(set) => visit(set.of),
            Self::Compacted(compacted) => visit(compacted.of),
            Self::CompactionFailed(failed) => failed.of.into_iter().for_each(visit),
            Self::RunStarted { .. }
            | Self::InputsTaken { .. }
            | Self::QueueChanged { .. }
            | Self::TurnStarted { .. }
            | Self::AttemptDiscarded(_)
            | Self::TurnAnswered(_)
            | Self::CallFinished(_)
            | Self::RunParked { .. }
            | Self::RunResumed { .. }
            | Self::RunHeld { .. }
            | Self::RunEnded(_)
            | Self::AskAnswered { .. }
            | Self::AlternativeSwitched { .. }
            | Self::MetadataSet(_)
            | Self::RolledBack { .. }
            | Self::CompactionUndone { .. }
            | Self::SessionDeleted { .. }
            | Self::SessionClosed { .. }
            | Self::SessionReopened { .. } => {}
        }
    }
}

impl SessionCreated {
    fn named_sessions(&self, visit: &mut dyn FnMut(SessionId)) {
        if let Place::Child { parent, root, user_msg, assistant_msg, .. } = &self.place {
            [*parent, *root, user_msg.session].into_iter().for_each(&mut *visit);
            assistant_msg.iter().for_each(|message| visit(message.session));
        }
        if let Some(worktree) = self.worktree {
            [Some(worktree.of), worktree.from].into_iter().flatten().for_each(visit);
        }
    }
}

impl InputAccepted {
    fn named_sessions(&self, visit: &mut dyn FnMut(SessionId)) {
        match self.from {
            From::Model { session, .. } => visit(session),
            From::Person | From::Host | From::AgentResult => {}
        }
        self.as_owner.named_sessions(visit);
    }
}

impl Owner {
    fn named_sessions(&self, visit: &mut dyn FnMut(SessionId)) {
        self.run().into_iter().for_each(|run| visit(run.session));
    }
}

impl CallKind {
    fn named_sessions(&self, visit: &mut dyn FnMut(SessionId)) {
        match self {
            Self::Await { runs, .. } => runs.iter().for_each(|run| visit(run.session)),
            Self::Check { run, .. } => visit(run.session),
            Self::Cancel { child } => visit(*child),
            Self::Local(_)
            | Self::Child(_)
            | Self::Continue(_)
            | Self::Return
            | Self::Propose(_)
            | Self::Invalid(_) => {}
        }
    }
}
