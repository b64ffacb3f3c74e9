//! The host: a runtime with the shared state of all requests.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde::Serialize;
use subtend_actors::{Approver, OpenOptions, Runtime, SessionHandle, ShutdownReport};
use subtend_journal::{AppendError, Journal, Poisoned, ReadError};
use subtend_session::ids::SessionId;
use subtend_session::record::Record;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::command_locks::{CommandLocks, CommandTarget};
use crate::host_bug::InjectedBug;
use crate::imports::Imports;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::reads::{self, ReadPermits, ReadSender};
use crate::settings::Settings;
use crate::slash::CommandFiles;
use crate::warnings::ToolWarnings;
use crate::workers::Workers;

/// Options of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// True if calls that need an approval wait for a client; otherwise they are denied at once.
    pub approvals: bool,
    /// Maximum size of a request body in bytes.
    pub body_bytes: usize,
    /// Time limit for receiving a request body.
    pub body_time: Duration,
    /// Interval of heartbeats of an idle event stream.
    pub heartbeat: Duration,
    /// Defaults for opened sessions: agent, model, servers.
    pub open: OpenOptions,
    /// Absolute path of the runtime's own workspace. Sessions of other workspaces get an environment of their own
    /// ([`OpenOptions::workspace`]).
    pub home: Option<String>,
    /// True if the host serves until it is stopped; false if it ends with its runs.
    pub stays: bool,
    /// True if the host serves one of several shards. Its page then loads the count of all approvals from `/asks`.
    pub is_shard: bool,
    /// Storage of tool options that the page edits.
    pub settings: Option<Arc<dyn Settings>>,
    /// Source of slash commands for inputs with `expand`. Without it, such inputs are sent unchanged.
    pub commands: Option<Arc<dyn CommandFiles>>,
    /// Source of warnings about the tools of sessions. Without it, every session has an empty list.
    pub warnings: Option<Arc<dyn ToolWarnings>>,
    /// Remote tools of the runtime, registered by [`Workers::tools`].
    pub workers: Workers,
    /// Injected bug that drills and the simulator must detect.
    pub injected_bug: InjectedBug,
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            approvals: true,
            body_bytes: 4 << 20,
            body_time: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            open: OpenOptions::agent("general"),
            home: None,
            stays: false,
            is_shard: false,
            settings: None,
            commands: None,
            warnings: None,
            workers: Workers::default(),
            injected_bug: InjectedBug::default(),
        }
    }
}

/// A runtime that serves clients. Cheap to clone.
///
/// ```
/// # async fn example(runtime: subtend_actors::Runtime) {
/// let host = subtend_host::Host::new(runtime, subtend_host::HostOptions::default());
/// let app: axum::Router = host.router(); // nest it wherever your service wants it
/// # drop(app);
/// host.shutdown(std::time::Duration::from_secs(5)).await;
/// # }
/// ```
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
    /// The sender whose permits the reads of a stream use.
    stream_sender: ReadSender,
}

struct Inner {
    runtime: Arc<Runtime>,
    /// Kept attached while the host serves, because a client that can approve may connect at any time.
    _approver: Option<Approver>,
    options: HostOptions,
    metrics: Metrics,
    imports: Imports,
    reads: ReadPermits,
    locks: CommandLocks,
    sessions_by_key: Mutex<Option<SessionsByKey>>,
    /// Ends event streams. Fires when the host ends.
    ends: CancellationToken,
    /// Dropped last: when it fires, no request uses the runtime any more.
    released: ReleaseSignal,
}

/// Maximum number of keys that are kept in memory although their commands created no session.
const MAX_UNUSED_KEYS: usize = 1_000;

/// Sessions created by commands with an idempotency key, by the half of their id that is derived from the key. Loaded
/// from the store at the first use.
#[derive(Default)]
struct SessionsByKey {
    ids: HashMap<u64, SessionId>,
    /// Recently added halves, oldest first. Their commands may have been refused.
    recent: VecDeque<u64>,
}

impl SessionsByKey {
    /// Adds the session that a command is about to create, or returns the one that another created with the same key.
    /// Forgets old keys without a session, because a client may send any number of refused commands.
    fn add<E>(
        &mut self,
        id: SessionId,
        is_created: impl Fn(SessionId) -> Result<bool, E>,
    ) -> Result<Option<SessionId>, E> {
        let half = key_half(id);
        let before = self.ids.get(&half).copied();
        // If the earlier command failed, it created nothing, and the key can be reused.
        if let Some(before) = before.filter(|before| *before != id)
            && is_created(before)?
        {
            return Ok(Some(before));
        }
        self.ids.insert(half, id);
        if before.is_none() {
            self.recent.push_back(half);
        }
        if self.recent.len() > MAX_UNUSED_KEYS
            && let Some(oldest) = self.recent.pop_front()
            && let Some(unused) = self.ids.get(&oldest)
            && !is_created(*unused)?
        {
            self.ids.remove(&oldest);
        }
        Ok(None)
    }
}

/// The session that a command with a key creates. Locks out other commands with the same key.
pub(crate) struct KeyedSession {
    pub(crate) id: SessionId,
    _lock: OwnedMutexGuard<()>,
}

/// Fires its token when the last request has dropped the host.
struct ReleaseSignal(CancellationToken);

impl Drop for ReleaseSignal {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("runtime", &self.inner.runtime).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates a host for a started runtime.
    pub fn new(runtime: Runtime, options: HostOptions) -> Self {
        let approver = options.approvals.then(|| runtime.approver());
        let (metrics, ends) = (Metrics::new(), CancellationToken::new());
        let released = ReleaseSignal(CancellationToken::new());
        let runtime = Arc::new(runtime);
        let inner = Inner {
            runtime,
            _approver: approver,
            options,
            metrics,
            imports: Imports::default(),
            reads: ReadPermits::default(),
            locks: CommandLocks::default(),
            sessions_by_key: Mutex::default(),
            ends,
            released,
        };
        Self { inner: Arc::new(inner), stream_sender: ReadSender::default() }
    }

    /// Returns the API without checks of the sender, which [`crate::auth::Guard::protect`] adds.
    pub fn router(&self) -> Router {
        api::router(self)
    }

    /// Returns the runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    pub(crate) fn options(&self) -> &HostOptions {
        &self.inner.options
    }

    pub(crate) fn reads(&self) -> &ReadPermits {
        &self.inner.reads
    }

    /// Returns this host for a stream that outlives the request. Its reads count as those of the request's sender.
    pub(crate) fn for_stream(&self) -> Self {
        Self { stream_sender: reads::sender(), ..self.clone() }
    }

    /// Runs a read of a live view, with a permit of the sender that opened it.
    pub(crate) async fn read_view<T: Send + 'static>(&self, read: impl Future<Output = T> + Send + 'static) -> T {
        // Boxed, so that idle streams use little memory.
        Box::pin(self.inner.reads.read_view(self.stream_sender, read)).await
    }

    /// Runs a read of an event stream, with a permit of the sender that opened the stream.
    pub(crate) fn read_events<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> {
        self.inner.reads.read_events(self.stream_sender, read)
    }

    pub(crate) fn imports(&self) -> &Imports {
        &self.inner.imports
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.inner.options.workers
    }

    /// Returns the session that `command` creates with an idempotency key. A repetition gets the same session, even
    /// after a restart. Each kind of command, `of`, has its own keys.
    ///
    /// # Errors
    /// [`Problem`] `idempotency_key_reused` if another command created a session with the key.
    pub(crate) async fn lock_named_session(
        &self,
        of: &str,
        key: &str,
        command: &impl Serialize,
    ) -> Result<KeyedSession, Problem> {
        let command = serde_json::to_vec(command).map_err(|error| Problem::internal("internal", error.to_string()))?;
        let id = id_of(of, key, &command);
        self.load_sessions_by_key().await?;
        let alone = self.inner.locks.lock(CommandTarget::Key(key_half(id))).await;
        self.settled().await?;
        let journal = self.runtime().journal();
        let mut keyed = self.inner.sessions_by_key.lock().await;
        let made = keyed.get_or_insert_default();
        if made.add(id, |id| journal.head(id).map(|head| head.is_some()))?.is_some() || is_imported(journal, id)? {
            return Err(Problem::reused_key(key));
        }
        Ok(KeyedSession { id, _lock: alone })
    }

    /// Reads which sessions were created with keys, at the first use.
    async fn load_sessions_by_key(&self) -> Result<(), Problem> {
        if self.inner.sessions_by_key.lock().await.is_some() {
            return Ok(());
        }
        self.settled().await?;
        // The permit precedes the lock: no one waits for a permit while others wait for the lock.
        self.reads()
            .read_store(async {
                let mut loaded = self.inner.sessions_by_key.lock().await;
                if loaded.is_none() {
                    let heads = self.runtime().journal().heads()?.into_iter();
                    let keyed = heads.filter(|(id, _)| id.0.get_version_num() == 8);
                    let ids = keyed.map(|(id, _)| (key_half(id), id)).collect();
                    *loaded = Some(SessionsByKey { ids, ..SessionsByKey::default() });
                }
                Ok(())
            })
            .await?
    }

    /// Locks a session against its other repeatable commands, so that a repetition sees the result of the first request.
    pub(crate) async fn lock_session(&self, session: SessionId) -> OwnedMutexGuard<()> {
        self.inner.locks.lock(CommandTarget::Session(session)).await
    }

    /// Runs `read` with a permit, and `act` with its result, while no other repeatable command of the session runs.
    ///
    /// Never waits for the permit while it holds the lock, which would delay commands of other clients, nor for the lock
    /// or `act` while it holds the permit, which would delay their reads.
    pub(crate) async fn serialize_commands<T: Send, R: Send, F: Future<Output = Result<R, Problem>> + Send>(
        &self,
        session: SessionId,
        read: impl Future<Output = Result<T, Problem>> + Send,
        act: impl FnOnce(T) -> F + Send,
    ) -> Result<R, Problem> {
        let mut read = pin!(read);
        let mut ends = None;
        loop {
            let alone = self.lock_session(session).await;
            if let Some(found) = self.reads().try_read_session(read.as_mut()).await {
                return act(found?).await;
            }
            drop(alone);
            // One limit for all rounds, because the permit and the lock may be free in turns.
            let ends = *ends.get_or_insert_with(reads::permit_deadline);
            let locked = async {
                let alone = self.inner.locks.try_lock(CommandTarget::Session(session))?;
                Some((alone, read.as_mut().await))
            };
            if let Some((_alone, found)) = self.reads().read_session_until(ends, locked).await? {
                return act(found?).await;
            }
        }
    }

    /// Returns whether a client follows events. A chat does so even between its inputs.
    pub fn is_followed(&self) -> bool {
        self.inner.metrics.is_streaming()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Fires when the host ends.
    pub fn ends(&self) -> &CancellationToken {
        &self.inner.ends
    }

    /// Finds a session by `name`: an id, the start of one, a short name, `task_…`, or a path.
    ///
    /// # Errors
    /// [`Problem`] `session_not_found`, `session_deleted`, `ambiguous_session`, or an error of the journal.
    pub async fn session(&self, name: &str) -> Result<SessionHandle, Problem> {
        let found = match name.trim().parse::<SessionId>() {
            Ok(_) => self.runtime().find(name).await?,
            // Other names are looked up among all sessions.
            Err(_) => self.reads().read_session(self.runtime().find(name)).await??,
        };
        let handle = found.ok_or_else(|| Problem::no_session(name))?;
        match self.runtime().journal().head(handle.id())? {
            Some(head) if head.deleted => Err(Problem::deleted(handle.id())),
            Some(_) => {
                self.reads().await_turn(self.runtime().journal(), [handle.id()]).await?;
                Ok(handle)
            }
            None => Err(Problem::no_session(name)),
        }
    }

    /// Waits for the turn of a read that includes the parent and the children of a session, if one of them is large.
    pub(crate) async fn await_turn_with_relatives(&self, session: SessionId) -> Result<(), Problem> {
        let journal = self.runtime().journal();
        // A damaged session has neither here, and counts as large.
        let parent = journal.head(session).ok().flatten().and_then(|head| head.parent);
        let children = journal.children(session).unwrap_or_default();
        self.reads().await_turn(journal, [session].into_iter().chain(parent).chain(children)).await
    }

    /// Waits for the turn of a read that includes a session and all sessions below it, if they are large.
    pub(crate) async fn await_turn_of_tree(&self, top: SessionId) -> Result<(), Problem> {
        let journal = self.runtime().journal();
        let (mut known, mut next) = (HashSet::new(), vec![top]);
        let below = std::iter::from_fn(|| {
            let id = next.pop()?;
            // A damaged store may hold a cycle.
            if known.insert(id) {
                next.extend(journal.children(id).unwrap_or_default());
            }
            Some(id)
        });
        self.reads().await_turn(journal, below).await
    }

    /// Opens a session, or finds the one with the same id. Returns it, durable, and whether it is new.
    ///
    /// # Errors
    /// [`Problem`], for the errors of [`Runtime::open`].
    pub async fn open(&self, options: OpenOptions) -> Result<(SessionHandle, bool), Problem> {
        let known = match options.id {
            Some(id) => self.runtime().journal().head(id)?.is_some(),
            None => false,
        };
        // Opening reads files, and creates the model to learn its prices and context window.
        let handle = self.reads().read_session(async { self.runtime().open(options) }).await??;
        self.settled().await?;
        Ok((handle, !known))
    }

    /// Waits until all appended records are durable.
    pub(crate) async fn settled(&self) -> Result<(), Problem> {
        let failed = |poisoned: Poisoned| Problem::from(AppendError::Poisoned(poisoned));
        self.runtime().journal().settled().await.map_err(failed)
    }

    /// Ends event streams, then shuts the runtime down. Returns `None` if a request still uses the host after `grace`;
    /// the runtime is then dropped when that request ends.
    pub async fn shutdown(self, grace: Duration) -> Option<ShutdownReport> {
        self.inner.ends.cancel();
        let (runtime, released) = (Arc::clone(&self.inner.runtime), self.inner.released.0.clone());
        drop(self);
        tokio::time::timeout(grace, released.cancelled()).await.ok()?;
        let runtime = Arc::try_unwrap(runtime).ok()?;
        Some(runtime.shutdown(grace).await)
    }
}

/// Returns the id of the session that `command` creates with `key`. Its first half depends on the key only.
fn id_of(of: &str, key: &str, command: &[u8]) -> SessionId {
    let mut hasher = blake3::Hasher::new_derive_key("subtend host: session of an idempotency key");
    for part in [of, key] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let mut bytes = [0; 16];
    let (first, second) = bytes.split_at_mut(8);
    hasher.finalize_xof().fill(first);
    hasher.update(command);
    hasher.finalize_xof().fill(second);
    SessionId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// Returns whether an import brought the session. Its author may know a key and its command, from which the id follows.
fn is_imported(journal: &Journal, id: SessionId) -> Result<bool, ReadError> {
    match journal.head(id)? {
        None => return Ok(false),
        Some(head) if head.is_erased() => return Ok(head.imported),
        Some(_) => {}
    }
    let first = journal.first_record(id)?;
    Ok(matches!(first.record, Record::SessionCreated(created) if created.imported.is_some()))
}

/// Returns the half of a session's id that is derived from the key.
fn key_half(id: SessionId) -> u64 {
    id.0.as_u64_pair().0
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn add(sessions: &mut SessionsByKey, key: usize, command: &[u8], is_created: bool) -> Option<SessionId> {
        let added = sessions.add(id_of("session", &key.to_string(), command), |_| Ok::<_, Infallible>(is_created));
        added.unwrap_or_else(|never| match never {})
    }

    /// The control: keys whose commands created a session are all kept, and each refuses another command.
    #[test]
    fn keys_of_refused_commands_are_forgotten() {
        let many = MAX_UNUSED_KEYS * 3;
        for (is_created, kept) in [(false, MAX_UNUSED_KEYS), (true, many)] {
            let mut sessions = SessionsByKey::default();
            for key in 0..many {
                assert_eq!(add(&mut sessions, key, b"one", is_created), None);
            }
            assert_eq!((sessions.ids.len(), sessions.recent.len()), (kept, MAX_UNUSED_KEYS));
            let first = is_created.then(|| id_of("session", "0", b"one"));
            assert_eq!(add(&mut sessions, 0, b"two", is_created), first);
        }
    }

    /// A key that is sent many times is stored once.
    #[test]
    fn repeated_key_is_counted_once() {
        let mut sessions = SessionsByKey::default();
        for command in 0..MAX_UNUSED_KEYS * 3 {
            assert_eq!(add(&mut sessions, 0, command.to_string().as_bytes(), false), None);
        }
        assert_eq!((sessions.ids.len(), sessions.recent.len()), (1, 1));
    }
}
