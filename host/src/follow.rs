//! Events of a tree or of a whole store, in the order of the journal: each durable one once, also over restarts of the host.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use subtend_actors::{Event, EventKind, Next, Runtime, Subscription};
use subtend_journal::{Journal, Poisoned, ReadError};
use subtend_session::ids::{AttemptNo, Lsn, SessionId, TurnNo};
use subtend_session::record::Record;

/// Frames that are read at a time, so that other tasks of the thread run in between.
const FRAMES: u64 = 256;

/// The position of a record in the store's one order: its frame, and its number within the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    frame: Lsn,
    /// Records of the frame up to here; `u32::MAX` for all.
    records: u32,
}

impl Cursor {
    /// Returns the place after all records of a frame and of those before it.
    pub fn end_of(frame: Lsn) -> Self {
        Self { frame, records: u32::MAX }
    }
}

/// Written `FRAME.RECORDS`, or `FRAME` after all records of the frame.
impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records {
            u32::MAX => write!(f, "{}", self.frame),
            records => write!(f, "{}.{records}", self.frame),
        }
    }
}

/// Why a text is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cursor {0:?}: give the id of an event as it is, such as 1234 or 1234.2")]
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

/// An event, and the cursor after it where it is durable.
#[derive(Clone, Debug)]
pub enum Followed {
    /// An event: a record with its cursor; the piece of an answer or a line of progress without one.
    Event(Option<Cursor>, Event),
    /// The reader was too slow and missed this many pieces of answers and lines of progress, but no record.
    Missed(u64),
}

/// Why a stream of events ends early.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The journal cannot be read.
    #[error("the events cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The journal failed: nothing becomes durable any more.
    #[error("the store failed: {0}")]
    Poisoned(#[from] Poisoned),
}

/// The events of one tree, or of all.
///
/// Records are read from the journal by their place in it, so that a reader that falls behind or connects again misses none. Pieces
/// of answers come live; none comes after the end of its attempt.
pub struct TreeEvents {
    root: Option<SessionId>,
    at: Cursor,
    live: Subscription,
    ready: VecDeque<Followed>,
    /// The last attempt of each session whose end was given.
    over: HashMap<SessionId, (TurnNo, AttemptNo)>,
    /// Roots of sessions seen since this was last up to date; `None` for those of other trees.
    roots: HashMap<SessionId, Option<SessionId>>,
    behind: bool,
}

impl fmt::Debug for TreeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeEvents").field("root", &self.root).field("at", &self.at).finish_non_exhaustive()
    }
}

impl TreeEvents {
    /// Follows the tree of `root`, or all trees, starting after `after`.
    pub fn new(runtime: &Runtime, root: Option<SessionId>, after: Cursor) -> Self {
        Self {
            root,
            at: after,
            // Before the journal is read: later events wake this stream.
            live: runtime.subscribe(root),
            ready: VecDeque::new(),
            over: HashMap::new(),
            roots: HashMap::new(),
            behind: true,
        }
    }

    /// Returns the next event of `runtime`, the one it was made with; `None` when that is shut down and everything was given.
    ///
    /// # Errors
    /// [`FollowError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self, runtime: &Runtime) -> Result<Option<Followed>, FollowError> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            // A client may be idle for long, and there may be many.
            self.ready = VecDeque::new();
            if self.behind {
                self.read(runtime)?;
                tokio::task::yield_now().await;
                continue;
            }
            match self.live.next().await {
                Some(Next::Event(event)) => self.apply(event),
                Some(Next::Missed(events)) => {
                    // Subscribed again, so that a text whose pieces were missed arrives complete.
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

    fn apply(&mut self, event: Event) {
        match &event.what {
            // Its frame is durable: it is read in its order, with all before it.
            EventKind::Record { .. } => self.behind = true,
            EventKind::Delta { turn, attempt, .. } if Some(&(*turn, *attempt)) <= self.over.get(&event.session) => {}
            EventKind::Delta { .. } | EventKind::Progress { .. } => self.ready.push_back(Followed::Event(None, event)),
            EventKind::Queue { .. } => {}
        }
    }

    /// Reads frames up to the last durable one, a bounded number at a time.
    fn read(&mut self, runtime: &Runtime) -> Result<(), FollowError> {
        let journal = runtime.journal();
        let last = journal.durable();
        let mut frame =
            if self.at.records == u32::MAX { Lsn(self.at.frame.0.saturating_add(1)) } else { self.at.frame };
        let until = Lsn(frame.0.saturating_add(FRAMES)).min(last);
        while frame <= until {
            if let Some((session, records)) = journal.frame_at(frame)? {
                self.frame(journal, frame, session, records)?;
            }
            self.at = Cursor::end_of(frame);
            frame = Lsn(frame.0.saturating_add(1));
        }
        self.behind = until < last;
        if !self.behind {
            self.roots = HashMap::new();
        }
        Ok(())
    }

    fn frame(
        &mut self,
        journal: &Journal,
        lsn: Lsn,
        session: SessionId,
        records: Vec<subtend_journal::Stored>,
    ) -> Result<(), FollowError> {
        let Some(root) = self.root_of(journal, session)? else { return Ok(()) };
        let given = if self.at.frame == lsn { self.at.records } else { 0 };
        let all = records.len();
        for (ix, stored) in (1_u32..).zip(records) {
            if let Some(over) = ended(&stored.record) {
                let last = self.over.entry(session).or_insert(over);
                *last = (*last).max(over);
            }
            if ix <= given {
                continue;
            }
            let records = if ix as usize == all { u32::MAX } else { ix };
            let what = EventKind::Record { seq: stored.seq, record: Arc::new(stored.record) };
            self.ready.push_back(Followed::Event(Some(Cursor { frame: lsn, records }), Event { root, session, what }));
        }
        Ok(())
    }

    fn root_of(&mut self, journal: &Journal, session: SessionId) -> Result<Option<SessionId>, FollowError> {
        if let Some(root) = self.roots.get(&session) {
            return Ok(*root);
        }
        let root = journal.head(session)?.map(|head| head.root);
        let followed = root.filter(|root| self.root.is_none_or(|wanted| wanted == *root));
        self.roots.insert(session, followed);
        Ok(followed)
    }
}

fn ended(record: &Record) -> Option<(TurnNo, AttemptNo)> {
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
    use super::*;

    #[test]
    fn cursor_reads_what_it_writes() {
        for text in ["0", "17", "17.2"] {
            assert_eq!(text.parse::<Cursor>().expect("a cursor").to_string(), text);
        }
        assert!(Cursor::end_of(Lsn(16)) < "17.1".parse().expect("a cursor"));
        assert!("17.1".parse::<Cursor>().expect("a cursor") < Cursor::end_of(Lsn(17)));
    }

    #[test]
    fn cursor_refuses_other_text() {
        for text in ["", "x", "1.", "1.x", "-1", "1.2.3"] {
            assert_eq!(text.parse::<Cursor>(), Err(BadCursor(text.to_owned())));
        }
    }
}
