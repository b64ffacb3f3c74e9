//! Running services by session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use subtend_session::command::{Summary, Unsummarised};
use subtend_session::ids::{SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::place::{BranchKind, Place, Service};
use subtend_session::record::{From, Hold, Record, SessionCreated};
use subtend_session::state::State;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::life::Lifecycle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Title,
    Summary,
    Compaction,
}

impl For {
    pub(crate) fn agent(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Summary => "summary",
            Self::Compaction => "compaction",
        }
    }

    pub(crate) fn service(self) -> Service {
        match self {
            Self::Title => Service::Title,
            Self::Summary => Service::Summary,
            Self::Compaction => Service::Compaction,
        }
    }

    /// The wall-clock limit of its run; a caller may wait for a summary.
    pub(crate) fn cap_ms(self) -> u64 {
        match self {
            Self::Title => 15_000,
            Self::Summary | Self::Compaction => 300_000,
        }
    }
}

/// Starts services for cells. Implemented above them, because it uses handles.
pub(crate) trait Starter: Send + Sync {
    /// Starts a title without waiting.
    fn name(self: Arc<Self>, first: Text, shift: Shift);

    /// Starts a compaction without waiting, and sends its summary. Dropping the receiver ends the service.
    fn condense(self: Arc<Self>, due: Box<DueCompaction>, shift: Shift, tell: oneshot::Sender<SummaryResult>);
}

pub(crate) type SummaryResult = Result<Summary, Unsummarised>;

/// A compaction for which a model call waits.
pub(crate) struct DueCompaction {
    pub(crate) root: SessionId,
    /// The birth of the service session.
    pub(crate) created: SessionCreated,
    /// The history, for the agent.
    pub(crate) text: Text,
}

pub(crate) struct Services {
    at_work: Mutex<BTreeMap<SessionId, Vec<AtWork>>>,
    numbers: AtomicU64,
    ended: Notify,
    life: Arc<Lifecycle>,
    starter: Weak<dyn Starter>,
    /// Whether the host wants titles.
    titles: bool,
}

struct AtWork {
    no: u64,
    what: For,
    stop: CancellationToken,
}

/// A running service, which ends when it is dropped.
pub(crate) struct Shift {
    services: Arc<Services>,
    pub(super) session: SessionId,
    no: u64,
    pub(super) stop: CancellationToken,
}

impl Drop for Shift {
    fn drop(&mut self) {
        let mut at_work = self.services.lock();
        if let Some(mine) = at_work.get_mut(&self.session) {
            mine.retain(|other| other.no != self.no);
            if mine.is_empty() {
                at_work.remove(&self.session);
            }
        }
        drop(at_work);
        self.services.ended.notify_waiters();
    }
}

/// The meaning of a batch for its session's services.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceSignal {
    /// The first message of a person, if the session needs a title.
    names: Option<Text>,
    stops: bool,
}

impl ServiceSignal {
    /// Returns the meaning of `records`, which led to `state`.
    pub(crate) fn of(state: &State, records: &[Record]) -> Self {
        let mut signal = Self::default();
        for record in records {
            if let Record::InputAccepted(input) = record
                && input.from == From::Person
                && signal.names.is_none()
                && is_nameless(state)
            {
                signal.names = Some(Arc::clone(&input.text));
            } else if is_over(record) {
                signal = Self { names: None, stops: true };
            }
        }
        signal
    }
}

/// Returns whether the session of `state` may be named and no title was requested before: a failed one is not retried.
fn is_nameless(state: &State) -> bool {
    let is_requested =
        || state.children.values().any(|child| child.kind == BranchKind::Service && *child.agent == *"title");
    state.created.place == Place::Root && !state.is_titled() && !is_requested()
}

/// Returns whether services end by `record`: of a cancelled run, a close or a deletion.
fn is_over(record: &Record) -> bool {
    if let Record::RunHeld { why, .. } = record {
        return matches!(&**why, Hold::Closing { outcome: Outcome::Cancelled { .. }, .. });
    }
    if let Record::RunEnded(ended) = record {
        return matches!(ended.outcome, Outcome::Cancelled { .. });
    }
    matches!(record, Record::SessionClosed { .. } | Record::SessionDeleted { .. })
}

impl Services {
    pub(crate) fn new(life: Arc<Lifecycle>, starter: Weak<dyn Starter>, titles: bool) -> Self {
        Self { at_work: Mutex::default(), numbers: AtomicU64::new(0), ended: Notify::new(), life, starter, titles }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Vec<AtWork>>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts and ends services after the append of a batch of `session`, without waiting.
    pub(crate) fn hear(self: &Arc<Self>, session: SessionId, signal: ServiceSignal) {
        if signal.stops {
            self.stop(Some(session));
        }
        if let Some(first) = signal.names
            && self.titles
            && let Some(starter) = self.starter.upgrade()
            && let Some(shift) = self.shift(session, For::Title)
        {
            starter.name(first, shift);
        }
    }

    /// Starts a service, unless the same one is running, or the runtime stops.
    pub(crate) fn shift(self: &Arc<Self>, session: SessionId, what: For) -> Option<Shift> {
        let (no, stop) = (self.numbers.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let mut at_work = self.lock();
        // Under the lock: a shutdown that starts now finds it and ends it.
        if self.life.is_stopping() {
            return None;
        }
        let mine = at_work.entry(session).or_default();
        if mine.iter().any(|other| other.what == what && !other.stop.is_cancelled()) {
            return None;
        }
        mine.push(AtWork { no, what, stop: stop.clone() });
        drop(at_work);
        Some(Shift { services: Arc::clone(self), session, no, stop })
    }

    /// Starts a compaction for which a model call waits. Another one of the session, which a person asked for or an earlier activation left,
    /// ends. `None` if the runtime stops.
    pub(crate) fn condense(
        self: &Arc<Self>,
        session: SessionId,
        due: Box<DueCompaction>,
    ) -> Option<(oneshot::Receiver<SummaryResult>, DropGuard)> {
        let other = |one: &&AtWork| one.what == For::Compaction;
        self.lock().get(&session).into_iter().flatten().filter(other).for_each(|one| one.stop.cancel());
        let (starter, shift) = (self.starter.upgrade()?, self.shift(session, For::Compaction)?);
        let (sender, receiver) = oneshot::channel();
        let stop = shift.stop.clone().drop_guard();
        starter.condense(due, shift, sender);
        Some((receiver, stop))
    }

    /// Ends the services of one session, or all.
    pub(crate) fn stop(&self, session: Option<SessionId>) {
        let at_work = self.lock();
        let mine = at_work.iter().filter(|(of, _)| session.is_none_or(|session| session == **of));
        mine.flat_map(|(_, all)| all).for_each(|one| one.stop.cancel());
    }

    /// Waits until no service of `session` runs, or no service at all.
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn done(&self, session: Option<SessionId>) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Registered before the check, so that an end in between is not missed.
            ended.as_mut().enable();
            let over = session.map_or_else(|| self.lock().is_empty(), |session| !self.lock().contains_key(&session));
            if over {
                return;
            }
            ended.await;
        }
    }
}
