//! The identity of a tool call.

use subtend_session::ids::{CallId, RunNo, SessionId};

/// The identity of a call, which stays the same across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolKey {
    pub session: SessionId,
    pub run: RunNo,
    pub call: CallId,
}
