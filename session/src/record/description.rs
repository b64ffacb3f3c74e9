use serde::{Deserialize, Serialize};

use crate::ids::{Seq, SessionId, Text};
use crate::outcome::Initiator;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TitleSet {
    pub title: Text,
    /// The originator. A title of the host never replaces an existing one.
    pub by: Initiator,
    /// The service session that wrote the title; absent for a person's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<SessionId>,
}

/// A summary of a session. A later summary replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummarySet {
    pub text: Text,
    /// The last record that the summary covers.
    pub upto: Seq,
    /// The service session that wrote the summary.
    pub of: SessionId,
}

/// The session's metadata after a merge. It replaces all earlier metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataSet {
    /// All metadata, as the text of a JSON object.
    pub metadata: Text,
    pub by: Initiator,
}
