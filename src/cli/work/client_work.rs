//! A running command, as a client of the host of its store.

use std::path::PathBuf;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use subtend_host::Host;
use subtend_journal::Journal;
use subtend_journal::remote::Read;
use subtend_session::ids::{InputId, RunNo, Seq, SessionId, Text};

use super::super::client::{self, Connection};
use super::super::fail::Fail;
use super::super::paint::harmless;
use super::attempts::Attempts;
use super::face::Face;
use super::source::{EventSource, Since};
use super::{Screen, StopSignal};

/// A command that works with the host of its store, which is this process where no other one is.
pub(crate) struct Work<'a> {
    pub(crate) face: Face<'a>,
    pub(super) host: At<'a>,
    pub(super) connection: Connection,
    /// The store, read as the host reads it.
    pub(super) journal: &'a Journal,
    /// The session that the command is about, if it is about one.
    pub(super) session: Option<SessionId>,
    /// The run of that session that an earlier process left and that continues, or that another process works on.
    pub(crate) left: Option<RunNo>,
    /// The last record of that session before this command.
    pub(crate) before: Seq,
    /// The body that opens a new session.
    pub(super) opening: Value,
    pub(crate) screen: &'a mut Screen,
    pub(crate) stop: &'a mut StopSignal,
    /// Whether you are asked about calls that need an approval.
    pub(super) attended: bool,
    /// Whether the end of the input leaves the run, which continues elsewhere.
    pub(crate) leaves: bool,
    /// The commands that it sent.
    pub(super) attempts: &'a Attempts,
}

/// Where the host of a store is.
#[derive(Clone)]
pub(super) enum At<'a> {
    /// In this process.
    Own(&'a Host),
    /// In another one, at its socket.
    Socket(PathBuf),
}

/// The receipt of an input, or of a regenerated answer.
#[derive(Deserialize)]
pub(crate) struct Accepted {
    pub(crate) session: SessionId,
    pub(crate) run: RunNo,
    pub(crate) input: Option<InputId>,
}

/// A session that was opened.
#[derive(Deserialize)]
pub(crate) struct Opened {
    pub(crate) session: OpenedSession,
    pub(crate) input: Option<Accepted>,
}

/// The known facts of an opened session.
#[derive(Deserialize)]
pub(crate) struct OpenedSession {
    pub(crate) id: SessionId,
    model: Option<Text>,
}

impl Work<'_> {
    /// Returns the session of the command.
    ///
    /// # Errors
    /// [`Fail::Other`] if the command has no session.
    pub(crate) fn session(&self) -> Result<SessionId, Fail> {
        self.session.ok_or_else(|| Fail::Other("the session is no longer in the store".to_owned()))
    }

    /// Whether this process hosts the store: with it, its runs end.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.host, At::Own(_))
    }

    /// Opens one more connection to the host.
    pub(crate) async fn connect(&self) -> Result<Connection, Fail> {
        match &self.host {
            At::Own(host) => Ok(Connection::own(host.local())),
            At::Socket(path) => match Connection::open(path).await? {
                Some((connection, _)) => Ok(connection),
                None => Err(client::host_is_gone()),
            },
        }
    }

    /// Sends a command that creates something: sent again by a later try, it creates nothing more.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn create<T: for<'b> Deserialize<'b>>(&mut self, path: &str, body: &Value) -> Result<T, Fail> {
        let key = self.attempts.key(self.is_own());
        self.attempts.sent(self.connection.create(path, body, key.as_deref()).await)
    }

    /// Sends a command, with a body if it has one.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn call<T: for<'b> Deserialize<'b>>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        self.attempts.sent(self.connection.call(method, path, body).await)
    }

    /// Sends a command without a body; `None` where there is no such resource.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn find<T: for<'b> Deserialize<'b>>(
        &mut self,
        method: Method,
        path: &str,
    ) -> Result<Option<T>, Fail> {
        self.connection.find(method, path).await
    }

    /// Waits until earlier records are durable: a later subscription does not receive them.
    ///
    /// # Errors
    /// When the store failed.
    pub(crate) async fn settled(&self) -> Result<(), Fail> {
        if self.is_own() {
            self.journal.settled().await.map_err(|poison| Fail::Store(poison.to_string()))?;
        }
        Ok(())
    }

    /// Reads the store.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Journal) -> T) -> T {
        // Another process answers what is read, and this thread waits for it.
        tokio::task::block_in_place(|| read(self.journal))
    }

    /// Returns the point from which events are shown: now, in the tree of a session or in any.
    ///
    /// # Errors
    /// When the host does not answer.
    pub(crate) async fn since(&mut self, session: Option<SessionId>) -> Result<Since, Fail> {
        if let At::Own(host) = self.host {
            let root = session.map(|session| self.root_of(session)).transpose()?;
            return Ok(Since::own(host, root));
        }
        let read = serde_json::to_value(Read::LastLsn)?;
        self.connection.call(Method::POST, "/v1/store/reads", Some(&read)).await.map(Since::Log)
    }

    /// Returns the events of a tree.
    ///
    /// # Errors
    /// When the host does not answer.
    pub(crate) async fn events(&self, since: Since, root: SessionId) -> Result<EventSource, Fail> {
        match since {
            Since::Own(events) => Ok(EventSource::own(events, root)),
            Since::Log(after) => EventSource::other(self.connect().await?, root, after).await,
        }
    }

    /// Opens a session, with a first input where there is one.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(crate) async fn open(&mut self, text: Option<&str>) -> Result<Opened, Fail> {
        let mut body = self.opening.as_object().cloned().unwrap_or_default();
        if let Some(text) = text {
            body.insert("input".to_owned(), json!({"text": text}));
        }
        let opened: Opened = self.create("/v1/sessions", &body.into()).await?;
        if !self.is_own()
            && let Some(model) = &opened.session.model
        {
            self.screen.note(&format!("model: {}", harmless(model)));
        }
        Ok(opened)
    }

    /// Returns the agent of a session, for the tree.
    pub(crate) fn agent_of(&self, session: SessionId) -> Result<Text, Fail> {
        Ok(self.read(|journal| journal.head(session))?.map_or_else(|| "?".into(), |head| head.agent))
    }

    /// Returns the root of the tree of a session.
    pub(crate) fn root_of(&self, session: SessionId) -> Result<SessionId, Fail> {
        Ok(self.read(|journal| journal.head(session))?.map_or(session, |head| head.root))
    }
}
