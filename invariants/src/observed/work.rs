//! Work that leaves the heart: model calls, tools, and what they hold.

use super::When;
use crate::observed::Offer;
use subtend_session::ids::{AttemptNo, CallId, Epoch, RunKey, Seq, Text, TurnNo};
use subtend_session::message::Transcript;

/// What is at work for a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// A model call.
    Model(TurnNo, AttemptNo),
    Tool {
        call: CallId,
        /// Whether it may be run again under the same key: it reads only, or is declared idempotent.
        repeatable: bool,
    },
    /// Something taken from the system: a process, a file, a permit.
    Held(Text),
}

/// One effect: from when it was started until it was gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub run: RunKey,
    /// The activation that asked for it.
    pub epoch: Epoch,
    pub work: Work,
    /// When it was started: for a model or a tool, when it was first polled.
    pub started: When,
    /// The last durable record of the session when it was started; absent where that is not known, or where it does not
    /// leave the process and so waits for none (J-5).
    pub durable: Option<Seq>,
    /// When it was gone; absent while it is at work.
    pub gone: Option<When>,
}

/// What one model call was given.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextGiven {
    pub run: RunKey,
    pub turn: TurnNo,
    pub attempt: AttemptNo,
    /// The messages; absent where they were not looked at.
    pub messages: Option<Transcript>,
    /// All tools that the session might have been offered; empty where they were not looked at.
    pub tools: Vec<Offer>,
}
