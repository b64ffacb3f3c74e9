//! The audit of a session: one entry for each decision about its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use subtend_session::authority::Access;
use subtend_session::call::CallEnd;
use subtend_session::dialect::discovery;
use subtend_session::ids::{CallId, Seq, Text, TurnNo};
use subtend_session::record::{AnsweredBy, AskVerdict, Record, ToolCall};

use crate::spawn::background;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub seq: Seq,
    pub call: CallId,
    pub tool: Text,
    /// The access; `None` if the call was denied as a whole, or by its tool.
    pub access: Option<Access>,
    pub verdict: Decided,
    pub by: DecidedBy,
    /// The reason that the model received, if any.
    pub why: Option<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decided {
    Allowed,
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecidedBy {
    /// The rules, the tool, or a hook.
    Rules,
    /// An earlier permanent approval in this session.
    Always,
    /// The approver, or the reason why no approver answered.
    Asked(AnsweredBy),
}

#[derive(Debug, Default)]
pub(crate) struct Audit {
    /// The names of the calls of each answer.
    tools: BTreeMap<TurnNo, Vec<Text>>,
    /// Unanswered asks.
    asked_access: BTreeMap<CallId, Access>,
    answered: BTreeSet<CallId>,
    always: BTreeSet<(Text, Access)>,
    /// All decisions, in order.
    pub(crate) decisions: Vec<Decision>,
}

impl Audit {
    pub(crate) fn add(&mut self, seq: Seq, record: &Record) {
        if let Record::TurnAnswered(answered) = record {
            if !answered.calls.is_empty() {
                let name = |call: &ToolCall| Text::from(discovery::display_name(&call.tool, &call.args));
                self.tools.insert(answered.turn, answered.calls.iter().map(name).collect());
            }
        } else if let Record::AskOpened { call, action, resource, .. } = record {
            let access = Access { action: Arc::clone(action), resource: Arc::clone(resource) };
            self.asked_access.insert(*call, access);
        } else if let Record::AskAnswered { call, verdict, by } = record {
            self.answered(seq, *call, *verdict, *by);
        } else if let Record::CallStarted { call, access: Some(access), .. } = record {
            // For an ask, the answer is the decision.
            if !self.answered.contains(call) {
                let granted = background::is_granted(&self.always, &self.tool_of(*call), access);
                let by = if granted { DecidedBy::Always } else { DecidedBy::Rules };
                self.decided(seq, *call, Some((**access).clone()), Decided::Allowed, by, None);
            }
        } else if let Record::CallFinished(finished) = record {
            // The end of the call reports a denial. A started tool that is denied another access adds a decision.
            let reported = self.answered.remove(&finished.call) && self.was_denied(finished.call);
            if finished.end == CallEnd::Denied && !reported {
                let why = Some(Arc::clone(&finished.content));
                self.decided(seq, finished.call, None, Decided::Denied, DecidedBy::Rules, why);
            }
        }
    }

    fn answered(&mut self, seq: Seq, call: CallId, verdict: AskVerdict, by: AnsweredBy) {
        let access = self.asked_access.remove(&call);
        let decided = match verdict {
            AskVerdict::Allow | AskVerdict::Always => Decided::Allowed,
            AskVerdict::Deny => Decided::Denied,
        };
        if verdict == AskVerdict::Always {
            self.always.extend(access.clone().map(|access| (self.tool_of(call), access)));
        }
        self.answered.insert(call);
        self.decided(seq, call, access, decided, DecidedBy::Asked(by), None);
    }

    fn tool_of(&self, call: CallId) -> Text {
        let tool = self.tools.get(&call.turn).and_then(|calls| calls.get(call.ix as usize));
        tool.cloned().unwrap_or_default()
    }

    fn was_denied(&self, call: CallId) -> bool {
        let last = self.decisions.iter().rev().find(|decision| decision.call == call);
        last.is_some_and(|decision| decision.verdict == Decided::Denied)
    }

    fn decided(
        &mut self,
        seq: Seq,
        call: CallId,
        access: Option<Access>,
        verdict: Decided,
        by: DecidedBy,
        why: Option<Text>,
    ) {
        let tool = self.tool_of(call);
        self.decisions.push(Decision { seq, call, tool, access, verdict, by, why });
    }
}
