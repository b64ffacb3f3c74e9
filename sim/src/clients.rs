//! Clients of a host in virtual time. The host is real. Its store is in memory and loses unwritten data when the host
//! is killed.
//!
//! A run is a series of hosts. Each is killed at some await point of its start or of a request, possibly between a
//! request and its reply. Readers follow all events across all hosts. Senders repeat keyed commands until they are
//! answered. Joiners follow runs in flight, including runs that a host recovered. Until a host has started, it refuses
//! connections, and clients retry. At the end the predicates judge the store and the observations of the clients.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use subtend_actors::{Options, Runtime};
use subtend_host::host_bug::{HostBug, InjectedBug};
use subtend_host::{Host, HostOptions};
use subtend_invariants::InvariantId;
use subtend_invariants::observed::{ClientLog, KeyedCommand, Observed, ObservedAnswer};
use subtend_journal::memory::Memory;
use subtend_journal::stepper::{Stepped, Stepper};
use subtend_journal::{Auditor, Journal};
use subtend_session::ids::SessionId;
use tokio::sync::watch;

mod joiner;
mod model;
mod reader;
mod request;
mod sender;

/// Number of hosts that are killed in each run.
const DEATHS: u32 = 6;
/// Time limit of the last host, in virtual time.
const LAST_HOST_TIMEOUT: Duration = Duration::from_secs(120);

/// Parameters of a run. Equal plans give equal runs.
#[derive(Clone, Copy, Debug)]
pub struct ClientPlan {
    pub seed: u64,
    /// The seeded bug, which must be noticed.
    pub host_bug: Option<HostBug>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRun {
    pub commands: u64,
    /// Number of commands that were sent to more than one host.
    pub resent: u64,
    /// Number of cancels that were answered as done.
    pub cancels: u64,
    pub received: u64,
    /// Number of event streams that a reader resumed after the last event that it had received.
    pub continued: u64,
    /// Number of connections that were refused while a host started.
    pub refused: u64,
    /// Number of times that a client joined a run in flight that an earlier host had begun.
    pub recovered: u64,
    pub violations: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<Mutex<fastrand::Rng>>);

impl Dice {
    pub(crate) fn below(&self, bound: u64) -> u64 {
        lock(&self.0).u64(0..bound.max(1))
    }

    pub(crate) async fn nap(&self, most_ms: u64) {
        tokio::time::sleep(Duration::from_millis(self.below(most_ms))).await;
    }
}

/// State that all clients share, across all hosts.
#[derive(Clone, Debug)]
pub(crate) struct SimClients {
    pub(crate) dice: Dice,
    state: Arc<Mutex<ClientsState>>,
}

#[derive(Debug, Default)]
pub(crate) struct ClientsState {
    /// True if senders start no further command.
    pub(crate) closing: bool,
    /// The session that was opened last. A reader that has received the event of its creation has received all events.
    pub(crate) last: Option<SessionId>,
    pub(crate) opened: Vec<KnownSession>,
    pub(crate) cancels: Vec<ObservedAnswer>,
    pub(crate) run: ClientRun,
}

/// A session, and the number of the host on which a client first knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownSession {
    pub(crate) session: SessionId,
    pub(crate) life: u32,
}

/// The socket of a host. It refuses connections until the host has started.
#[derive(Clone, Debug)]
pub(crate) struct RouterWatch(watch::Receiver<Option<Router>>);

impl RouterWatch {
    /// Returns the router of the host once it has started.
    pub(crate) async fn opened(&self, shared: &SimClients) -> Router {
        loop {
            let router = self.0.borrow().clone();
            if let Some(router) = router {
                return router;
            }
            shared.state().run.refused += 1;
            shared.dice.nap(20).await;
        }
    }
}

impl SimClients {
    pub(crate) fn state(&self) -> MutexGuard<'_, ClientsState> {
        lock(&self.state)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn simulate(plan: ClientPlan) -> ClientRun {
    let dice = Dice(Arc::new(Mutex::new(fastrand::Rng::with_seed(plan.seed))));
    let shared = SimClients { dice, state: Arc::default() };
    let clients = Clients {
        readers: (0..2 + shared.dice.below(3)).map(|_| Arc::default()).collect(),
        senders: (0..2 + shared.dice.below(2))
            .map(sender::CommandClient::new)
            .map(|sender| Arc::new(Mutex::new(sender)))
            .collect(),
        joiners: (0..2).map(|_| Arc::default()).collect(),
    };
    let memory = Memory::new();
    for life in 0..=DEATHS {
        let last = life == DEATHS;
        if let Err(why) = live(&memory, &shared, &clients, (plan, life), last) {
            shared.state().run.violations.push(why);
            break;
        }
    }
    let observed = Observed {
        clients: clients.readers.iter().map(|reader| lock(reader).log.clone()).collect::<Vec<ClientLog>>(),
        keyed: clients.senders.iter().flat_map(|sender| lock(sender).commands.clone()).collect::<Vec<KeyedCommand>>(),
        answers: shared.state().cancels.clone(),
        ..Observed::default()
    };
    let mut state = shared.state();
    state.run.commands = observed.keyed.len() as u64;
    state.run.cancels = observed.answers.len() as u64;
    state.run.received = observed.clients.iter().map(|client| client.received.len() as u64).sum();
    state.run.continued = clients.readers.iter().map(|reader| lock(reader).continued).sum();
    if let Err(why) = judge(&memory, &observed) {
        state.run.violations.push(why);
    }
    state.run.clone()
}

/// Judges the store and the observations of the clients. H-1 and H-2 come first.
fn judge(memory: &Memory, observed: &Observed) -> Result<(), String> {
    let open = Journal::open(Box::new(memory.clone()), subtend_journal::Options::default());
    let journal = open.map_err(|error| error.to_string())?;
    let mut auditor = Auditor::default();
    auditor.read(&journal).map_err(|error| error.to_string())?;
    for id in [InvariantId::H1, InvariantId::H2] {
        auditor.check_invariant(id, observed).map_err(|error| error.to_string())?;
    }
    auditor.check_observed(observed, true).map_err(|error| error.to_string())
}

struct Clients {
    readers: Vec<Arc<Mutex<reader::EventFollower>>>,
    senders: Vec<Arc<Mutex<sender::CommandClient>>>,
    joiners: Vec<Arc<Mutex<joiner::RunJoiner>>>,
}

/// Runs one host, from its start on the existing store until it is killed or everything is at rest.
fn live(
    memory: &Memory,
    shared: &SimClients,
    clients: &Clients,
    (plan, life): (ClientPlan, u32),
    last: bool,
) -> Result<(), String> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let tokio = tokio.map_err(|error| format!("tokio: {error}"))?;
    let done = tokio.block_on(async {
        let life = async {
            let (opens, door) = watch::channel(None);
            let door = RouterWatch(door);
            let readers = clients
                .readers
                .iter()
                .map(|reader| tokio::spawn(reader::read(Arc::clone(reader), door.clone(), shared.clone())));
            let readers: Vec<_> = readers.collect();
            let joiners = clients
                .joiners
                .iter()
                .map(|joiner| tokio::spawn(joiner::join(Arc::clone(joiner), door.clone(), shared.clone(), life)));
            let joiners: Vec<_> = joiners.collect();
            let senders = clients
                .senders
                .iter()
                .map(|sender| tokio::spawn(sender::send(Arc::clone(sender), door.clone(), shared.clone(), life)));
            let senders: Vec<_> = senders.collect();
            let host = start(memory, shared, plan, life).await?;
            let router = host.router();
            opens.send_replace(Some(router.clone()));
            for sender in senders {
                sender.await.map_err(|error| format!("a sender: {error}"))?;
            }
            await_rest(&router, &host, shared).await?;
            for client in readers.into_iter().chain(joiners) {
                client.await.map_err(|error| format!("a client: {error}"))?;
            }
            Ok::<_, String>(())
        };
        if last {
            shared.state().closing = true;
            return tokio::time::timeout(LAST_HOST_TIMEOUT, life)
                .await
                .map_err(|_| "the clients did not finish".to_owned())?;
        }
        let death = Duration::from_millis(1 + shared.dice.below(400));
        tokio::select! {
            done = life => done,
            () = tokio::time::sleep(death) => Ok(()),
        }
    });
    // Dropping tasks may start further tasks within the runtime. Those are dropped too.
    let handle = tokio.handle().clone();
    let _inside = handle.enter();
    drop(tokio);
    done
}

async fn start(memory: &Memory, shared: &SimClients, plan: ClientPlan, life: u32) -> Result<Host, String> {
    let opened = Journal::open_stepped(Box::new(memory.clone()), subtend_journal::Options::default());
    let (journal, stepper) = opened.map_err(|error| format!("cannot open the store: {error}"))?;
    tokio::spawn(write(stepper, shared.dice.clone()));
    let options = Options {
        titles: false,
        summaries: false,
        durable_before_call: true,
        seed: Some(plan.seed.wrapping_mul(100).wrapping_add(u64::from(life))),
        ..Options::default()
    };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model::model(&shared.dice)));
    let runtime = runtime.start().await.map_err(|error| format!("cannot start the runtime: {error}"))?;
    let injected_bug = plan.host_bug.map(InjectedBug::with).unwrap_or_default();
    Ok(Host::new(runtime, HostOptions { injected_bug, ..HostOptions::default() }))
}

/// Writes queued groups to the store, with delays.
async fn write(mut stepper: Stepper, dice: Dice) {
    loop {
        stepper.wait_for_work().await;
        dice.nap(12).await;
        if stepper.step(4) == Stepped::Closed {
            return;
        }
    }
}

/// Waits until nothing is in flight, and opens the session that marks the end.
async fn await_rest(router: &Router, host: &Host, shared: &SimClients) -> Result<(), String> {
    let journal = host.runtime().journal();
    loop {
        let quiet = journal.inflight().is_ok_and(|rows| rows.is_empty());
        let owed = journal.outbox().is_ok_and(|rows| !rows.is_empty());
        if quiet && !owed && journal.durable() == journal.last_appended() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let body = serde_json::json!({"title": "the end"});
    let (status, opened) = request::post(router, "/v1/sessions", Some("the end"), &body).await;
    let id = opened.pointer("/session/id").and_then(|id| id.as_str()?.parse().ok());
    shared.state().last = Some(id.ok_or_else(|| format!("cannot open the last session: {status}: {opened}"))?);
    Ok(())
}
