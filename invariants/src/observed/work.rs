//! External work: model calls, tools, and held resources.

use super::When;
use crate::observed::Offer;
use subtend_session::ids::{AttemptNo, CallId, Epoch, RunKey, Seq, Text, TurnNo};
use subtend_session::message::Transcript;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    Model(TurnNo, AttemptNo),
    Tool {
        call: CallId,
        /// True if the tool is read-only or idempotent, so that the call may be repeated with the same key.
        repeatable: bool,
    },
    /// A system resource: a process, a file, a permit.
    Held(Text),
}

/// One effect, from its start to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub run: RunKey,
    /// The activation that requested it.
    pub epoch: Epoch,
    pub work: Work,
    /// When the effect started: for a model or a tool, the first poll of its future.
    pub started: When,
    /// The last durable record at the start. Absent if unknown, and for an effect within the process, which needs none.
    pub durable: Option<Seq>,
    /// When it ended; absent while active.
    pub gone: Option<When>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GivenContext {
    pub run: RunKey,
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    /// The messages, if captured.
    pub messages: Option<Transcript>,
    /// All tools that the session might be offered; empty if not captured.
    pub tools: Vec<Offer>,
}
