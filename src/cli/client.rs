//! The client of a host: its HTTP API on the Unix socket of the data directory.

use std::path::{Path, PathBuf};
use std::sync::{self, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body as _;
use hyper::{Method, Request, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;
use subtend_host::api::FINGERPRINT as API;
use subtend_host::{Body, Local};
use subtend_journal::remote::{Read, Remote};
use subtend_journal::{Journal, OpenError};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::data::StoreLocation;
use super::fail::Fail;
use super::progress::ProgressLine;
use host_socket::{ANSWER_TIMEOUT, RequestSender};

mod host_socket;
#[cfg(test)]
#[cfg(unix)]
mod tests;

pub(crate) const SOCKET: &str = "host.sock";
/// Interval of checks whether the process that holds the store listens.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time of all checks: a host that shuts down gives running calls five seconds.
const MAX_WAIT: Duration = Duration::from_secs(7);
/// Maximum number of checks. One of a database takes longer than [`POLL_INTERVAL`], since it waits for the shard's lock.
const MAX_POLLS: u32 = 140;
/// Number of hosts that may end in a row before a read fails. Concurrent commands may host one after the other.
pub(crate) const HOSTS: u32 = 16;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ServingProcess {
    pub(crate) pid: u32,
    pub(crate) version: String,
    /// Hash of the API that the host serves; empty if it does not report one.
    #[serde(default)]
    api: String,
    /// True if the host serves until it is stopped; false if it ends with its runs.
    #[serde(default)]
    pub(crate) stays: bool,
}

/// A connection to the host of a store, for one request at a time.
pub(crate) struct Connection(Transport);

enum Transport {
    /// Another process hosts the store.
    Socket(RequestSender),
    /// This process hosts it.
    Own(Local),
}

/// Returns the path of the socket of a store's host, which may name the store by the other option.
pub(crate) fn socket(place: &StoreLocation) -> Option<PathBuf> {
    let own = place.host_dir()?.join(SOCKET);
    let other = place.other_host_dir().map(|dir| dir.join(SOCKET)).filter(|other| other.exists());
    Some(other.filter(|_| !is_listening_at(&own)).unwrap_or(own))
}

impl Connection {
    /// Connects to the host that listens at `path`; `None` if none does.
    ///
    /// # Errors
    /// If the listening process belongs to another user, or has another version.
    pub(crate) async fn open(path: &Path) -> Result<Option<(Self, ServingProcess)>, Fail> {
        match host_socket::connect(path).await? {
            Some(sender) => Self(Transport::Socket(sender)).check_version(path).await,
            None => Ok(None),
        }
    }

    /// Checks that a host of this version answers on the connection. Returns `None` if the host has ended.
    async fn check_version(mut self, path: &Path) -> Result<Option<(Self, ServingProcess)>, Fail> {
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, self.get::<ServingProcess>("/v1/host")).await;
        let Ok(asked) = asked else {
            return Err(unreachable_at(path, "it did not answer within 30 s. Wait until it is less busy, or stop it"));
        };
        // The process may have ended after it accepted the connection.
        let serving = match asked {
            Err(Fail::Unavailable(_)) => return Ok(None),
            answered => answered?,
        };
        let own = env!("CARGO_PKG_VERSION");
        if serving.version != own {
            return Err(Fail::Store(format!(
                "the store is hosted by process {} of version {}, and this is version {own}: stop that process, or use its version",
                serving.pid, serving.version
            )));
        }
        if serving.api != API {
            return Err(Fail::Store(format!(
                "the store is hosted by process {} of another build of version {own}: stop that process, or use its build",
                serving.pid
            )));
        }
        Ok(Some((self, serving)))
    }

    /// Connects to the host within this process.
    pub(crate) fn in_process(local: Local) -> Self {
        Self(Transport::Own(local))
    }

    /// Sends a request and returns the response; its body is not read yet.
    ///
    /// # Errors
    /// The host's problem as a [`Fail`]; [`Fail::Unavailable`] if the host has ended.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Fail> {
        self.send_with_key(method, path, body, None).await
    }

    async fn send_with_key(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Response<Body>, Fail> {
        let response = self.exchange(method, path, body, key).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(refusal(status, &read_body(response).await?))
    }

    /// Sends a request; the response may be a refusal.
    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Response<Body>, Fail> {
        let bytes = body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec)?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request.body(Full::new(Bytes::from(bytes))).map_err(|error| unavailable(&error.to_string()))?;
        Ok(match &mut self.0 {
            Transport::Socket(sender) => {
                // The connection accepts a request only when the previous response has been read to its end.
                sender.ready().await.map_err(|error| unavailable(&error.to_string()))?;
                sender.send_request(request).await.map_err(|error| unavailable(&error.to_string()))?.map(Body::new)
            }
            Transport::Own(local) => local.request(request.map(Body::new)).await,
        })
    }

    /// Sends a request without a body; returns `None` if the resource does not exist.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn find<T: for<'a> Deserialize<'a>>(
        &mut self,
        method: Method,
        path: &str,
    ) -> Result<Option<T>, Fail> {
        let response = self.exchange(method, path, None, None).await?;
        let status = response.status();
        let bytes = read_body(response).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !status.is_success() {
            return Err(refusal(status, &bytes));
        }
        read(&bytes).map(Some)
    }

    /// Sends a command with a JSON body, and reads the answer.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn call<T: for<'a> Deserialize<'a>>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        read(&read_body(self.send(method, path, body).await?).await?)
    }

    /// Sends a command that creates a resource, with an idempotency key if given. Other commands do not accept keys.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn create<T: for<'a> Deserialize<'a>>(
        &mut self,
        path: &str,
        body: &Value,
        key: Option<&str>,
    ) -> Result<T, Fail> {
        read(&read_body(self.send_with_key(Method::POST, path, Some(body), key).await?).await?)
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn get<T: for<'a> Deserialize<'a>>(&mut self, path: &str) -> Result<T, Fail> {
        self.call(Method::GET, path, None).await
    }
}

#[derive(Deserialize)]
struct HostRefusal {
    detail: String,
    code: String,
}

impl From<HostRefusal> for Fail {
    fn from(refusal: HostRefusal) -> Self {
        match &*refusal.code {
            "unknown_agent" => {
                Self::Usage(format!("{} (--agent NAME; `subtend agents` describes them)", refusal.detail))
            }
            "store_failed" | "session_damaged" => Self::Store(refusal.detail),
            "malformed" | "invalid_body" | "invalid_input" | "invalid_limit" | "invalid_rule" | "invalid_title"
            | "unknown_model" | "workspace_unusable" | "no_price" => Self::Usage(refusal.detail),
            _ => Self::Other(refusal.detail),
        }
    }
}

fn read<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, Fail> {
    let text: &[u8] = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(text).map_err(|error| unavailable(&format!("its answer cannot be read: {error}")))
}

/// Returns the host's reason for a refusal.
fn refusal(status: StatusCode, bytes: &[u8]) -> Fail {
    let problem: HostRefusal = serde_json::from_slice(bytes)
        .unwrap_or_else(|_| HostRefusal { detail: format!("the host answers {status}"), code: String::new() });
    problem.into()
}

async fn read_body(response: Response<Body>) -> Result<Bytes, Fail> {
    let body = response.into_body();
    let length = body.size_hint().exact();
    let bytes = body.collect().await.map_err(|error| unavailable(&error.to_string()))?.to_bytes();
    // If the connection is closed meanwhile, the body ends early without an error.
    match length.is_some_and(|length| length != bytes.len() as u64) {
        true => Err(unavailable("its answer is incomplete")),
        false => Ok(bytes),
    }
}

pub(crate) fn host_ended_error() -> Fail {
    Fail::Unavailable("the process that hosts the store ended: run the command again".to_owned())
}

fn unavailable(why: &str) -> Fail {
    Fail::Unavailable(format!("the host of the store did not answer: {why}. Run the command again"))
}

fn unreachable_at(path: &Path, why: &str) -> Fail {
    Fail::Store(format!("the host at {} cannot be reached: {why}", path.display()))
}

/// A blocking client of the host of a store.
pub(crate) struct Attached {
    async_runtime: Runtime,
    connection: Mutex<Connection>,
    pub(crate) serving: ServingProcess,
}

impl Attached {
    pub(crate) fn in_process(async_runtime: Runtime, local: Local) -> Self {
        let serving = ServingProcess {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api: API.to_owned(),
            stays: false,
        };
        Self { async_runtime, connection: Mutex::new(Connection::in_process(local)), serving }
    }

    /// Closes the connection and returns the async runtime.
    pub(crate) fn into_runtime(self) -> Runtime {
        self.async_runtime
    }

    /// Connects to the host of a store, if it has one.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub(crate) fn to(place: &StoreLocation) -> Result<Option<Self>, Fail> {
        let Some(path) = socket(place).filter(|path| path.exists()) else { return Ok(None) };
        let async_runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fail::Other(format!("cannot start the async runtime: {error}")))?;
        let Some((connection, serving)) = async_runtime.block_on(Connection::open(&path))? else { return Ok(None) };
        Ok(Some(Self { async_runtime, connection: Mutex::new(connection), serving }))
    }

    /// Sends a command, and reads the answer.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) fn call<T: for<'a> Deserialize<'a>>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        self.async_runtime.block_on(self.ask(method, path, body))
    }

    /// As [`Connection::find`].
    pub(crate) fn find<T: for<'a> Deserialize<'a>>(&self, method: Method, path: &str) -> Result<Option<T>, Fail> {
        self.async_runtime.block_on(async { self.connection.lock().await.find(method, path).await })
    }

    /// As [`Attached::call`], for async callers.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        self.connection.lock().await.call(method, path, body).await
    }

    /// Runs `work` to its end on the client's runtime.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.async_runtime.block_on(work)
    }

    /// Sends one read of the store to the host.
    fn read(&self, read: &Read) -> Result<Value, Fail> {
        self.call(Method::POST, "/v1/store/reads", Some(&serde_json::to_value(read)?))
    }

    /// Returns a journal that reads through the host. Reads fail when it has ended; the caller restarts the command.
    ///
    /// # Errors
    /// When the host does not answer.
    pub(crate) fn journal(self) -> Result<Journal, Fail> {
        remote_journal(move |read| self.read(read))
    }
}

fn remote_journal(read: impl Fn(&Read) -> Result<Value, Fail> + Send + Sync + 'static) -> Result<Journal, Fail> {
    let read = move |request: &Read| read(request).map_err(|fail| fail.to_string());
    Ok(Journal::open(Box::new(Remote::new(read)), subtend_journal::Options::default())?)
}

pub(crate) enum Store {
    /// Another process hosts it.
    Hosted(Attached),
    /// This process has opened it.
    Own(Journal),
}

impl Store {
    /// Returns a journal for reading, and whether another process hosts the store. If that process ends, later reads go
    /// through the next host, or directly to the store.
    ///
    /// # Errors
    /// When the host does not answer.
    pub(crate) fn into_journal(self, place: StoreLocation) -> Result<(Journal, bool), Fail> {
        let host = match self {
            Self::Own(journal) => return Ok((journal, false)),
            Self::Hosted(host) => host,
        };
        let now = sync::Mutex::new(Self::Hosted(host));
        let read = move |read: &Read| {
            let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..HOSTS {
                match now.read(read) {
                    Err(Fail::Unavailable(_)) => *now = connect_or_open(&place)?,
                    answered => return answered,
                }
            }
            now.read(read)
        };
        Ok((remote_journal(read)?, true))
    }

    fn read(&self, read: &Read) -> Result<Value, Fail> {
        match self {
            Self::Hosted(host) => host.read(read),
            Self::Own(journal) => Ok(journal.read(read)?),
        }
    }
}

/// Opens a store for this process alone. Waits if another process holds the store without listening, because that
/// process is starting or ending. May be called within an async runtime.
///
/// # Errors
/// As [`StoreLocation::open`]; "in use" if another process hosts the store.
pub(crate) fn open_exclusive(place: &StoreLocation) -> Result<Journal, Fail> {
    let (mut progress, give_up) = (ProgressLine::new(), Instant::now() + MAX_WAIT);
    for _ in 0..MAX_POLLS {
        if is_listening(place) || Instant::now() >= give_up {
            break;
        }
        if let Some(journal) = try_own(place, &mut progress)? {
            return Ok(journal);
        }
    }
    place.open()
}

/// Connects to the host of a store, or opens the store. Waits if another process holds it without listening.
///
/// # Errors
/// As [`StoreLocation::open`] and [`Attached::to`].
pub(crate) fn connect_or_open(place: &StoreLocation) -> Result<Store, Fail> {
    let (mut progress, give_up) = (ProgressLine::new(), Instant::now() + MAX_WAIT);
    for _ in 0..MAX_POLLS {
        if let Some(host) = Attached::to(place)? {
            return Ok(Store::Hosted(host));
        }
        if Instant::now() >= give_up {
            break;
        }
        if let Some(journal) = try_own(place, &mut progress)? {
            return Ok(Store::Own(journal));
        }
    }
    match place.try_open() {
        Ok(journal) => Ok(Store::Own(journal)),
        // Not `Unavailable`: the process may be on another machine, and the command is not tried again.
        Err(error @ OpenError::ClaimedElsewhere { .. }) => Err(Fail::Store(error.to_string())),
        Err(error) => Err(place.open_error(error)),
    }
}

/// Returns whether the process `pid` no longer hosts the store.
///
/// # Errors
/// As [`Attached::to`].
pub(crate) fn has_ended(place: &StoreLocation, pid: u32) -> Result<bool, Fail> {
    Ok(Attached::to(place)?.is_none_or(|host| host.serving.pid != pid))
}

/// Opens a store. If another process holds it, waits [`POLL_INTERVAL`] and returns `None`.
fn try_own(place: &StoreLocation, progress: &mut ProgressLine) -> Result<Option<Journal>, Fail> {
    match place.try_open() {
        Ok(journal) => Ok(Some(journal)),
        // The process that holds the store is starting and will listen soon, or it is ending.
        Err(OpenError::InUse { .. } | OpenError::ClaimedElsewhere { .. }) => {
            progress.report(|| "waiting for the process that holds the store to be ready".to_owned());
            std::thread::sleep(POLL_INTERVAL);
            Ok(None)
        }
        Err(error) => Err(place.open_error(error)),
    }
}

fn is_listening(place: &StoreLocation) -> bool {
    socket(place).is_some_and(|path| is_listening_at(&path))
}

/// Returns whether a process listens on a socket. A killed process leaves the socket file behind.
#[cfg(unix)]
fn is_listening_at(path: &Path) -> bool {
    use std::os::unix::net::UnixStream;
    use subtend_host::socket_path::SocketPath;
    SocketPath::of(path).and_then(|path| UnixStream::connect(path.as_path())).is_ok()
}

#[cfg(not(unix))]
fn is_listening_at(_: &Path) -> bool {
    false
}
