use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::{CallId, InputId, MsgRef, SessionId};
use crate::index;
use crate::message::Message;
use crate::record::{Hold, InputAccepted, QueueChange};
use crate::state::{Queued, State};

impl State {
    pub(super) fn apply_input_accepted(&mut self, input: &InputAccepted) {
        if let Some(key) = &input.key {
            self.seen.insert(Arc::clone(key), input.id);
        }
        self.remember(input.id);
        if input.is_from_agent() {
            self.agent_inputs = self.agent_inputs.saturating_add(1);
            self.agent_input_bytes = self.agent_input_bytes.saturating_add(input.bytes());
        }
        // An input after a cancel of the whole tree is a request to continue, so queued inputs may open the next run.
        if let Some(Hold::Closing { keeps_queue, .. }) = self.run.as_mut().and_then(|run| run.hold.as_mut()) {
            *keeps_queue = false;
        }
        self.input_bytes = self.input_bytes.saturating_add(input.bytes());
        self.queue.push_back(Queued { input: Arc::new(input.clone()), seq: self.next_seq });
    }

    /// Records a refused row, so that a repeated delivery is recognised.
    pub(super) fn apply_continue_refused(&mut self, owner: SessionId, key: CallId) {
        self.remember(index::continue_input(owner, key));
        self.agent_inputs = self.agent_inputs.saturating_add(1);
    }

    fn remember(&mut self, id: InputId) {
        if let Err(at) = self.accepted.binary_search(&id) {
            self.accepted.insert(at, id);
        }
    }

    pub(super) fn apply_inputs_taken(&mut self, ids: &[InputId]) {
        let from = self.transcript.len();
        let mut was_asked = false;
        for id in ids {
            let Some(input) = self.take_queued(*id) else { continue };
            self.push_message(Message::User { seq: self.next_seq, text: Arc::clone(&input.text) });
            // A relative's message does not request an answer and does not renew the allowance.
            if input.is_from_relative() {
                continue;
            }
            was_asked = true;
            // If one record takes several inputs, an answer belongs to the last of them.
            if input.format.is_some() || input.metadata.is_some() || input.turns.is_some() {
                self.asked.insert(self.next_seq, Arc::clone(&input));
            } else {
                self.asked.remove(&self.next_seq);
            }
            if input.agent_override.is_some() {
                self.agent = input.agent_override.clone();
            }
            if input.tools.is_some() {
                self.tools = input.tools.clone();
            }
            if let Some(run) = &mut self.run {
                if run.unanswered.is_empty() {
                    run.asked_from = from;
                }
                run.unanswered.push(*id);
                run.format = input.format.clone().or(run.format.take());
                run.allowance = input.allowance().map_or(run.allowance, |turns| turns.min(self.limits.turns));
            }
        }
        let Some(run) = self.run.as_mut().filter(|_| was_asked) else { return };
        self.about = Some(MsgRef { session: self.id, seq: self.next_seq });
        run.spent = 0;
        run.by_notices = false;
        if matches!(run.hold, Some(Hold::Interrupted { .. } | Hold::OutOfTurns)) {
            run.hold = None;
        }
    }

    fn take_queued(&mut self, id: InputId) -> Option<Arc<InputAccepted>> {
        if let Some(run) = &mut self.run
            && let Some(at) = run.waiting.iter().position(|queued| queued.input.id == id)
        {
            return Some(run.waiting.remove(at).input);
        }
        let at = self.queue.iter().position(|queued| queued.input.id == id)?;
        self.queue.remove(at).map(|queued| queued.input)
    }

    pub(super) fn apply_queue_changed(&mut self, change: &QueueChange) {
        match change {
            QueueChange::Removed(ids) => {
                let removed: BTreeSet<_> = ids.iter().collect();
                self.queue.retain(|queued| !removed.contains(&queued.input.id));
            }
            QueueChange::Cleared => self.queue.clear(),
        }
    }
}
