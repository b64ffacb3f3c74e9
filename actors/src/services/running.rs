//! Running services by session.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use subtend_session::command::{Summary, Unsummarised};
use subtend_session::ids::{SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::place::{BranchKind, Place, Service};
use subtend_session::record::{From, Hold, Record, SessionCreated};
use subtend_session::state::{Child, State};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::life::Lifecycle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceKind {
    Title,
    Summary,
    Compaction,
}

impl ServiceKind {
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

    /// Returns the wall-clock limit of the service's run. It is short, since a caller may wait for a summary.
    pub(crate) fn cap_ms(self) -> u64 {
        match self {
            Self::Title => 15_000,
            Self::Summary | Self::Compaction => 300_000,
        }
    }
}

/// Starts services for cells. A higher layer implements this trait, because a service needs session handles.
pub(crate) trait Starter: Send + Sync {
    /// Starts writing a title, without waiting for it.
    fn start_title(self: Arc<Self>, due: DueTitle, guard: ServiceGuard);

    /// Starts a compaction without waiting for it, and sends its summary. Dropping the receiver ends the service.
    fn compact_by_service(
        self: Arc<Self>,
        due: Box<DueCompaction>,
        guard: ServiceGuard,
        sender: oneshot::Sender<SummaryResult>,
    );
}

pub(crate) type SummaryResult = Result<Summary, Unsummarised>;

/// A compaction that a model call waits for.
pub(crate) struct DueCompaction {
    pub(crate) root: SessionId,
    pub(crate) created: SessionCreated,
    /// The history to summarise.
    pub(crate) text: Text,
}

pub(crate) struct Services {
    running_services: Mutex<BTreeMap<SessionId, Vec<RunningService>>>,
    numbers: AtomicU64,
    ended: Notify,
    life: Arc<Lifecycle>,
    starter: Weak<dyn Starter>,
    /// True if the host's options ask for titles.
    titles: bool,
}

struct RunningService {
    no: u64,
    what: ServiceKind,
    stop: CancellationToken,
}

/// A running service. Dropping it ends the service.
pub(crate) struct ServiceGuard {
    services: Arc<Services>,
    pub(super) session: SessionId,
    no: u64,
    pub(super) stop: CancellationToken,
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        let mut running_services = self.services.lock();
        if let Some(of_session) = running_services.get_mut(&self.session) {
            of_session.retain(|other| other.no != self.no);
            if of_session.is_empty() {
                running_services.remove(&self.session);
            }
        }
        drop(running_services);
        self.services.ended.notify_waiters();
    }
}

/// Maximum number of attempts at a title, each after the reset of the limit at which the last one failed.
const MAX_TITLES: usize = 5;

/// A title that may be due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DueTitle {
    /// The first message of a person; if empty, it is read from the journal.
    pub(super) first: Text,
    /// Sessions of the services that were started earlier to write a title.
    pub(super) earlier: Vec<SessionId>,
}

/// The effect of a batch on the services of its session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceSignal {
    title: Option<DueTitle>,
    stops: bool,
}

impl ServiceSignal {
    pub(crate) fn of(state: &State, records: &[Record]) -> Self {
        let mut signal = Self::default();
        for record in records {
            if ends_services(record) {
                signal = Self { title: None, stops: true };
            } else if signal.title.is_none() && needs_title(state) {
                signal.title = due_title(state, record);
            }
        }
        signal
    }
}

fn needs_title(state: &State) -> bool {
    state.created.place == Place::Root && !state.is_titled()
}

fn due_title(state: &State, record: &Record) -> Option<DueTitle> {
    let is_end = matches!(record, Record::RunEnded(_));
    let first = if let Record::InputAccepted(input) = record
        && input.from == From::Person
    {
        Arc::clone(&input.text)
    } else {
        Text::default()
    };
    if first.is_empty() && !is_end {
        return None;
    }
    let is_title = |child: &Child| child.kind == BranchKind::Service && *child.agent == *ServiceKind::Title.agent();
    let earlier: Vec<_> = state.children.iter().filter(|(_, child)| is_title(child)).map(|(id, _)| *id).collect();
    (earlier.len() < MAX_TITLES && !(is_end && earlier.is_empty())).then_some(DueTitle { first, earlier })
}

/// Returns whether `record` ends services: a cancelled run, a close or a deletion.
fn ends_services(record: &Record) -> bool {
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
        Self {
            running_services: Mutex::default(),
            numbers: AtomicU64::new(0),
            ended: Notify::new(),
            life,
            starter,
            titles,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Vec<RunningService>>> {
        self.running_services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts and ends services after the append of a batch of `session`, without waiting.
    pub(crate) fn apply(self: &Arc<Self>, session: SessionId, signal: ServiceSignal) {
        if signal.stops {
            self.stop(Some(session));
        }
        if let Some(due) = signal.title
            && self.titles
            && let Some(starter) = self.starter.upgrade()
            && let Some(guard) = self.begin(session, ServiceKind::Title)
        {
            starter.start_title(due, guard);
        }
    }

    /// Starts a service, unless the same one is running, or the runtime stops.
    pub(crate) fn begin(self: &Arc<Self>, session: SessionId, what: ServiceKind) -> Option<ServiceGuard> {
        let (no, stop) = (self.numbers.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        let mut running_services = self.lock();
        // Checked under the lock: a shutdown that starts now finds this service and ends it.
        if self.life.is_stopping() {
            return None;
        }
        let of_session = running_services.entry(session).or_default();
        if of_session.iter().any(|other| other.what == what && !other.stop.is_cancelled()) {
            return None;
        }
        of_session.push(RunningService { no, what, stop: stop.clone() });
        drop(running_services);
        Some(ServiceGuard { services: Arc::clone(self), session, no, stop })
    }

    /// Starts a compaction that a model call waits for; any other of the session ends. `None` if the runtime stops.
    pub(crate) fn compact_by_service(
        self: &Arc<Self>,
        session: SessionId,
        due: Box<DueCompaction>,
    ) -> Option<(oneshot::Receiver<SummaryResult>, DropGuard)> {
        let other = |one: &&RunningService| one.what == ServiceKind::Compaction;
        self.lock().get(&session).into_iter().flatten().filter(other).for_each(|one| one.stop.cancel());
        let (starter, guard) = (self.starter.upgrade()?, self.begin(session, ServiceKind::Compaction)?);
        let (sender, receiver) = oneshot::channel();
        let stop = guard.stop.clone().drop_guard();
        starter.compact_by_service(due, guard, sender);
        Some((receiver, stop))
    }

    /// Ends the services of one session, or all.
    pub(crate) fn stop(&self, session: Option<SessionId>) {
        let running_services = self.lock();
        let of_session = running_services.iter().filter(|(of, _)| session.is_none_or(|session| session == **of));
        of_session.flat_map(|(_, all)| all).for_each(|one| one.stop.cancel());
    }

    /// Waits until no service of `session` is running, or no service at all. Cancel safe.
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
