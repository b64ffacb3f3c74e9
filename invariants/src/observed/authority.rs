use super::When;
use subtend_session::authority::{Access, Rule, Verdict};
use subtend_session::ids::{CallId, SessionId, Text};
use subtend_session::record::AnsweredBy;

/// A query to a session's authority, as for the check of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub session: SessionId,
    pub access: Access,
    pub verdict: Verdict,
    pub under: QueryContext,
}

/// The circumstances of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueryContext {
    Present,
    /// With one more rule in the rule set of the session or an ancestor.
    Added {
        at: SessionId,
        rule: Rule,
    },
    /// With the same rules in another order.
    Reordered,
    /// After the named event: a crash, restart, continue, resume, agent override or compaction.
    After(Text),
}

/// A tool in the request of a model call, or withheld from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub tool: Text,
    pub offered: bool,
    /// The highest verdict that any call of the tool can get.
    pub best: Verdict,
    /// True if an approver was attached at the request.
    pub can_ask: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approver {
    pub from: When,
    /// The end of its attachment; absent while attached.
    pub until: Option<When>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedAsk {
    pub session: SessionId,
    pub call: CallId,
    pub opened: When,
    /// The time and the origin of the answer.
    pub answered: Option<(When, AnsweredBy)>,
}
