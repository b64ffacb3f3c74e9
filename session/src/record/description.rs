//! Title, summary and metadata of a session.

use serde::{Deserialize, Serialize};

use crate::ids::{Seq, SessionId, Text};
use crate::outcome::By;

/// A title of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TitleSet {
    /// The title: one line.
    pub title: Text,
    /// On whose word. The host's stands back where there is a title.
    pub by: By,
    /// The service session whose answer it is; none for a person's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<SessionId>,
}

/// What was done in a session, summed up. A later one takes its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySet {
    /// The summary.
    pub text: Text,
    /// The last record that it tells of.
    pub upto: Seq,
    /// The service session whose answer it is.
    pub of: SessionId,
}

/// The session's metadata after a merge: it replaces the metadata of the birth and of earlier records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataSet {
    /// The whole metadata: a JSON object as text.
    pub metadata: Text,
    /// Who asked for the merge.
    pub by: By,
}
