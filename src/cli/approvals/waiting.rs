//! The host's list of calls that wait for approval, for clients.

use hyper::Method;
use serde::Deserialize;
use subtend_session::ids::{SessionId, Text};

use super::super::client::Attached;
use super::super::fail::Fail;

/// Number of calls of a full page.
const PAGE: usize = 500;

/// A call that waits for approval, as the host lists it.
#[derive(Deserialize)]
pub(super) struct WaitingApproval {
    pub(super) session: SessionId,
    pub(super) root: SessionId,
    /// Absent in the reply of an earlier version, like `title` and `deadline_ms`.
    #[serde(default)]
    pub(super) agent: Text,
    #[serde(default)]
    pub(super) title: Text,
    pub(super) deadline_ms: Option<i64>,
    pub(super) call: String,
    #[serde(default)]
    pub(super) tool: Text,
    pub(super) args: Text,
    pub(super) action: Text,
    pub(super) resource: Text,
    pub(super) plan: Option<Text>,
    /// Absent in a list if the texts are truncated.
    pub(super) digest: Option<String>,
    #[serde(default)]
    pub(super) shortened: bool,
}

/// Returns the path of a page: the first one, or that after a session and its call.
pub(crate) fn page_path(after: Option<(SessionId, &str)>) -> String {
    let list = "/v1/approvals";
    after.map_or_else(|| list.to_owned(), |(session, call)| format!("{list}?after={session}.{call}"))
}

/// Returns whether a page has so many calls that others may follow.
pub(crate) fn is_full(page: usize) -> bool {
    page == PAGE
}

pub(crate) fn call_path(session: SessionId, call: &str) -> String {
    format!("/v1/approvals/{session}/{call}")
}

/// Returns the calls that wait in `host`. Long texts may be truncated.
pub(super) fn list(host: &Attached) -> Result<Vec<WaitingApproval>, Fail> {
    let mut all: Vec<WaitingApproval> = Vec::new();
    loop {
        let path = page_path(all.last().map(|last| (last.session, &*last.call)));
        let page: Vec<WaitingApproval> = host.call(Method::GET, &path, None)?;
        let more = is_full(page.len());
        all.extend(page);
        if !more {
            return Ok(all);
        }
    }
}

impl WaitingApproval {
    /// Returns the call with its whole texts; `None` if it was answered since it was listed.
    pub(super) fn whole(self, host: &Attached) -> Result<Option<Self>, Fail> {
        if !self.shortened {
            return Ok(Some(self));
        }
        host.find(Method::GET, &call_path(self.session, &self.call))
    }
}
