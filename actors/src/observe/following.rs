//! Following one session: its durable events from any point on, and then as they come.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::{FutureExt as _, Stream};
use subtend_journal::{ReadError, Stored};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::record::Record;

use crate::life::Life;
use crate::log::Log;
use crate::observe::event::subscription::{Scope, Subscription};
use crate::observe::event::{Event, Next, QueueEvents, What};
use crate::observe::polling::Polled;
use crate::observe::streams::{self, Place};
use crate::values::error::Stopped;

/// Records that are read from the journal at a time.
const PAGE: usize = 128;

/// Why the events of a session end early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The runtime was shut down before the reader had caught up, or its journal failed: go on from the last record that
    /// was seen when the store is opened again.
    #[error("{0}")]
    Stopped(Stopped),
    /// The session's journal cannot be read.
    #[error("the session's events cannot be read: {0}")]
    Read(#[source] ReadError),
}

/// The events of one session: its records from one on, each once and in order, and the pieces of answers on their way; also
/// a [`Stream`] of them.
///
/// Records are read from the journal as far as they are there and come live from then on. A reader that falls behind is
/// given what it missed from the journal: it never misses a record, however slow it is, and never slows the session. After
/// the record with sequence number `n`, `events(n.next())` goes on where it stopped, also after a restart.
///
/// None of the deltas of a retry comes before the end of the attempt before it, none of any attempt after its own end. The
/// first attempt of a turn is shown as it comes: on a slow disk before the answer of the turn before it is durable.
/// Changes of the queue ([`What::Queue`]) follow the record that made them: durable, and the same whenever they are read. What is queued at
/// a late start follows from the records before it: the first reading goes through them once, a page in memory at a time.
/// One with offset 0 is the text so far: who attaches late, or fell behind, gets it once more. Whoever keeps the text cuts
/// it to the delta's offset and appends the piece.
pub struct Events {
    session: SessionId,
    reader: Polled<Reader, Result<Option<Event>, EventsError>>,
}

struct Reader {
    log: Arc<Log>,
    life: Arc<Life>,
    session: SessionId,
    root: SessionId,
    /// The record that comes next.
    next: Seq,
    page: VecDeque<Stored>,
    queue: QueueEvents,
    /// Whether `queue` has read the records before the first one that is given.
    primed: bool,
    /// Queue events of the record that was given last.
    derived: VecDeque<Event>,
    /// Whether there may be records in the journal that will not come live.
    behind: bool,
    live: Subscription,
    /// The last attempt whose end was given.
    over: Option<Place>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn new(log: Arc<Log>, life: Arc<Life>, session: SessionId, root: SessionId, from: Seq) -> Self {
        // Before the journal is read: what is appended from here on comes live, what was before is read.
        let live = log.events.subscribe(Scope::Session(session));
        let reader = Reader {
            log,
            life,
            session,
            root,
            next: from.max(Seq(1)),
            page: VecDeque::new(),
            queue: QueueEvents::default(),
            primed: false,
            derived: VecDeque::new(),
            behind: true,
            live,
            over: None,
        };
        Self { session, reader: Polled::new(reader) }
    }

    /// The next event, or `None` when the runtime is shut down and everything was given.
    ///
    /// # Errors
    /// [`EventsError`]; the same call may be made again.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    ///
    /// # Durability
    /// A record is durable when it is given; the pieces of answers are not.
    pub async fn next(&mut self) -> Result<Option<Event>, EventsError> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Event>, EventsError>> {
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

impl Reader {
    async fn next(&mut self) -> Result<Option<Event>, EventsError> {
        loop {
            if let Some(event) = self.derived.pop_front() {
                return Ok(Some(event));
            }
            if let Some(stored) = self.page.pop_front() {
                return Ok(Some(self.given(stored.seq, Arc::new(stored.record))));
            }
            if self.behind {
                self.read().await?;
                continue;
            }
            match self.live.next().await {
                Some(Next::Event(event)) => {
                    if let Some(event) = self.came(event) {
                        return Ok(Some(event));
                    }
                }
                Some(Next::Missed(_)) => {
                    // Attached anew, so that a text whose pieces were missed comes whole.
                    self.live = self.log.events.subscribe(Scope::Session(self.session));
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

    /// Reads a page. After the last one the reader is no longer behind: what comes after it comes live.
    async fn read(&mut self) -> Result<(), EventsError> {
        // A record that was appended before this reader attached, and is not durable yet, comes by no other way.
        let settled = self.log.journal.settled().await;
        settled.map_err(|poison| EventsError::Stopped(Stopped::Poisoned(poison.to_string())))?;
        if !self.primed {
            self.prime()?;
        }
        let page = self.page(self.next)?;
        self.behind = page.len() >= PAGE;
        self.page = page.into();
        Ok(())
    }

    fn page(&self, from: Seq) -> Result<Vec<Stored>, EventsError> {
        self.log.journal.records_from(self.session, from, PAGE).map_err(|error| match error {
            ReadError::Closed => EventsError::Stopped(self.life.stopped()),
            error @ (ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_)) => EventsError::Read(error),
        })
    }

    /// Reads what precedes the first record that is given: what is queued then.
    fn prime(&mut self) -> Result<(), EventsError> {
        let mut queue = QueueEvents::default();
        let mut from = Seq(1);
        while from < self.next {
            let page = self.page(from)?;
            let Some(last) = page.last().map(|stored| stored.seq) else { break };
            for stored in page.iter().filter(|stored| stored.seq < self.next) {
                queue.add(stored.seq, &stored.record);
            }
            from = last.next();
        }
        (self.queue, self.primed) = (queue, true);
        Ok(())
    }

    fn came(&mut self, event: Event) -> Option<Event> {
        match &event.what {
            // It was read from the journal before it came.
            What::Record { seq, .. } if *seq < self.next => None,
            What::Record { seq, record } if *seq == self.next => {
                let record = Arc::clone(record);
                Some(self.given(*seq, record))
            }
            What::Record { .. } => {
                self.behind = true;
                None
            }
            // Its end was read from the journal before it came.
            What::Delta { turn, attempt, .. } if Some((*turn, *attempt)) <= self.over => None,
            What::Delta { .. } | What::Progress { .. } | What::Queue { .. } => Some(event),
        }
    }

    fn given(&mut self, seq: Seq, record: Arc<Record>) -> Event {
        self.next = seq.next();
        self.over = self.over.max(ended(&record));
        let (root, session) = (self.root, self.session);
        let changes = self.queue.add(seq, &record).into_iter();
        self.derived.extend(changes.map(|event| Event { root, session, what: What::Queue { seq, event } }));
        Event { root: self.root, session: self.session, what: What::Record { seq, record } }
    }
}

/// The attempt that the record ends.
fn ended(record: &Record) -> Option<Place> {
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
