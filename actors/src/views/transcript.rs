//! Transcripts of sessions for people, up to the last record or an earlier one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::authority::Verdict;
use subtend_session::call::CallEnd;
use subtend_session::ids::{Hash, Interned, Seq, SessionId, Short, Text};
use subtend_session::index::{self, Head};
use subtend_session::outcome::OutcomeKind;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::{Phase, State};
use subtend_session::values::{JsonText, parse_recorded};
use subtend_tools::message;

use crate::handle::SessionHandle;
use crate::views::history::History;

pub use branch::Branch;
pub use end::OwnedEnd;
pub use entry::{CallEntry, CallOutcome, Entry, NestedTranscript, ShownEntry};
pub use minion::{Activity, Block, Category, Group, Minion};

mod branch;
mod end;
mod entry;
mod entry_builder;
mod minion;

/// The actions in the summary of a session's permissions.
pub const ACTIONS: [&str; 5] = ["fs.read", "fs.write", "net.fetch", "net.search", "shell.run"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    #[serde(flatten)]
    pub header: Header,
    pub entries: Vec<ShownEntry>,
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
    pub system: Option<String>,
    pub summary: Option<Text>,
}

/// The part of a session to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TranscriptReading {
    /// Includes the work of children without a row of their own in the calls that started them.
    pub nests: bool,
    /// The last record to read: the transcript shows the session at that time.
    pub at: Option<Seq>,
    /// Returns only entries that start after this record.
    pub after: Seq,
    /// Maximum number of entries; the entries of the last record are complete.
    pub limit: Option<usize>,
    /// Number of last entries for which the journals of children are read; `None` for all.
    pub newest: Option<usize>,
}

/// Number of records of a child that are read at a time to find the ends of its runs.
const ENDS_PAGE: u64 = 64;

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
        let above = parent.and_then(|parent| records(journal, parent).ok()).map(|records| History::of(&records));
        let task = above.and_then(|history| history.tasks.get(&id).cloned());
        TranscriptReader { journal }.read(id, how, task.as_ref(), &mut BTreeSet::new())
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

/// Returns the records of a session; if its row is damaged, those that can be salvaged.
/// # Errors
/// As [`Journal::records`] and [`Journal::salvage`].
pub fn records(journal: &Journal, session: SessionId) -> Result<Vec<Stored>, ReadError> {
    match journal.head(session) {
        Ok(_) => journal.records(session),
        Err(_) => journal.salvage(session),
    }
}

/// Returns the head of the folded records; `None` if they cannot be folded.
fn fold_head(session: SessionId, stored: &[Stored]) -> Option<Head> {
    let (first, last) = (stored.first()?, stored.last()?);
    let state = State::fold(session, stored.iter().map(|stored| &stored.record)).ok()?;
    Some(index::head(&state, last.epoch, first.at_ms, last.at_ms))
}

/// Marks the entries that a compaction hides. Records that cannot be folded hide nothing.
fn mark_compacted(session: SessionId, stored: &[Stored], entries: &mut [ShownEntry]) {
    if !stored.iter().any(|stored| matches!(stored.record, Record::Compacted(_))) {
        return;
    }
    let state = State::fold(session, stored.iter().map(|stored| &stored.record));
    let Ok(hidden) = state.map(|state| state.compacted_records()) else { return };
    for shown in entries {
        shown.compacted = hidden.contains(&shown.record);
    }
}

struct TranscriptReader<'a> {
    journal: &'a Journal,
}

impl TranscriptReader<'_> {
    /// Reads a session, with children without a row in their calls, except `seen`: a damaged store may hold a cycle.
    fn read(
        &self,
        id: SessionId,
        how: TranscriptReading,
        task: Option<&Text>,
        seen: &mut BTreeSet<SessionId>,
    ) -> Result<Transcript, TranscriptError> {
        let mut head = head(self.journal, id)?.ok_or(ReadError::NoSuchSession(id))?;
        let mut records = records(self.journal, id)?;
        if let Some(at) = how.at {
            records.retain(|stored| stored.seq <= at);
            head = fold_head(id, &records).ok_or(TranscriptError::NoReplay { session: id, at })?;
        }
        let history = History::of(&records);
        let created = entry_builder::creation(&records);
        let system = created.map(|created| self.text(&created.system)).transpose()?;
        let mut entries = entry_builder::entries(&records);
        mark_compacted(id, &records, &mut entries);
        let (mut entries, next) = page(entries, how);
        let first = how.newest.map_or(0, |newest| entries.len().saturating_sub(newest));
        let shown = entries.get_mut(first..).unwrap_or_default();
        self.complete(shown);
        self.address((id, head.parent), shown);
        if how.nests {
            self.nest(id, &history, shown, seen);
        }
        let header = Header {
            id,
            short: head.short.clone(),
            agent: head.agent.clone(),
            agent_hash: created.map(|created| created.agent_hash),
            model: created.map(|created| created.model.clone()),
            parent: head.parent,
            root: head.root,
            depth: head.depth,
            state: head.state,
            limited_until: history.limited_until,
            outcome: head.last_outcome,
            title: head.title.clone(),
            workspace: created.map(|created| created.workspace.clone()),
            servers: created.map(|created| created.servers.clone()).unwrap_or_default(),
            imported: created.is_some_and(|created| created.imported.is_some()),
            rights: created.map(rights).unwrap_or_default(),
            created_ms: head.created_ms,
            metadata: JsonText::of_metadata(history.metadata.as_ref()),
            branch: Branch::of(id, &head, &history, task),
            system,
            summary: entry_builder::summary(&records),
        };
        let last_seq = records.last().map_or(Seq(0), |last| last.seq);
        Ok(Transcript { header, entries, last_seq, next })
    }

    /// Fills in the texts of ends that are only in the child's journal.
    fn complete(&self, entries: &mut [ShownEntry]) {
        let ends = entries.iter_mut().flat_map(|shown| shown.entry.ends_mut());
        let short = ends.filter(|end| end.text.is_empty() && end.len > 0);
        for (child, mut ends) in by_child(short.map(|end| (end.child, end))) {
            let Some(head) = self.opt_head(child) else {
                ends.into_iter().for_each(|end| end.deleted = true);
                continue;
            };
            // An end is among the last records of its run, so most of the journal is not read.
            let mut until = head.last_seq.next();
            while until > Seq(1) && !ends.is_empty() {
                let mut from = Seq(until.0.saturating_sub(ENDS_PAGE).max(1));
                let count = usize::try_from(until.0.saturating_sub(from.0)).unwrap_or(usize::MAX);
                let page = self.journal.records_from(child, from, count).or_else(|_| {
                    from = Seq(1);
                    records(self.journal, child)
                });
                // For an unreadable child the text names the command that shows the reason.
                let Ok(page) = page else { break };
                page.iter().for_each(|stored| ends.retain_mut(|end| !end.complete(&stored.record)));
                until = from;
            }
        }
    }

    /// Names the receivers of delivered messages.
    fn address(&self, (id, parent): (SessionId, Option<SessionId>), entries: &mut [ShownEntry]) {
        let mut relatives: Option<Vec<(SessionId, Short)>> = None;
        for call in entries.iter_mut().flat_map(|shown| shown.entry.calls_mut()) {
            let is_delivered = matches!(&call.result, Some(CallOutcome::Result { end: CallEnd::Ok, .. }));
            if *call.tool != *message::NAME || !is_delivered {
                continue;
            }
            let args: Value = parse_recorded(&call.args).unwrap_or_default();
            let to = args.get("to").and_then(Value::as_str).map_or("", message::receiver);
            if to == message::PARENT {
                call.receiver = parent;
                continue;
            }
            let relatives = relatives.get_or_insert_with(|| {
                let children = parent.into_iter().chain([id]).filter_map(|of| self.journal.children(of).ok()).flatten();
                children
                    .filter(|child| *child != id)
                    .filter_map(|child| Some((child, self.opt_head(child)?.short)))
                    .collect()
            });
            let mut named = relatives.iter().filter(|(id, short)| *short.0 == *to || id.to_string() == to);
            // An agent that was created later may have the same name.
            call.receiver = named.next().map(|(id, _)| *id).filter(|_| named.next().is_none());
        }
    }

    /// Adds the transcripts of children to the calls that started them.
    fn nest(&self, id: SessionId, history: &History, entries: &mut [ShownEntry], seen: &mut BTreeSet<SessionId>) {
        self.add_minions(id, entries);
        for call in entries.iter_mut().flat_map(|shown| shown.entry.calls_mut()) {
            let is_opaque = |child: &SessionId| self.opt_head(*child).is_some_and(|head| !head.inspectable);
            let Some(child) = call.child.filter(is_opaque) else { continue };
            // A call that continues a child does not show it a second time.
            if seen.insert(child) {
                let whole = TranscriptReading { nests: true, ..TranscriptReading::default() };
                call.nested = Some(match self.read(child, whole, history.tasks.get(&child), seen) {
                    Ok(nested) => NestedTranscript::Transcript(nested.into()),
                    Err(error) => NestedTranscript::Unreadable(error.to_string()),
                });
            }
        }
    }

    /// Adds the work of minions to their calls, except of one that cannot be read, which its transcript reports.
    fn add_minions(&self, id: SessionId, entries: &mut [ShownEntry]) {
        let calls = entries.iter_mut().flat_map(|shown| shown.entry.calls_mut());
        let calls = calls.filter(|call| *call.tool == *subtend_tools::dialect::minion::NAME);
        for (child, calls) in by_child(calls.filter_map(|call| Some((call.child?, call)))) {
            let Some(head) = self.opt_head(child) else { continue };
            let Ok(records) = records(self.journal, child) else { continue };
            for call in calls {
                call.minion = Minion::of(&records, (id, call.call), head.short.clone());
            }
        }
    }

    fn opt_head(&self, session: SessionId) -> Option<Head> {
        head(self.journal, session).ok().flatten()
    }

    fn text(&self, named: &Interned<str>) -> Result<String, TranscriptError> {
        if let Some(body) = &named.body {
            return Ok(body.to_string());
        }
        let hash = named.hash;
        let json = self.journal.def(hash)?.ok_or(TranscriptError::NoText(hash))?;
        serde_json::from_str(&json).map_err(|error| TranscriptError::BadText { hash, error })
    }
}

/// Groups parts of a page by their child, so that its journal is read once for all of them.
fn by_child<T>(parts: impl Iterator<Item = (SessionId, T)>) -> BTreeMap<SessionId, Vec<T>> {
    let mut children: BTreeMap<SessionId, Vec<T>> = BTreeMap::new();
    parts.for_each(|(child, part)| children.entry(child).or_default().push(part));
    children
}

/// Returns the requested page of the entries, and the record after which the next page begins.
fn page(mut entries: Vec<ShownEntry>, how: TranscriptReading) -> (Vec<ShownEntry>, Option<Seq>) {
    entries.retain(|shown| shown.record > how.after);
    let last = how.limit.and_then(|limit| entries.get(limit.saturating_sub(1))).map(|shown| shown.record);
    let Some(last) = last else { return (entries, None) };
    let rest = entries.iter().position(|shown| shown.record > last);
    let next = rest.map(|rest| {
        entries.truncate(rest);
        last
    });
    (entries, next)
}

fn rights(created: &SessionCreated) -> BTreeMap<Text, Verdict> {
    let Some(ceiling) = &created.ceiling.body else { return BTreeMap::new() };
    let bound = created.imported.as_ref();
    let best = |action: &str| ceiling.best(action).min(bound.map_or(Verdict::Allow, |bound| bound.best(action)));
    ACTIONS.into_iter().map(|action| (action.into(), best(action))).collect()
}
