//! Keys under which a run requests slots, tokens and deadlines.

use subtend_session::command::Deadline;
use subtend_session::ids::{RunKey, SessionId};

pub(crate) type Ticket = RunKey;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    Deadline(SessionId, Deadline),
    Idle(SessionId),
}
