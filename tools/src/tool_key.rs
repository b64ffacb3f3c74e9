use subtend_session::ids::{CallId, RunNo, SessionId};

/// The identity of a call, which stays the same across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolKey {
    pub session: SessionId,
    pub run: RunNo,
    pub call: CallId,
}

impl ToolKey {
    /// Returns the name of the temporary file of a write. The name identifies the call, so that a later process recognizes a leftover file.
    pub(crate) fn temporary_name(self) -> String {
        format!(".subtend-{}-{}-{}.tmp", self.session, self.run, self.call)
    }
}
