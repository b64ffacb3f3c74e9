//! Events of a tree or of the whole store, in the order of the journal. Each durable event is returned once, even
//! across restarts of the host.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::{
    Event, EventKind, KEPT_BYTES, Next, Runtime, Subscription, max_kept_bytes, record_bytes, sum_bytes,
};
use subtend_journal::{Journal, Poisoned, ReadError, Stored};
use subtend_session::ids::{AttemptNo, Hash, Lsn, SessionId, TurnNo};
use subtend_session::record::Record;
use tokio::time::Instant;

/// Maximum number of frames in one read, so that other tasks can run in between.
const FRAMES_PER_READ: u64 = 256;

/// Bytes of records after which a read ends, also of those that are not sent.
const BYTES_PER_READ: u64 = 4 << 20;

/// Maximum number of sessions of a tree whose last frames are read, to find out that the tree has no later ones.
const MAX_ENDS: usize = 64;

/// Maximum age of records that were read and not sent. Older ones are read again.
const MAX_HELD: Duration = Duration::from_secs(1);

/// The position of a record in the log: its frame, and its number within the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    frame: Lsn,
    /// Number of the frame's records before this position; `u32::MAX` for all.
    records: u32,
}

impl Cursor {
    /// Returns the position after all records of a frame.
    pub fn end_of(frame: Lsn) -> Self {
        Self { frame, records: u32::MAX }
    }
}

/// Formats as `FRAME.RECORDS`, or as `FRAME` after all records of the frame.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records {
            u32::MAX => write!(f, "{}", self.frame),
            records => write!(f, "{}.{records}", self.frame),
        }
    }
}

/// The error for an invalid cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cursor {0:?}: give the id of an event unchanged, such as 1234 or 1234.2")]
pub struct BadCursor(String);

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let bad = || BadCursor(text.chars().take(64).collect());
        let (frame, records) = match text.split_once('.') {
            None => (text, u32::MAX),
            Some((frame, records)) => (frame, records.parse().map_err(|_| bad())?),
        };
        Ok(Self { frame: Lsn(frame.parse().map_err(|_| bad())?), records })
    }
}

/// An event, with the cursor after it if it is durable.
#[derive(Clone, Debug)]
pub enum Followed {
    /// A record with its cursor, or a part of an answer or a progress line without one.
    Event(Option<Cursor>, Event),
    /// The reader was too slow and missed this many parts of answers and progress lines, but no records.
    Missed(u64),
    /// The journal has records to read: call [`TreeEvents::read_page`].
    Behind,
}

/// The error that ends a stream of events.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The journal cannot be read.
    #[error("the events cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The journal failed, so no further records become durable.
    #[error("the store failed: {0}")]
    Poisoned(#[from] Poisoned),
}

/// The events of one tree, or of all trees.
///
/// Records are read from the journal by position, so that a slow or reconnected reader misses none. Parts of an answer
/// are live events. None is returned after its attempt has ended.
pub struct TreeEvents {
    root: Option<SessionId>,
    at: Cursor,
    live: Subscription,
    ready: VecDeque<Followed>,
    /// Last ended attempt of each session.
    over: HashMap<SessionId, (TurnNo, AttemptNo)>,
    behind: bool,
    /// Position after the last returned record.
    given: Cursor,
    read_at: Instant,
    /// False before the first read, which skips the frames before the tree.
    is_started: bool,
}

/// Sessions found during one read; `None` for those of other trees.
type FollowedSessions = HashMap<SessionId, Option<FollowedSession>>;

impl fmt::Debug for TreeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeEvents").field("root", &self.root).field("at", &self.at).finish_non_exhaustive()
    }
}

/// A session whose records are sent.
#[derive(Clone, Copy, Debug)]
struct FollowedSession {
    root: SessionId,
    deleted: bool,
}

impl TreeEvents {
    /// Follows the tree of `root`, or all trees, starting after `after`.
    pub fn new(runtime: &Runtime, root: Option<SessionId>, after: Cursor) -> Self {
        Self {
            root,
            at: after,
            // Subscribe before reading the journal, so that later events wake this stream.
            live: runtime.subscribe(root),
            ready: VecDeque::new(),
            over: HashMap::new(),
            behind: true,
            given: after,
            read_at: Instant::now(),
            is_started: false,
        }
    }

    /// Returns the next event, or [`Followed::Behind`]; `None` after the last event of a runtime that was shut down.
    /// `runtime` must be the one that was passed to [`TreeEvents::new`].
    ///
    /// # Errors
    /// [`FollowError`].
    ///
    /// # Cancel safety
    /// No event is lost when the future is dropped.
    pub async fn next(&mut self, runtime: &Runtime) -> Result<Option<Followed>, FollowError> {
        loop {
            // A slow client must not receive records long after their session was deleted.
            let is_record = matches!(self.ready.front(), Some(Followed::Event(Some(_), _)));
            if is_record && self.read_at.elapsed() > MAX_HELD {
                (self.at, self.behind, self.ready) = (self.given, true, VecDeque::new());
            }
            if let Some(ready) = self.pop() {
                return Ok(Some(ready));
            }
            // Frees memory, because many clients may be idle.
            self.ready = VecDeque::new();
            if self.behind {
                return Ok(Some(Followed::Behind));
            }
            match self.live.next().await {
                Some(Next::Event(event)) => self.apply(event),
                Some(Next::Missed(events)) => {
                    // Subscribe again to receive the text of the answer in progress from its start.
                    self.live = runtime.subscribe(self.root);
                    self.behind = true;
                    return Ok(Some(Followed::Missed(events)));
                }
                None => {
                    return match runtime.journal().poisoned() {
                        Some(poisoned) => Err(poisoned.into()),
                        None => Ok(None),
                    };
                }
            }
        }
    }

    /// Reads a page of records after [`Followed::Behind`], and returns its first one. Blocks while it reads.
    ///
    /// # Errors
    /// [`FollowError::Read`].
    pub fn read_page(&mut self, journal: &Journal) -> Result<Option<Followed>, FollowError> {
        let new_root = self.root.filter(|_| !self.is_started);
        let from = new_root.map_or(self.at, |root| start_of(journal, root).max(self.at));
        self.start_page(FollowedPage::read(journal, self.root, from)?);
        Ok(self.pop())
    }

    fn pop(&mut self) -> Option<Followed> {
        let ready = self.ready.pop_front()?;
        if let Followed::Event(Some(cursor), _) = &ready {
            self.given = *cursor;
        }
        Some(ready)
    }

    fn apply(&mut self, event: Event) {
        match &event.what {
            // Not returned here: records are read from the journal, in order.
            EventKind::Record { .. } => self.behind = true,
            EventKind::Delta { turn, attempt, .. } if Some(&(*turn, *attempt)) <= self.over.get(&event.session) => {}
            EventKind::Delta { .. } | EventKind::Progress { .. } => self.ready.push_back(Followed::Event(None, event)),
            EventKind::Queue { .. } => {}
        }
    }

    fn start_page(&mut self, page: FollowedPage) {
        for (session, last) in page.over {
            let over = self.over.entry(session).or_insert(last);
            *over = (*over).max(last);
        }
        (self.given, self.at, self.ready, self.behind) = (page.from, page.at, page.ready, page.behind);
        (self.read_at, self.is_started) = (Instant::now(), true);
    }
}

/// Returns the position before the first record of a tree: its root is created before the others. An import may have another
/// order, so its trees are read from the start.
fn start_of(journal: &Journal, root: SessionId) -> Cursor {
    // An unreadable root is reported by the read of its frame.
    let Ok((lsn, first)) = journal.without_bodies().first_frame(root) else { return Cursor::default() };
    let is_own = matches!(&first.record, Record::SessionCreated(created) if created.imported.is_none());
    if is_own { Cursor::end_of(Lsn(lsn.0.saturating_sub(1))) } else { Cursor::default() }
}

/// Returns whether a tree may have frames from `from` on. Without this, a reader of an old tree passes over each later frame of its store.
fn may_continue(journal: &Journal, root: SessionId, from: Lsn) -> bool {
    let (mut open, mut read) = (vec![root], 0_usize);
    while let Some(session) = open.pop() {
        let (last, children) = (journal.last_frame(session), journal.children(session));
        let (Ok(last), Ok(children)) = (last, children) else { return true };
        open.extend(children);
        read = read.saturating_add(1);
        if last >= from || read.saturating_add(open.len()) > MAX_ENDS {
            return true;
        }
    }
    false
}

/// The records of some frames.
struct FollowedPage {
    root: Option<SessionId>,
    from: Cursor,
    /// Position after these records.
    at: Cursor,
    ready: VecDeque<Followed>,
    ready_bytes: u64,
    /// Last ended attempt of each session.
    over: HashMap<SessionId, (TurnNo, AttemptNo)>,
    /// True if the journal has further durable records.
    behind: bool,
}

impl FollowedPage {
    /// Reads the frames of the tree after `from`, up to the last durable one or the first limit: [`FRAMES_PER_READ`],
    /// [`BYTES_PER_READ`] or [`KEPT_BYTES`].
    fn read(journal: &Journal, root: Option<SessionId>, from: Cursor) -> Result<Self, FollowError> {
        let last = journal.durable();
        let mut frame = if from.records == u32::MAX { Lsn(from.frame.0.saturating_add(1)) } else { from.frame };
        let until = Lsn(frame.0.saturating_add(FRAMES_PER_READ)).min(last);
        let (ready, over) = (VecDeque::new(), HashMap::new());
        let mut page = Self { root, from, at: from, ready, ready_bytes: 0, over, behind: false };
        // Fresh for each read, since a session may be deleted between two reads.
        let (mut followed, mut bodies, mut bytes) = (FollowedSessions::new(), HashSet::new(), 0_u64);
        while frame <= until && bytes < BYTES_PER_READ && page.ready_bytes < KEPT_BYTES {
            let found = match root {
                None => journal.frame_at(frame)?,
                // Most frames of a large store are of other trees.
                Some(_) => journal.frame_of(frame, |session, row| {
                    // The error of a head is returned with the frame.
                    let is_wanted = page.session(journal, &mut followed, session).map_or(true, |found| found.is_some());
                    bytes = if is_wanted { bytes } else { bytes.saturating_add(row) };
                    is_wanted
                })?,
            };
            if let Some((session, records)) = found {
                let prompts = records.iter().map(|stored| stored.record.body_bytes());
                bytes = prompts.fold(bytes.saturating_add(sum_bytes(&records)), u64::saturating_add);
                if !page.add_frame(journal, (&mut followed, &mut bodies), (frame, session), records)? {
                    break;
                }
            }
            page.at = Cursor::end_of(frame);
            frame = Lsn(frame.0.saturating_add(1));
        }
        page.behind = page.at < Cursor::end_of(last);
        // The rows are read after `last`, so they have all frames up to it.
        if page.behind && page.ready.is_empty() && root.is_some_and(|root| !may_continue(journal, root, frame)) {
            (page.at, page.behind) = (Cursor::end_of(last), false);
        }
        Ok(page)
    }

    /// Adds the records of a frame after `at`. Returns false if some do not fit; `at` is then before the first of them. `bodies` are those of
    /// all added records, which share them.
    fn add_frame(
        &mut self,
        journal: &Journal,
        (followed, bodies): (&mut FollowedSessions, &mut HashSet<Hash>),
        (lsn, session): (Lsn, SessionId),
        records: Vec<Stored>,
    ) -> Result<bool, FollowError> {
        let found = self.session(journal, followed, session)?;
        let Some(FollowedSession { root, deleted }) = found else { return Ok(true) };
        let given = if self.at.frame == lsn { self.at.records } else { 0 };
        let all = records.len();
        let max_bytes = max_kept_bytes(sum_bytes(&records));
        for (ix, stored) in (1_u32..).zip(records) {
            let new_bodies = stored.record.bodies().filter(|(hash, _)| !bodies.contains(hash));
            let new_bodies = new_bodies.map(|(_, bytes)| bytes).fold(0, u64::saturating_add);
            let bytes = self.ready_bytes.saturating_add(record_bytes(&stored)).saturating_add(new_bodies);
            if let Some(over) = attempt_ended_by(&stored.record) {
                let last = self.over.entry(session).or_insert(over);
                *last = (*last).max(over);
            }
            // Of a deleted session, only the deletion is sent: its other records may be erased at any time.
            if ix <= given || (deleted && !matches!(stored.record, Record::SessionDeleted { .. })) {
                continue;
            }
            if bytes > max_bytes && !self.ready.is_empty() {
                self.at = Cursor { frame: lsn, records: ix.saturating_sub(1) };
                return Ok(false);
            }
            self.ready_bytes = bytes;
            bodies.extend(stored.record.bodies().map(|(hash, _)| hash));
            let records = if ix as usize == all { u32::MAX } else { ix };
            let what = EventKind::Record { seq: stored.seq, record: Arc::new(stored.record) };
            self.ready.push_back(Followed::Event(Some(Cursor { frame: lsn, records }), Event { root, session, what }));
        }
        Ok(true)
    }

    fn session(
        &self,
        journal: &Journal,
        followed: &mut FollowedSessions,
        id: SessionId,
    ) -> Result<Option<FollowedSession>, FollowError> {
        if let Some(session) = followed.get(&id) {
            return Ok(*session);
        }
        let head = journal.head(id)?.filter(|head| self.root.is_none_or(|wanted| wanted == head.root));
        let session = match head {
            // A deletion of a tree starts at its root.
            Some(head) => {
                let deleted = head.deleted || journal.head(head.root)?.is_some_and(|root| root.deleted);
                Some(FollowedSession { root: head.root, deleted })
            }
            None => None,
        };
        followed.insert(id, session);
        Ok(session)
    }
}

fn attempt_ended_by(record: &Record) -> Option<(TurnNo, AttemptNo)> {
    if let Record::TurnAnswered(answered) = record {
        Some((answered.turn, answered.attempt))
    } else if let Record::AttemptDiscarded(discarded) = record {
        Some((discarded.turn, discarded.attempt))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
