//! Ends of owned runs, as a transcript shows them.

use serde::{Deserialize, Serialize};
use subtend_session::ids::{RunNo, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::{Notice, RunEnded};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnedEnd {
    pub child: SessionId,
    /// The run; absent if the child refused to continue.
    #[serde(skip)]
    pub run: Option<RunNo>,
    pub outcome: Outcome,
    /// Empty if the text is only in the child's journal and was not read.
    pub text: Text,
    /// Length of the whole text in bytes.
    pub len: u64,
    /// True if the text was deleted with the child's session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

impl OwnedEnd {
    pub(super) fn of(notice: &Notice) -> Self {
        let (outcome, text) = (notice.outcome.clone(), notice.prefix.clone());
        Self { child: notice.child, run: notice.run, outcome, text, len: notice.len, deleted: false }
    }

    /// Fills in the text that is only in the child's journal.
    pub(super) fn complete(&mut self, ended: &RunEnded) {
        self.text = ended.text.clone().unwrap_or_default();
        self.outcome = ended.outcome.clone();
    }
}
