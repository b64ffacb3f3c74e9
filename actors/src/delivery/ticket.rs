//! Keys under which a run requests slots, tokens and deadlines.

use subtend_session::command::Deadline;
use subtend_session::ids::{RunKey, SessionId};

pub(crate) type Ticket = RunKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// A deadline of a session's run, turn or call.
    Deadline(SessionId, Deadline),
    Idle(SessionId),
}
