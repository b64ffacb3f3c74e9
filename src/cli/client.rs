//! The host of a store, as the command reaches it: its HTTP API, on the Unix socket of the data directory.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request, Response, header};
use serde::Deserialize;
use serde_json::Value;
use subtend_journal::remote::Remote;
use subtend_journal::{Journal, OpenError};
use tokio::runtime::Runtime;

use super::data::Place;
use super::fail::Fail;
use super::progress::Teller;

/// File of the socket, in the host's directory.
pub(crate) const SOCKET: &str = "host.sock";
/// Between two checks whether a process that has the store listens.
const LOOK: Duration = Duration::from_millis(50);
/// Checks at most: for three seconds.
const LOOKS: u32 = 60;

/// The process that serves a store.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Serving {
    pub(crate) pid: u32,
    pub(crate) version: String,
}

/// A connection to the host of a store. One request at a time.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// Where the host of a store listens, if one does.
pub(crate) fn socket(place: &Place) -> Option<PathBuf> {
    place.host_dir().map(|dir| dir.join(SOCKET))
}

impl Connection {
    /// Connects to the host that listens at `path`; `None` where none does.
    ///
    /// # Errors
    /// When another user listens there, or a host of another version.
    pub(crate) async fn open(path: &Path) -> Result<Option<(Self, Serving)>, Fail> {
        let Some(mut connection) = Self::connect(path).await? else { return Ok(None) };
        let serving: Serving = connection.get("/v1/host").await?;
        let own = env!("CARGO_PKG_VERSION");
        if serving.version != own {
            return Err(Fail::Store(format!(
                "the store is hosted by process {} of version {}, and this is version {own}: stop that process, or use its version",
                serving.pid, serving.version
            )));
        }
        Ok(Some((connection, serving)))
    }

    /// Without Unix sockets a store has no host that others could reach.
    #[cfg(not(unix))]
    async fn connect(_: &Path) -> Result<Option<Self>, Fail> {
        Ok(None)
    }

    #[cfg(unix)]
    async fn connect(path: &Path) -> Result<Option<Self>, Fail> {
        use hyper::client::conn::http1::handshake;
        use hyper_util::rt::TokioIo;
        use tokio::net::UnixStream;

        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            // A killed host leaves its socket behind.
            Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => return Ok(None),
            Err(error) => return Err(unreachable_at(path, &error.to_string())),
        };
        let peer = stream.peer_cred().map_err(|error| unreachable_at(path, &error.to_string()))?.uid();
        if peer != rustix::process::geteuid().as_raw() && peer != 0 {
            return Err(unreachable_at(path, &format!("it belongs to the user {peer}")));
        }
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| unreachable_at(path, &error.to_string()))?;
        // It ends with the sender.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Some(Self { sender }))
    }

    /// Sends a request; the response is not read yet.
    ///
    /// # Errors
    /// A problem, as [`Fail`]; [`Fail::Store`] when the host went away.
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>, Fail> {
        let bytes = body.map_or_else(|| Ok(Vec::new()), serde_json::to_vec)?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(bytes.into())).map_err(|error| gone(&error.to_string()))?;
        // The connection takes the next request when the answer before it was read whole.
        self.sender.ready().await.map_err(|error| gone(&error.to_string()))?;
        let response = self.sender.send_request(request).await.map_err(|error| gone(&error.to_string()))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let problem: Problem = serde_json::from_slice(&whole(response).await?)
            .unwrap_or_else(|_| Problem { detail: format!("the host answers {status}"), code: String::new() });
        Err(problem.into())
    }

    /// Sends a command with a body of JSON, and reads the answer.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn call<T: for<'a> Deserialize<'a>>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        let response = self.send(method, path, body).await?;
        let bytes = whole(response).await?;
        let text: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(text).map_err(|error| gone(&format!("its answer cannot be read: {error}")))
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn get<T: for<'a> Deserialize<'a>>(&mut self, path: &str) -> Result<T, Fail> {
        self.call(Method::GET, path, None).await
    }
}

/// Why the host refused.
#[derive(Deserialize)]
struct Problem {
    detail: String,
    code: String,
}

impl From<Problem> for Fail {
    fn from(of: Problem) -> Self {
        match &*of.code {
            "store_failed" | "session_damaged" => Self::Store(of.detail),
            "malformed" | "invalid_body" | "invalid_input" | "invalid_limit" | "invalid_rule" | "invalid_title"
            | "unknown_agent" | "unknown_model" | "workspace_unusable" | "no_price" => Self::Usage(of.detail),
            _ => Self::Other(of.detail),
        }
    }
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, Fail> {
    Ok(response.into_body().collect().await.map_err(|error| gone(&error.to_string()))?.to_bytes())
}

fn gone(why: &str) -> Fail {
    Fail::Store(format!("the host of the store did not answer: {why}. Call this again"))
}

fn unreachable_at(path: &Path, why: &str) -> Fail {
    Fail::Store(format!("the host at {} cannot be reached: {why}", path.display()))
}

/// The host of a store, for verbs that wait for each answer.
pub(crate) struct Attached {
    threads: Runtime,
    connection: Mutex<Connection>,
    /// The process.
    pub(crate) serving: Serving,
}

impl Attached {
    /// Connects to the host of a store, if it has one.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub(crate) fn to(place: &Place) -> Result<Option<Self>, Fail> {
        let Some(path) = socket(place).filter(|path| path.exists()) else { return Ok(None) };
        let threads = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fail::Other(format!("cannot start the async runtime: {error}")))?;
        let Some((connection, serving)) = threads.block_on(Connection::open(&path))? else { return Ok(None) };
        Ok(Some(Self { threads, connection: Mutex::new(connection), serving }))
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
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        self.threads.block_on(connection.call(method, path, body))
    }

    /// The store, read through the host.
    ///
    /// # Errors
    /// When the host does not answer.
    pub(crate) fn journal(self) -> Result<Journal, Fail> {
        let read = move |read: &subtend_journal::remote::Read| {
            let body = serde_json::to_value(read).map_err(|error| error.to_string())?;
            self.call(Method::POST, "/v1/store/reads", Some(&body)).map_err(|fail| fail.to_string())
        };
        Ok(Journal::open(Box::new(Remote::new(read)), subtend_journal::Options::default())?)
    }
}

/// A store, as a command has it.
pub(crate) enum Store {
    /// Another process hosts it.
    Hosted(Attached),
    /// This process has it.
    Own(Journal),
}

/// Opens a store for this process alone. A process that has it and does not listen, since it starts or ends, is waited for.
/// Starts no runtime, so that it may be called within one.
///
/// # Errors
/// As [`Place::open`]; where another process hosts it, that it is in use.
pub(crate) fn alone(place: &Place) -> Result<Journal, Fail> {
    let mut teller = Teller::new();
    for _ in 0..LOOKS {
        if listens(place) {
            break;
        }
        if let Some(journal) = try_own(place, &mut teller)? {
            return Ok(journal);
        }
    }
    place.open()
}

/// Connects to the host of a store, or opens it where it has none.
///
/// # Errors
/// As [`Place::open`] and [`Attached::to`]. A process that has the store and does not listen yet is waited for.
pub(crate) fn either(place: &Place) -> Result<Store, Fail> {
    let mut teller = Teller::new();
    for _ in 0..LOOKS {
        if let Some(host) = Attached::to(place)? {
            return Ok(Store::Hosted(host));
        }
        if let Some(journal) = try_own(place, &mut teller)? {
            return Ok(Store::Own(journal));
        }
    }
    place.open().map(Store::Own)
}

/// Opens a store; `None`, a moment later, where a process has it that may listen soon.
fn try_own(place: &Place, teller: &mut Teller) -> Result<Option<Journal>, Fail> {
    match place.try_open() {
        Ok(journal) => Ok(Some(journal)),
        // It made the directory of its socket, and recovers.
        Err(OpenError::InUse { .. }) if place.host_dir().is_some_and(|dir| dir.exists()) => {
            teller.tell(|| "waiting for the process that has the store to be ready".to_owned());
            std::thread::sleep(LOOK);
            Ok(None)
        }
        Err(error) => Err(place.refused(error)),
    }
}

/// Says whether a process listens on the socket of a store. A killed one leaves the socket, and does not.
#[cfg(unix)]
fn listens(place: &Place) -> bool {
    socket(place).is_some_and(|path| std::os::unix::net::UnixStream::connect(path).is_ok())
}

#[cfg(not(unix))]
fn listens(_: &Place) -> bool {
    false
}
