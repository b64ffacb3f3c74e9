//! The host: a runtime with what all requests share.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde::Serialize;
use subtend_actors::{Approver, OpenOptions, Runtime, SessionHandle, ShutdownReport};
use subtend_journal::{AppendError, Poisoned};
use subtend_session::ids::SessionId;
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::flaw::Flawed;
use crate::metrics::{self, Metrics};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::slash::CommandFiles;
use crate::workers::Workers;

/// Bounds of a host.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Whether calls that need an approval wait for a client to give it; otherwise they are denied at once.
    pub approvals: bool,
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// Time for a whole request body.
    pub body_time: Duration,
    /// Time between two heartbeats of an idle event stream.
    pub heartbeat: Duration,
    /// Defaults for opened sessions: agent, model, servers.
    pub open: OpenOptions,
    /// The directory whose sessions are opened in the runtime's own environment, by its absolute path. Sessions of others are opened
    /// in theirs ([`OpenOptions::workspace`]).
    pub home: Option<String>,
    /// Where options of tools are kept that the page edits.
    pub settings: Option<Arc<dyn Settings>>,
    /// Where slash commands are found, for inputs that ask for them by `expand`. Without it they are texts.
    pub commands: Option<Arc<dyn CommandFiles>>,
    /// The remote tools of the runtime: those that its registry got by [`Workers::tools`].
    pub workers: Workers,
    /// A bug that drills and the simulator must notice.
    pub flawed: Flawed,
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
            settings: None,
            commands: None,
            workers: Workers::default(),
            flawed: Flawed::default(),
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
}

struct Inner {
    runtime: Arc<Runtime>,
    /// Someone can approve while the host serves: a client may attach at any time.
    _approver: Option<Approver>,
    options: HostOptions,
    metrics: Metrics,
    /// Held while a keyed command searches for the session that it made before, and makes it.
    keyed: Mutex<Option<SessionsByKey>>,
    /// Fires when the host ends, so that event streams end too.
    ends: CancellationToken,
    /// Dropped last: when it fires, no request holds the runtime.
    released: Released,
}

/// Sessions that keyed commands made, by the part of their id that comes from the key. Read from the store when it is first needed.
type SessionsByKey = HashMap<u64, SessionId>;

/// The session that a keyed command makes. No other keyed command makes one meanwhile.
pub(crate) struct Named<'a> {
    pub(crate) id: SessionId,
    _alone: MutexGuard<'a, Option<SessionsByKey>>,
}

/// Fires its token when the last request has dropped the host.
struct Released(CancellationToken);

impl Drop for Released {
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
    /// Takes a runtime that has started. Called within tokio: a task counts what becomes durable until the host ends.
    pub fn new(runtime: Runtime, options: HostOptions) -> Self {
        let approver = options.approvals.then(|| runtime.approver());
        let (metrics, ends) = (Metrics::new(), CancellationToken::new());
        let released = Released(CancellationToken::new());
        let runtime = Arc::new(runtime);
        let inner = Inner { runtime, _approver: approver, options, metrics, keyed: Mutex::default(), ends, released };
        let host = Self { inner: Arc::new(inner) };
        tokio::spawn(metrics::count(host.clone()));
        host
    }

    /// Returns the API and its documents, without a check of who sends a request: [`crate::auth::Guard::protect`] adds that.
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

    pub(crate) fn workers(&self) -> &Workers {
        &self.inner.options.workers
    }

    /// Names the session that `command` makes with an idempotency key: the same one whenever it is sent again, also after a restart.
    /// Keys are those of one kind of command, `of`.
    ///
    /// # Errors
    /// [`Problem`] `idempotency_key_reused` where the key made a session by another command.
    pub(crate) async fn named(&self, of: &str, key: &str, command: &impl Serialize) -> Result<Named<'_>, Problem> {
        let command = serde_json::to_vec(command).map_err(|error| Problem::internal("internal", error.to_string()))?;
        let (id, place) = id_of(of, key, &command);
        let mut alone = self.inner.keyed.lock().await;
        self.settled().await?;
        let journal = self.runtime().journal();
        let made = match &mut *alone {
            Some(made) => made,
            none => {
                let keyed = journal.heads()?.into_iter().filter(|(id, _)| id.0.get_version_num() == 8);
                none.insert(keyed.map(|(id, _)| (place_of(id), id)).collect())
            }
        };
        let before = made.insert(place, id).filter(|before| *before != id);
        // A command that failed made nothing: its key is free.
        if let Some(before) = before {
            let is_made = journal.head(before).map(|head| head.is_some());
            if !matches!(is_made, Ok(false)) {
                made.insert(place, before);
                return Err(is_made.map_or_else(Problem::from, |_| Problem::reused(key)));
            }
        }
        Ok(Named { id, _alone: alone })
    }

    /// Waits until no other command that may be sent again is carried out, so that the second finds what the first did.
    pub(crate) async fn alone(&self) -> MutexGuard<'_, impl Sized> {
        self.inner.keyed.lock().await
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Fires when the host ends.
    pub fn ends(&self) -> &CancellationToken {
        &self.inner.ends
    }

    /// Returns the session that a client calls `name`: an id, the start of one, a short name, `task_…`, or a path.
    ///
    /// # Errors
    /// [`Problem`] `session_not_found`, `session_deleted`, `ambiguous_session`, or why the journal cannot be read.
    pub async fn session(&self, name: &str) -> Result<SessionHandle, Problem> {
        let found = self.runtime().find(name).await?;
        let handle = found.ok_or_else(|| Problem::no_session(name))?;
        match self.runtime().journal().head(handle.id())? {
            Some(head) if head.deleted => Err(Problem::deleted(handle.id())),
            Some(_) => Ok(handle),
            None => Err(Problem::no_session(name)),
        }
    }

    /// Opens a session, or returns the one that was opened with the same id, and whether it is new. It is durable when it is returned.
    ///
    /// # Errors
    /// [`Problem`], as [`Runtime::open`] refuses it.
    pub async fn open(&self, options: OpenOptions) -> Result<(SessionHandle, bool), Problem> {
        let known = match options.id {
            Some(id) => self.runtime().journal().head(id)?.is_some(),
            None => false,
        };
        let handle = self.runtime().open(options)?;
        self.settled().await?;
        Ok((handle, !known))
    }

    /// Waits until all that was appended is durable.
    pub(crate) async fn settled(&self) -> Result<(), Problem> {
        let failed = |poisoned: Poisoned| Problem::from(AppendError::Poisoned(poisoned));
        self.runtime().journal().settled().await.map_err(failed)
    }

    /// Ends event streams, then the runtime as [`Runtime::shutdown`] does. `None` where a request still holds the host after
    /// `grace`: then the runtime is dropped with it.
    pub async fn shutdown(self, grace: Duration) -> Option<ShutdownReport> {
        self.inner.ends.cancel();
        let (runtime, released) = (Arc::clone(&self.inner.runtime), self.inner.released.0.clone());
        drop(self);
        tokio::time::timeout(grace, released.cancelled()).await.ok()?;
        let runtime = Arc::try_unwrap(runtime).ok()?;
        Some(runtime.shutdown(grace).await)
    }
}

/// Returns the id of the session that `command` makes with `key`, and its first half, which comes from the key alone.
fn id_of(of: &str, key: &str, command: &[u8]) -> (SessionId, u64) {
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
    let id = SessionId(uuid::Builder::from_custom_bytes(bytes).into_uuid());
    (id, place_of(id))
}

fn place_of(id: SessionId) -> u64 {
    id.0.as_u64_pair().0
}
