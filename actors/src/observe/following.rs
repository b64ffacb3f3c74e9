//! Events of one session: its durable records from any position on, then live ones.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::{FutureExt as _, Stream};
use subtend_journal::{ReadError, Stored};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::record::Record;

use crate::life::Lifecycle;
use crate::log::Log;
use crate::observe::event::subscription::{Subscription, SubscriptionScope};
use crate::observe::event::{Event, EventKind, Next, QueueEvents};
use crate::observe::parts::{KEPT_BYTES, max_kept_bytes, record_bytes, sum_bytes};
use crate::observe::polling::Polled;
use crate::observe::streams::{self, AttemptKey};
use crate::values::error::Stopped;
use crate::values::paging::PAGE_BYTES;

/// Records read from the journal at a time.
const PAGE_SIZE: usize = 128;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The runtime stopped before the reader caught up, or its journal failed. Continue after the last seen record once the store is open again.
    #[error("{0}")]
    Stopped(Stopped),
    #[error("the session's events cannot be read: {0}")]
    Read(#[source] ReadError),
}

/// The events of one session: its records from a position on, each once and in order, and pieces of streamed answers; also a [`Stream`] of them.
///
/// Stored records are read from the journal, later ones arrive live. A reader that falls behind reads from the journal: it never misses a record and
/// never slows the session. After record `n`, start at `events(n.next())`, even after a restart.
///
/// Pieces of a retry come after the end of the previous attempt, and no piece comes after the end of its own attempt. The first attempt of a turn is
/// shown at once, on a slow disk even before the previous answer is durable. Changes of the queue ([`EventKind::Queue`]) follow their record; to
/// compute them, a late start reads the earlier records once, page by page. A delta with offset 0 starts the text so far, for a late or slow reader. To
/// assemble the text, truncate it to the delta's offset and append the piece.
pub struct Events {
    session: SessionId,
    reader: Polled<FollowingReader, Result<Option<EventsNext>, EventsError>>,
}

/// The next item of a reader that does not read the journal itself: see [`Events::next_or_behind`].
#[derive(Clone, Debug)]
pub enum EventsNext {
    Event(Event),
    /// The journal has records to read: call [`Events::read_page`].
    Behind,
}

struct FollowingReader {
    log: Arc<Log>,
    life: Arc<Lifecycle>,
    session: SessionId,
    root: SessionId,
    next: Seq,
    page: VecDeque<Stored>,
    /// Maximum bytes of further parts of a frame that the last page began; 0 after its last part.
    max_bytes: u64,
    queue: QueueEvents,
    /// The next record before the first event that `queue` reads; `None` once it has read them all.
    earlier: Option<Seq>,
    derived: VecDeque<Event>,
    /// True if the journal may hold records that do not arrive live.
    behind: bool,
    live: Subscription,
    over: Option<AttemptKey>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(log: Arc<Log>, life: Arc<Lifecycle>, session: SessionId, root: SessionId, from: Seq) -> Self {
        // Attached before the journal is read, so that no record is missed.
        let live = log.events.subscribe(SubscriptionScope::Session(session));
        let next = from.max(Seq(1));
        let reader = FollowingReader {
            log,
            life,
            session,
            root,
            next,
            page: VecDeque::new(),
            max_bytes: 0,
            queue: QueueEvents::default(),
            earlier: Some(Seq(1)).filter(|first| *first < next),
            derived: VecDeque::new(),
            behind: true,
            live,
            over: None,
        };
        Self { session, reader: Polled::new(reader) }
    }

    /// Returns the next event. After a shutdown, returns the remaining events and then `None`.
    /// # Errors
    /// [`EventsError`]; the call may be repeated.
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    /// # Durability
    /// A returned record is durable; the pieces of answers are not.
    pub async fn next(&mut self) -> Result<Option<Event>, EventsError> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Returns the next event as [`Events::next`] does, but does not read the journal: a caller may do that on another thread.
    /// # Errors, cancel safety
    /// As [`Events::next`].
    pub async fn next_or_behind(&mut self) -> Result<Option<EventsNext>, EventsError> {
        poll_fn(|cx| self.poll_step(cx)).await
    }

    /// Reads a page of records after [`EventsNext::Behind`]. Blocks while it reads.
    /// # Errors
    /// [`EventsError`]; the call may be repeated.
    pub fn read_page(&mut self) -> Result<(), EventsError> {
        self.reader.idle().map_or(Ok(()), FollowingReader::read)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, EventsError>> {
        loop {
            match ready!(self.poll_step(cx))? {
                Some(EventsNext::Event(event)) => return Poll::Ready(Ok(Some(event))),
                Some(EventsNext::Behind) => self.read_page()?,
                None => return Poll::Ready(Ok(None)),
            }
        }
    }

    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<EventsNext>, EventsError>> {
        self.reader.poll(cx, |mut reader| {
            async move {
                let next = reader.next().await;
                (reader, next)
            }
            .boxed()
        })
    }
}

impl Stream for Events {
    type Item = Result<Event, EventsError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(cx).map(Result::transpose)
    }
}

impl FollowingReader {
    async fn next(&mut self) -> Result<Option<EventsNext>, EventsError> {
        loop {
            if let Some(event) = self.derived.pop_front() {
                return Ok(Some(EventsNext::Event(event)));
            }
            if let Some(stored) = self.page.pop_front() {
                return Ok(Some(EventsNext::Event(self.deliver(stored.seq, Arc::new(stored.record)))));
            }
            if self.behind {
                // A record that was appended before this reader attached, but is not durable yet, does not arrive live.
                let settled = self.log.journal.settled().await;
                settled.map_err(|poison| EventsError::Stopped(Stopped::Poisoned(poison.to_string())))?;
                return Ok(Some(EventsNext::Behind));
            }
            match self.live.next().await {
                Some(Next::Event(event)) => {
                    if let Some(event) = self.map_event(event) {
                        return Ok(Some(EventsNext::Event(event)));
                    }
                }
                Some(Next::Missed(_)) => {
                    // Subscribes again, so that a text with missed pieces arrives complete.
                    self.live = self.log.events.subscribe(SubscriptionScope::Session(self.session));
                    self.behind = true;
                }
                None => {
                    return match self.log.journal.poisoned() {
                        Some(poison) => Err(EventsError::Stopped(Stopped::Poisoned(poison.to_string()))),
                        None => Ok(None),
                    };
                }
            }
        }
    }

    /// Reads a page, of earlier records first. After the last one the reader is no longer behind.
    fn read(&mut self) -> Result<(), EventsError> {
        if let Some(from) = self.earlier {
            return self.prime(from);
        }
        let (mut page, more) = self.page(self.next, KEPT_BYTES)?;
        // Later parts of a frame are as large as the first one, although less of it is left.
        let max_bytes = self.max_bytes.max(max_kept_bytes(sum_bytes(&page)));
        let (read, kept) = (page.len(), kept_records(&page, max_bytes));
        self.max_bytes = if kept < read { max_bytes } else { 0 };
        self.behind = kept < read || more;
        page.truncate(kept);
        page.shrink_to_fit();
        self.page = page.into();
        Ok(())
    }

    /// Returns a page of records, and whether there may be more.
    fn page(&self, from: Seq, max_bytes: u64) -> Result<(Vec<Stored>, bool), EventsError> {
        self.log.journal.page_from(self.session, from, PAGE_SIZE, max_bytes).map_err(|error| match error {
            ReadError::Closed => EventsError::Stopped(self.life.stopped()),
            error @ (ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_)) => EventsError::Read(error),
        })
    }

    /// Reads a page of the records before the first event, for the queue at that point. Other readers may read between two pages.
    fn prime(&mut self, from: Seq) -> Result<(), EventsError> {
        let (page, _) = self.page(from, PAGE_BYTES)?;
        for stored in page.iter().filter(|stored| stored.seq < self.next) {
            self.queue.add(stored.seq, &stored.record);
        }
        self.earlier = page.last().map(|last| last.seq.next()).filter(|next| *next < self.next);
        Ok(())
    }

    fn map_event(&mut self, event: Event) -> Option<Event> {
        match &event.what {
            // The record was read from the journal before it arrived.
            EventKind::Record { seq, .. } if *seq < self.next => None,
            EventKind::Record { seq, record } if *seq == self.next => {
                let record = Arc::clone(record);
                Some(self.deliver(*seq, record))
            }
            EventKind::Record { .. } => {
                self.behind = true;
                None
            }
            // The attempt's end was read from the journal before the piece arrived.
            EventKind::Delta { turn, attempt, .. } if Some((*turn, *attempt)) <= self.over => None,
            EventKind::Delta { .. } | EventKind::Progress { .. } | EventKind::Queue { .. } => Some(event),
        }
    }

    fn deliver(&mut self, seq: Seq, record: Arc<Record>) -> Event {
        self.next = seq.next();
        self.over = self.over.max(ended_attempt(&record));
        let (root, session) = (self.root, self.session);
        let changes = self.queue.add(seq, &record).into_iter();
        self.derived.extend(changes.map(|event| Event { root, session, what: EventKind::Queue { seq, event } }));
        Event { root: self.root, session: self.session, what: EventKind::Record { seq, record } }
    }
}

/// Returns the number of first records of a page that are kept in memory.
fn kept_records(page: &[Stored], max_bytes: u64) -> usize {
    let mut bytes = 0_u64;
    let fits = |stored: &&Stored| {
        bytes = bytes.saturating_add(record_bytes(stored));
        bytes <= max_bytes
    };
    page.iter().take_while(fits).count().max(1)
}

fn ended_attempt(record: &Record) -> Option<AttemptKey> {
    if let Record::TurnAnswered(answered) = record {
        Some((answered.turn, answered.attempt))
    } else if let Record::AttemptDiscarded(discarded) = record {
        Some((discarded.turn, discarded.attempt))
    } else if let Record::TurnStarted { turn, attempt, .. } = record {
        streams::before(*attempt).map(|before| (*turn, before))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use subtend_journal::faulty::Faulty;
    use subtend_journal::memory::Memory;
    use subtend_journal::{Batch, Frame, Journal, Options};
    use subtend_session::ids::{Epoch, InputId};
    use subtend_session::outcome::Initiator;
    use subtend_session::place::Owner;
    use subtend_session::record::{From, InputAccepted, Lane, MetadataSet};
    use subtend_supervision::Lease;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const SESSION: SessionId = SessionId(uuid::Uuid::from_u128(1));

    fn append(journal: &Journal, first_seq: Seq, records: Vec<Record>) {
        let (epoch, changes) = (Epoch(1), subtend_session::index::Changes::default());
        let frame = Frame { session: SESSION, first_seq, epoch, at_ms: 0, records, changes };
        journal.append(Batch { frames: vec![frame] }).expect("appended");
    }

    /// Returns the events of the session from `from` on.
    async fn events(journal: Journal, from: Seq) -> Events {
        journal.settled().await.expect("durable");
        let life = Lifecycle::new(journal.clone(), CancellationToken::new(), Lease::default());
        Events::new(Arc::new(Log::new(journal, 8)), Arc::new(life), SESSION, SESSION, from)
    }

    /// Returns the number of reads of one frame with 256 records of `bytes` bytes, and the most records of a read.
    async fn reads(bytes: usize) -> (usize, usize) {
        let journal = Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal");
        let set = || MetadataSet { metadata: "x".repeat(bytes).into(), by: Initiator::Person };
        let records = (0..256).map(|_| Record::MetadataSet(Box::new(set()))).collect();
        append(&journal, Seq(1), records);
        let mut events = events(journal, Seq(1)).await;
        let reader = events.reader.idle().expect("no poll is pending");
        let (mut reads, mut most) = (0, 0);
        while reader.behind {
            reader.read().expect("a page");
            // A page behind the last record is empty.
            let Some(last) = reader.page.back().map(|stored| stored.seq) else { continue };
            (reads, most) = (reads + 1, most.max(reader.page.len()));
            reader.next = last.next();
        }
        assert_eq!((reader.next, reader.max_bytes), (Seq(257), 0));
        (reads, most)
    }

    /// Attack: an imported frame of many large records. Each part decodes the whole frame again. The control: small records are read at once, and no
    /// read keeps all large ones.
    #[tokio::test]
    async fn large_frame_is_read_in_few_parts() {
        let (small, large) = (reads(10).await, reads(64 << 10).await);
        assert!(small.0 <= 2 && large.0 <= 20 && (10..20).contains(&large.1), "{small:?} {large:?}");
    }

    /// Attack: streams that start at the end of a large session, each of which would hold a permit for all of it. The control: the queue at
    /// that point has all earlier inputs.
    #[tokio::test]
    async fn late_start_reads_a_page_at_a_time() {
        const BYTES: usize = 256 << 10;
        let (engine, faults) = Faulty::new(Box::new(Memory::new()));
        let journal = Journal::open(Box::new(engine), Options::default()).expect("a journal");
        for seq in 1..=24 {
            let (id, text) = (InputId(uuid::Uuid::from_u128(seq.into())), "x".repeat(BYTES));
            let input = InputAccepted::new(id, From::Person, Lane::Send, text, Owner::Person);
            append(&journal, Seq(seq), vec![Record::InputAccepted(Box::new(input))]);
        }
        let mut events = events(journal, Seq(24)).await;
        let reader = events.reader.idle().expect("no poll is pending");
        let (mut reads, mut most) = (0, 0);
        while reader.page.is_empty() {
            let before = faults.read_bytes();
            reader.read().expect("a page");
            (reads, most) = (reads + 1, most.max(faults.read_bytes() - before));
        }
        assert!(reads > 5 && most < 6 * BYTES as u64, "{reads} reads of at most {most} bytes");
        // The first input is never held.
        let first = reader.page.front().map(|stored| stored.seq);
        assert_eq!((reader.queue.count(), reader.earlier, first), (22, None, Some(Seq(24))));
    }
}
