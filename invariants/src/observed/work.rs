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
        /// True if it may run again under the same key: read-only or idempotent.
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
    /// When it started: for a model or a tool, its first poll.
    pub started: When,
    /// The last durable record at its start; absent if unknown, or for an effect inside the process, which needs none.
    pub durable: Option<Seq>,
    /// When it ended; absent while active.
    pub gone: Option<When>,
}

/// The input of one model call.
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
