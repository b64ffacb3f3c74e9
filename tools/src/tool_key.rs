//! Which call a tool works for.

use subtend_session::ids::{CallId, RunNo, SessionId};

/// The identity of a call, stable over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolKey {
    pub session: SessionId,
    pub run: RunNo,
    pub call: CallId,
}
