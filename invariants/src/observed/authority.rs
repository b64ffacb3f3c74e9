//! What may be done, and who was asked.

use super::When;
use subtend_session::authority::{Access, Rule, Verdict};
use subtend_session::ids::{CallId, SessionId, Text};
use subtend_session::record::AskBy;

/// One question to the authority of a session, as the hub answers it when a call is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub session: SessionId,
    pub access: Access,
    pub verdict: Verdict,
    /// Under which circumstances.
    pub under: Under,
}

/// Under which circumstances the authority was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Under {
    /// As things are.
    Present,
    /// With one more rule in the rule set of a session: of its own, or of one above it.
    Added {
        /// Where it was added.
        at: SessionId,
        rule: Rule,
    },
    /// With the same rules in another order.
    Reordered,
    /// After a crash, a restart, a continue, a resumption by id, an agent override or a compaction; which, for the
    /// verdict.
    After(Text),
}

/// A tool, as it was put to a model or kept from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub tool: Text,
    /// Whether it was in the request.
    pub offered: bool,
    /// The most that any use of it may get.
    pub best: Verdict,
    /// Whether somebody could be asked when the request was made.
    pub can_ask: bool,
}

/// Somebody who answers asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Approver {
    pub from: When,
    /// Until when; absent while it is there.
    pub until: Option<When>,
}

/// One ask, as it was put and answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskSeen {
    pub session: SessionId,
    pub call: CallId,
    /// When it was put.
    pub opened: When,
    /// When it was answered, and by whom.
    pub answered: Option<(When, AskBy)>,
}
