//! The fold of one record.

use std::sync::Arc;

use super::State;
use crate::message::Message;
use crate::record::Record;

mod asks;
mod branches;
mod compaction;
mod description;
mod inputs;
mod rollback;
mod run;
mod tree;
mod turn;

impl State {
    /// Folds one record into the state. A record that does not fit is ignored.
    pub fn apply(&mut self, record: &Record) {
        if self.fits(record).is_err() {
            return;
        }
        if let Some(run) = &mut self.run {
            run.recorded = run.recorded.saturating_add(record.text_bytes());
        }
        match record {
            Record::SessionCreated(_) => {}
            Record::ContinueRefused { owner, key, .. } => self.continue_refused(*owner, *key),
            Record::AskOpened { call, action, resource, deadline_at, .. } => {
                self.ask_opened(*call, action, resource, *deadline_at);
            }
            Record::AskAnswered { call, verdict, .. } => self.ask_answered(*call, *verdict),
            Record::BranchCreated(created) => self.branch_created(created),
            Record::AlternativeSwitched { of, to, .. } => self.alternative_switched(*of, *to),
            Record::RolledBack { run, .. } => self.rolled_back(*run),
            Record::Compacted(compacted) => self.compacted(compacted),
            Record::CompactionFailed(failed) => self.compaction_failed(failed.turn),
            Record::CompactionUndone { .. } => self.compaction_undone(),
            Record::TitleSet(set) => self.title_set(set),
            Record::SummarySet(set) => self.summary_set(set),
            Record::MetadataSet(set) => self.metadata = Some(Arc::clone(&set.metadata)),
            Record::SessionDeleted { .. } => self.deleted = true,
            Record::RunOpened(opened) => self.run_opened(opened),
            Record::RunStarted { slot, .. } => self.run_started(*slot),
            Record::InputAccepted(input) => self.input_accepted(input),
            Record::InputsTaken { ids, .. } => self.inputs_taken(ids),
            Record::QueueChanged { change, .. } => self.queue_changed(change),
            Record::TurnStarted { turn, attempt, prompt, model, compacts, .. } => {
                self.turn_started((*turn, *attempt), *prompt, model, *compacts);
            }
            Record::AttemptDiscarded(discarded) => self.attempt_discarded(discarded),
            Record::TurnAnswered(answered) => self.turn_answered(answered),
            Record::CallStarted { call, kind, .. } => self.call_started(*call, kind),
            Record::CallFinished(finished) => self.call_finished(finished),
            Record::ChildSpawned(spawned) => self.child_spawned(spawned),
            Record::ContinueAsked(request) => self.continue_asked(request),
            Record::CancelAsked { key, .. } => self.cancel_asked(*key),
            Record::RunParked { why, worked_ms, .. } => self.run_parked(*why, *worked_ms),
            Record::RunResumed { slot, .. } => self.run_resumed(*slot),
            Record::RunHeld { why, .. } => self.run_held(why),
            Record::RunEnded(ended) => self.run_ended(ended),
            Record::NoticeTaken(taken) => self.notice_taken(taken),
            Record::SessionClosed { .. } => self.closed = true,
            Record::SessionReopened { .. } => self.closed = false,
        }
        self.next_seq = self.next_seq.next();
    }

    /// Adds a message to the transcript, without a copy unless a turn task holds the transcript.
    fn push_message(&mut self, message: Message) {
        Arc::make_mut(&mut self.transcript).push(message);
    }
}
