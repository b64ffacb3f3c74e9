use serde::Serialize;
use subtend_session::ids::{InputId, Seq, Text};
use subtend_session::record::{From, InputAccepted, Lane, Notice};
use subtend_session::state::{Boundary, State, Waiting};

/// A queued input, or the end of a child's run that the model has not received yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueEntry {
    /// The id of the receipt; for a completion, that of the child session.
    pub id: InputId,
    #[serde(rename = "type")]
    pub kind: QueueKind,
    #[serde(rename = "content")]
    pub text: Text,
    /// The sender's metadata as JSON text; for a completion, its run and outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// The boundary from which it may be taken.
    pub lane: Lane,
    /// The entry's record; `None` for a completion that is still queued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Seq>,
    /// Unix time in ms at which it was sent, or at which the run ended; `None` if the id has no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<i64>,
    /// The boundary that takes it, in a listing; `None` in events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_at: Option<Boundary>,
}

/// The kind of a queue entry. Messages of people come first, one per turn; the others follow together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueKind {
    User,
    System,
    /// An agent outside this store.
    AgentResult,
    /// A child whose run has ended.
    Completion,
}

impl QueueEntry {
    pub(crate) fn of(input: &InputAccepted, at: Seq) -> Self {
        let kind = match input.from {
            From::Person => QueueKind::User,
            From::Host | From::Model { .. } => QueueKind::System,
            From::AgentResult => QueueKind::AgentResult,
        };
        let (text, metadata) = (input.text.clone(), input.metadata.clone());
        let time_ms = sent_ms(input);
        Self { id: input.id, kind, text, metadata, lane: input.lane, at: Some(at), time_ms, taken_at: None }
    }

    /// Returns the entry of a child's end; its time is read from the journal.
    fn completion(notice: &Notice) -> Self {
        let outcome = notice.outcome.kind().as_str();
        let metadata = serde_json::json!({"run": notice.run, "outcome": outcome}).to_string();
        Self {
            id: InputId(notice.child.0),
            kind: QueueKind::Completion,
            text: notice.prefix.clone(),
            metadata: Some(metadata.into()),
            lane: Lane::Send,
            at: None,
            time_ms: None,
            taken_at: None,
        }
    }

    /// Returns the queue of a session in processing order; `run` says whether its run in flight continues.
    pub(crate) fn all(state: &State, run: bool) -> Vec<Self> {
        let entry = |(waiting, at): (Waiting<'_>, Boundary)| {
            let entry = match waiting {
                Waiting::Input(queued) => Self::of(&queued.input, queued.seq),
                Waiting::End(notice) => Self::completion(notice),
            };
            Self { taken_at: Some(at), ..entry }
        };
        state.waiting(run).into_iter().map(entry).collect()
    }
}

/// Returns the creation time of an input's id, if the id has a time. Ids of requests with a key have one.
fn sent_ms(input: &InputAccepted) -> Option<i64> {
    let version = input.id.0.get_version_num();
    let millis = version == 7 || (version == 8 && input.key.is_some());
    millis.then(|| i64::try_from(input.id.0.as_u64_pair().0 >> 16).ok()).flatten()
}
