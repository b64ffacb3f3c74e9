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
        if self.check_record(record).is_err() {
            return;
        }
        self.text_bytes = self.text_bytes.saturating_add(record.heap_bytes());
        if let Some(run) = &mut self.run {
            let bytes = record.recorded_bytes();
            run.recorded = run.recorded.saturating_add(bytes);
            if run.opened.owner.is_model_call() {
                self.recorded = self.recorded.saturating_add(bytes);
            }
        }
        match record {
            Record::SessionCreated(_) => {}
            Record::ContinueRefused { owner, key, .. } => self.apply_continue_refused(*owner, *key),
            Record::AskOpened { call, action, resource, deadline_at, .. } => {
                self.apply_ask_opened(*call, action, resource, *deadline_at);
            }
            Record::AskAnswered { call, verdict, .. } => self.apply_ask_answered(*call, *verdict),
            Record::BranchCreated(created) => self.apply_branch_created(created),
            Record::AlternativeSwitched { of, to, .. } => self.apply_alternative_switched(*of, *to),
            Record::RolledBack { run, .. } => self.apply_rolled_back(*run),
            Record::Compacted(compacted) => self.apply_compacted(compacted),
            Record::CompactionFailed(failed) => self.apply_compaction_failed(failed.turn),
            Record::CompactionUndone { .. } => self.apply_compaction_undone(),
            Record::TitleSet(set) => self.apply_title_set(set),
            Record::SummarySet(set) => self.apply_summary_set(set),
            Record::MetadataSet(set) => {
                self.metadata_bytes = self.metadata_bytes.saturating_add(set.metadata.len() as u64);
                self.metadata = Some(Arc::clone(&set.metadata));
            }
            Record::SessionDeleted { .. } => self.deleted = true,
            Record::RunOpened(opened) => self.apply_run_opened(opened),
            Record::RunStarted { slot, .. } => self.apply_run_started(*slot),
            Record::InputAccepted(input) => self.apply_input_accepted(input),
            Record::InputsTaken { ids, .. } => self.apply_inputs_taken(ids),
            Record::QueueChanged { change, .. } => self.apply_queue_changed(change),
            Record::TurnStarted { turn, attempt, prompt, model, compacts, .. } => {
                self.apply_turn_started((*turn, *attempt), *prompt, model, *compacts);
            }
            Record::AttemptDiscarded(discarded) => self.apply_attempt_discarded(discarded),
            Record::TurnAnswered(answered) => self.apply_turn_answered(answered),
            Record::CallStarted { call, kind, .. } => self.apply_call_started(*call, kind),
            Record::CallFinished(finished) => self.apply_call_finished(finished),
            Record::ChildSpawned(spawned) => self.apply_child_spawned(spawned),
            Record::ContinueAsked(request) => self.apply_continue_asked(request),
            Record::CancelAsked { key, .. } => self.apply_cancel_asked(*key),
            Record::RunParked { why, worked_ms, .. } => self.apply_run_parked(*why, *worked_ms),
            Record::RunResumed { slot, .. } => self.apply_run_resumed(*slot),
            Record::RunHeld { why, .. } => self.apply_run_held(why),
            Record::RunEnded(ended) => self.apply_run_ended(ended),
            Record::NoticeTaken(taken) => self.apply_notice_taken(taken),
            Record::SessionClosed { .. } => self.closed = true,
            Record::SessionReopened { .. } => self.closed = false,
        }
        self.next_seq = self.next_seq.next();
    }

    /// Adds a message to the transcript, without a copy unless a turn task holds the transcript.
    fn push_message(&mut self, message: Message) {
        let transcript = Arc::make_mut(&mut self.transcript);
        if transcript.capacity() == 0 {
            // A subagent often waits for its model with one message.
            transcript.reserve_exact(1);
        }
        transcript.push(message);
    }
}
