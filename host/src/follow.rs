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
mod tests {
    use subtend_actors::Options;
    use subtend_agents::catalog::Catalog;
    use subtend_agents::manifest::{AgentMode, Manifest};
    use subtend_journal::faulty::{Faults, Faulty};
    use subtend_journal::memory::Memory;
    use subtend_models::closure::fn_model;
    use subtend_models::model::Answer;

    use super::*;
    use crate::{Host, HostOptions};

    /// Reads the records of eight answers of `bytes` bytes. Returns how many, in how many reads, and the largest read.
    async fn reads(bytes: usize) -> (usize, usize, u64) {
        let model = fn_model("script", move |_, _| async move { Ok(Answer::of_text("x".repeat(bytes))) });
        let options = Options { titles: false, summaries: false, ..Options::default() };
        let runtime = Runtime::builder().model(Arc::new(model)).options(options).start().await.expect("a runtime");
        let session = runtime.open("general").expect("a session");
        for _ in 0..8 {
            session.send("go").await.expect("accepted").answer().await.expect("an answer");
        }
        let host = Host::new(runtime, HostOptions::default());
        let mut events = TreeEvents::new(host.runtime(), None, Cursor::default());
        let (mut records, mut reads, mut most) = (0, 0, 0_u64);
        while events.behind {
            events.start_page(FollowedPage::read(host.runtime().journal(), None, events.at).expect("a read"));
            let text = |ready: Followed| match ready {
                Followed::Event(_, Event { what: EventKind::Record { record, .. }, .. }) => record.text_bytes(),
                Followed::Event(..) | Followed::Missed(_) | Followed::Behind => 0,
            };
            (records, reads) = (records + events.ready.len(), reads + 1);
            most = most.max(events.ready.drain(..).map(text).sum());
        }
        drop(session);
        host.shutdown(Duration::from_secs(5)).await.expect("no request holds the host");
        (records, reads, most)
    }

    /// Without this limit, a stalled client could hold 256 frames of any size in memory: here one large record. The
    /// control: with small answers, one read returns the same records.
    #[tokio::test]
    async fn records_are_read_up_to_a_number_of_bytes() {
        let (large, small) = (reads(1 << 20).await, reads(10).await);
        assert_eq!(large, (small.0, 17, 1 << 20));
        assert_eq!((small.1, small.2), (1, 80));
    }

    /// Opens eight sessions of two agents in turns, with prompts of `bytes` bytes. Returns the number of reads of their
    /// records, and the most bytes of bodies that one read holds.
    async fn reads_of_prompts(bytes: usize) -> (usize, u64) {
        let model = fn_model("script", |_, _| async { Ok(Answer::of_text("done")) });
        let mut catalog = Catalog::builtin();
        for name in ["one", "two"] {
            catalog.insert(Manifest::new(name, AgentMode::All, name.repeat(bytes / 3)));
        }
        let options = Options { titles: false, summaries: false, ..Options::default() };
        let builder = Runtime::builder().model(Arc::new(model)).options(options).catalog(catalog);
        let runtime = builder.start().await.expect("a runtime");
        for name in ["one", "two"].repeat(4) {
            let session = runtime.open(name).expect("a session");
            session.send("go").await.expect("accepted").answer().await.expect("an answer");
        }
        let (mut events, mut reads, mut most) = (TreeEvents::new(&runtime, None, Cursor::default()), 0, 0_u64);
        while events.behind {
            events.start_page(FollowedPage::read(runtime.journal(), None, events.at).expect("a read"));
            let record = |ready| match ready {
                Followed::Event(_, Event { what: EventKind::Record { record, .. }, .. }) => Some(record),
                Followed::Event(..) | Followed::Missed(_) | Followed::Behind => None,
            };
            let records: Vec<_> = events.ready.drain(..).filter_map(record).collect();
            let bodies: HashMap<_, _> = records.iter().flat_map(|record| record.bodies()).collect();
            (reads, most) = (reads + 1, most.max(bodies.into_values().sum()));
        }
        runtime.shutdown(Duration::ZERO).await;
        (reads, most)
    }

    /// A prompt is stored once for all sessions that name it, and would be held again for each. The control: with small
    /// prompts, one read returns all records.
    #[tokio::test]
    async fn bodies_are_read_up_to_a_number_of_bytes() {
        let (large, small) = (reads_of_prompts(1 << 20).await, reads_of_prompts(30).await);
        assert_eq!((large.0, small.0), (16, 1), "{large:?} {small:?}");
        assert!((1 << 20..2 << 20).contains(&large.1), "{large:?} {small:?}");
    }

    /// Follows `root` up to the last of `events` events. Returns the frame of the first one, and the bytes that were read.
    async fn followed(host: &Host, faults: &Faults, root: Option<SessionId>, events: usize) -> (Lsn, u64) {
        let (before, mut first) = (faults.read_bytes(), None);
        let mut tree = TreeEvents::new(host.runtime(), root, Cursor::default());
        for _ in 0..events {
            let next = match tree.next(host.runtime()).await {
                Ok(Some(Followed::Behind)) => tree.read_page(host.runtime().journal()).ok().flatten(),
                next => next.ok().flatten(),
            };
            let Some(Followed::Event(Some(cursor), _)) = next else { panic!("a record") };
            first.get_or_insert(cursor.frame);
        }
        (first.expect("an event"), faults.read_bytes() - before)
    }

    /// Attack: streams of a small tree in a large store. The control: a stream of all trees reads their records.
    #[tokio::test]
    async fn stream_of_a_tree_reads_little_of_others() {
        let (engine, faults) = Faulty::new(Box::new(Memory::new()));
        let journal = Journal::open(Box::new(engine), subtend_journal::Options::default()).expect("a journal");
        let model = fn_model("script", |_, _| async { Ok(Answer::of_text("x".repeat(1 << 20))) });
        let options = Options { titles: false, summaries: false, ..Options::default() };
        let builder = Runtime::builder().journal(journal.clone()).model(Arc::new(model)).options(options);
        let runtime = builder.start().await.expect("a runtime");
        let large = async || {
            let session = runtime.open("general").expect("a session");
            for _ in 0..4 {
                session.send("go").await.expect("accepted").answer().await.expect("an answer");
            }
            session.id()
        };
        let (before, small) = (large().await, runtime.open("general").expect("a session").id());
        let after = large().await;
        let [before, of_tree, after] = [before, small, after].map(|id| journal.records(id).expect("records").len());
        let host = Host::new(runtime, HostOptions::default());
        let (first, bytes) = followed(&host, &faults, Some(small), of_tree).await;
        assert!(bytes < 1 << 20, "{bytes} bytes");
        assert_eq!(start_of(&journal, small), Cursor::end_of(Lsn(first.0 - 1)));
        let (first, bytes) = followed(&host, &faults, None, before + of_tree + after).await;
        assert!(first < start_of(&journal, small).frame && bytes > 8 << 20, "{bytes} bytes");
        host.shutdown(Duration::from_secs(5)).await.expect("no request holds the host");
    }

    #[test]
    fn formatted_cursor_parses_back() {
        for text in ["0", "17", "17.2"] {
            assert_eq!(text.parse::<Cursor>().expect("a cursor").to_string(), text);
        }
        assert!(Cursor::end_of(Lsn(16)) < "17.1".parse().expect("a cursor"));
        assert!("17.1".parse::<Cursor>().expect("a cursor") < Cursor::end_of(Lsn(17)));
    }

    #[test]
    fn invalid_cursor_is_refused() {
        for text in ["", "x", "1.", "1.x", "-1", "1.2.3"] {
            assert_eq!(text.parse::<Cursor>(), Err(BadCursor(text.to_owned())));
        }
    }
}
