//! Transcripts of sessions for people, up to the last record or an earlier one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::authority::Verdict;
use subtend_session::ids::{Hash, Seq, SessionId, Short, Text};
use subtend_session::index::{self, Head};
use subtend_session::outcome::OutcomeKind;
use subtend_session::state::{Phase, State};
use subtend_session::values::JsonText;

use crate::handle::SessionHandle;
use crate::values::paging;
use crate::views::history::History;
use reader::TranscriptReader;

pub use branch::Branch;
pub use end::OwnedEnd;
pub use entry::{CallEntry, CallOutcome, Entry, NestedTranscript, ShownEntry};
pub use minion::{Activity, Block, Category, Group, Minion};

mod branch;
mod end;
mod entry;
mod entry_builder;
mod minion;
mod reader;
mod session_reading;

/// The actions in the summary of a session's permissions.
pub const ACTIONS: [&str; 5] = ["fs.read", "fs.write", "net.fetch", "net.search", "shell.run"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    #[serde(flatten)]
    pub header: Header,
    pub entries: Vec<ShownEntry>,
    /// Number of earlier entries that were left out ([`TranscriptReading::newest`]).
    #[serde(skip)]
    pub earlier: usize,
    /// True if models see a summary in place of messages.
    #[serde(skip)]
    pub is_compacted: bool,
    /// The last record that was read.
    #[serde(skip)]
    pub last_seq: Seq,
    /// The record after which the next page starts; `None` on the last page.
    #[serde(skip)]
    pub next: Option<Seq>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    pub id: SessionId,
    pub short: Short,
    pub agent: Text,
    pub agent_hash: Option<Hash>,
    pub model: Option<Text>,
    pub parent: Option<SessionId>,
    pub root: SessionId,
    /// Number of subagent edges from the root.
    pub depth: u32,
    pub state: Phase,
    /// Unix time in ms until which the run is parked at a provider's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<i64>,
    /// Outcome of the last run.
    #[serde(skip)]
    pub outcome: Option<OutcomeKind>,
    /// The title, or the start of the first input.
    pub title: Text,
    /// The directory in which the session works.
    pub workspace: Option<Text>,
    /// Servers at which its models are called instead of the providers' own.
    #[serde(default, skip_serializing_if = "<[Text]>::is_empty")]
    pub servers: Vec<Text>,
    /// True if the session was imported, which bounds its rights.
    pub imported: bool,
    /// The highest verdict of each action under the ceiling.
    pub rights: BTreeMap<Text, Verdict>,
    pub created_ms: i64,
    /// Metadata of the client.
    pub metadata: JsonText,
    /// The branch object, if the session is a branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Branch>,
    /// The system prompt. In a child that has the same one as an earlier session of the transcript, only [`Self::system_of`]
    /// names that session, since any number of children may share a long one.
    pub system: Option<Text>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_of: Option<SessionId>,
    pub summary: Option<Text>,
}

/// The part of a session to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TranscriptReading {
    /// Number of levels of children without a row of their own that are included in the calls that started them, at most
    /// [`MAX_NESTED_LEVELS`]. Calls below have the reason why their child is left out. `None` for no children.
    pub nests: Option<u32>,
    /// The last record to read: the transcript shows the session at that time.
    pub at: Option<Seq>,
    /// Returns only entries that start after this record.
    pub after: Seq,
    /// Maximum number of entries; the entries of the last record are complete.
    pub limit: Option<usize>,
    /// Returns only the last entries: at least this many, if their records have at most 32 MiB. The journals of children are
    /// read for this many. `None` for all.
    pub newest: Option<usize>,
}

/// Maximum number of nested levels. Serialization needs stack for each level, and parsers of JSON accept 128 levels of values.
pub const MAX_NESTED_LEVELS: u32 = 16;

const VERIFY_HINT: &str = "; `subtend verify` reports what else is wrong";

fn verify_hint(error: &ReadError) -> &'static str {
    match error {
        ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::Engine(_) => VERIFY_HINT,
        ReadError::NoSuchSession(_) | ReadError::Closed => "",
    }
}

#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    #[error("{0}{verify}", verify = verify_hint(.0))]
    Read(#[from] ReadError),
    #[error("the text {0} is missing in the store{VERIFY_HINT}")]
    NoText(Hash),
    #[error("the text {hash} in the store is not a JSON text: {error}")]
    BadText { hash: Hash, error: serde_json::Error },
    #[error("session {session} cannot be replayed up to record {at}")]
    NoReplay { session: SessionId, at: Seq },
}

impl Transcript {
    /// Reads a session from a journal without a runtime. Blocks while it reads. A session with a damaged index row is shown from its records.
    /// # Errors
    /// [`TranscriptError`]. An unreadable child is shown with the reason.
    pub fn read(journal: &Journal, id: SessionId, how: TranscriptReading) -> Result<Self, TranscriptError> {
        let parent = head(journal, id)?.and_then(|head| head.parent);
        let task = parent.and_then(|parent| {
            let mut above = History::default();
            each(&journal.without_bodies(), parent, Seq(u64::MAX), |stored| above.add(stored)).ok()?;
            above.tasks.remove(&id)
        });
        TranscriptReader::new(journal).read(id, how, task.as_ref())
    }
}

impl SessionHandle {
    /// Reads the transcript as [`Transcript::read`] does, without waking the session.
    /// # Errors
    /// [`TranscriptError`].
    pub async fn transcript(&self, how: TranscriptReading) -> Result<Transcript, TranscriptError> {
        // A poisoned journal can still be read.
        drop(self.sessions.log.journal.settled().await);
        Transcript::read(&self.sessions.log.journal, self.id, how)
    }
}

/// Returns the head of a session that is not deleted. If its row is damaged, the head is built from the records.
/// # Errors
/// The reason why neither can be read.
pub fn head(journal: &Journal, session: SessionId) -> Result<Option<Head>, ReadError> {
    let head = match journal.head(session) {
        Ok(head) => head,
        Err(error) => Some(stand_in(journal, session)?.ok_or(error)?),
    };
    Ok(head.filter(|head| !head.deleted))
}

/// Returns the head that the records of a session with a damaged row imply; `None` if they cannot be read either.
/// # Errors
/// The error of reading the store as a whole.
pub fn stand_in(journal: &Journal, session: SessionId) -> Result<Option<Head>, ReadError> {
    match journal.salvage(session) {
        Ok(stored) => Ok(fold_head(session, &stored)),
        Err(ReadError::NoSuchSession(_) | ReadError::Damaged { .. } | ReadError::Newer { .. }) => Ok(None),
        Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => Err(error),
    }
}

/// Calls `take` with each record of a session up to `last`, page by page; if its row is damaged, with those that can be salvaged.
/// # Errors
/// As [`Journal::records`] and [`Journal::salvage`].
fn each(journal: &Journal, session: SessionId, last: Seq, take: impl FnMut(&Stored)) -> Result<(), ReadError> {
    match journal.head(session) {
        Ok(_) => paging::each_to(journal, session, last, take),
        Err(_) => {
            journal.salvage(session)?.iter().take_while(|stored| stored.seq <= last).for_each(take);
            Ok(())
        }
    }
}

/// Returns the head of the folded records; `None` if they cannot be folded.
fn fold_head(session: SessionId, stored: &[Stored]) -> Option<Head> {
    let (first, last) = (stored.first()?, stored.last()?);
    let state = State::fold(session, stored.iter().map(|stored| &stored.record)).ok()?;
    Some(index::head(&state, last.epoch, first.at_ms, last.at_ms))
}
