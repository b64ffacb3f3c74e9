use crate::authority::Access;
use crate::dialect::discovery;
use crate::ids::{CallId, Text};
use crate::record::AskVerdict;
use crate::state::{CallPhase, OpenAsk, State};

impl State {
    pub(super) fn apply_ask_opened(&mut self, id: CallId, action: &Text, resource: &Text, deadline_at: Option<i64>) {
        let Some(turn) = self.turn_of(id) else { return };
        let Some(call) = turn.calls.get_mut(id.ix as usize) else { return };
        if call.phase != CallPhase::Unstarted {
            return;
        }
        let access = Access { action: action.clone(), resource: resource.clone() };
        call.phase = CallPhase::Asked(Box::new(OpenAsk { access, deadline_at }));
        turn.unstarted = turn.unstarted.saturating_sub(1);
        turn.asked = turn.asked.saturating_add(1);
    }

    /// Resets the call to its state before the ask. The next record starts or closes it.
    pub(super) fn apply_ask_answered(&mut self, id: CallId, verdict: AskVerdict) {
        let Some(turn) = self.turn_of(id) else { return };
        let Some(call) = turn.calls.get_mut(id.ix as usize) else { return };
        let CallPhase::Asked(open_ask) = &call.phase else { return };
        let access = open_ask.access.clone();
        call.phase = CallPhase::Unstarted;
        call.allowed = match verdict {
            AskVerdict::Allow | AskVerdict::Always => true,
            AskVerdict::Deny => false,
        };
        turn.asked = turn.asked.saturating_sub(1);
        turn.unstarted = turn.unstarted.saturating_add(1);
        if verdict == AskVerdict::Always {
            let tool = discovery::display_name(&call.tool, &call.args).into();
            self.always.insert((tool, access));
        }
    }
}
