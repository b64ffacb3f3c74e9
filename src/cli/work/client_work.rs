//! A running command as a client of the host of its store.

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
use super::super::paint::on_one_line;
use super::super::servers::ServerWarnings;
use super::attempts::Attempts;
use super::output_options::OutputOptions;
use super::source::{EventSource, Since};
use super::{Screen, StopSignal};

/// State of a command that works with the host of its store, which is this process if no other process hosts the store.
pub(crate) struct Work<'a> {
    pub(crate) output_options: OutputOptions<'a>,
    pub(super) host: HostLocation<'a>,
    pub(super) connection: Connection,
    pub(super) journal: &'a Journal,
    pub(super) session: Option<SessionId>,
    /// Run of that session in flight: it resumes after a restart, or another process runs it.
    pub(crate) resuming_run: Option<RunNo>,
    /// Last record of that session before this command.
    pub(crate) before: Seq,
    /// Request body that opens a new session.
    pub(super) opening: Value,
    pub(crate) screen: &'a mut Screen,
    pub(crate) stop: &'a mut StopSignal,
    /// True if the user is asked about calls that need an approval.
    pub(super) attended: bool,
    /// True if the command stops following at the end of stdin, while the run continues in another process.
    pub(crate) can_leave: bool,
    pub(super) attempts: &'a Attempts,
    /// Warnings of MCP servers that were not printed yet; `None` if none are printed.
    pub(super) servers: Option<&'a mut ServerWarnings>,
}

#[derive(Clone)]
pub(super) enum HostLocation<'a> {
    /// This process.
    Own(&'a Host),
    /// Another process, at its socket.
    Socket(PathBuf),
}

/// The host's reply to an input or to a regenerate request.
#[derive(Deserialize)]
pub(crate) struct Accepted {
    pub(crate) session: SessionId,
    pub(crate) run: RunNo,
    pub(crate) input: Option<InputId>,
}

/// The host's reply to opening a session.
#[derive(Deserialize)]
pub(crate) struct Opened {
    pub(crate) session: OpenedSession,
    pub(crate) input: Option<Accepted>,
}

#[derive(Deserialize)]
pub(crate) struct OpenedSession {
    pub(crate) id: SessionId,
    model: Option<Text>,
}

impl Work<'_> {
    /// Prints new warnings of MCP servers of this process, which start with the first call of a model.
    pub(crate) fn warn_of_servers(&mut self) {
        let new = self.servers.as_mut().map(|servers| servers.take_new()).unwrap_or_default();
        new.iter().for_each(|why| self.screen.alert(why));
    }

    /// Prints new warnings of the MCP servers of a session that another process hosts.
    pub(crate) async fn warn_of_host_servers(&mut self, session: SessionId) {
        if self.is_own() || self.servers.is_none() {
            return;
        }
        let path = format!("/v1/sessions/{session}/warnings");
        // Errors are ignored: the host may have ended or be of an older version, and the command still succeeds.
        let Ok(Some(all)) = self.find::<Vec<String>>(Method::GET, &path).await else { return };
        let new = self.servers.as_mut().map(|servers| servers.keep_new(all)).unwrap_or_default();
        new.iter().for_each(|why| self.screen.alert(why));
    }

    /// Draws the tree above a prompt with a cursor. While a question is open, text of models is held back.
    pub(crate) fn draw(&mut self, prompt: (&str, usize), is_asking: bool) {
        self.warn_of_servers();
        self.screen.prompt(Some(prompt));
        self.screen.hold_text(is_asking);
        self.screen.draw();
    }

    /// Returns the session of the command.
    ///
    /// # Errors
    /// [`Fail::Other`] if the command has no session.
    pub(crate) fn session(&self) -> Result<SessionId, Fail> {
        self.session.ok_or_else(|| Fail::Other("the session is no longer in the store".to_owned()))
    }

    /// Returns whether this process hosts the store, so that its runs end with it.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.host, HostLocation::Own(_))
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Fail> {
        match &self.host {
            HostLocation::Own(host) => Ok(Connection::in_process(host.local())),
            HostLocation::Socket(path) => match Connection::open(path).await? {
                Some((connection, _)) => Ok(connection),
                None => Err(client::host_ended_error()),
            },
        }
    }

    /// Sends a request that creates a resource. A retry does not create a second one.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn create<T: for<'b> Deserialize<'b>>(&mut self, path: &str, body: &Value) -> Result<T, Fail> {
        let key = self.attempts.key(self.is_own());
        let (is_own, answer) = (self.is_own(), self.connection.create(path, body, key.as_deref()));
        self.attempts.record_result(if is_own { answer.await } else { self.stop.limit(answer).await })
    }

    /// Sends a request with an optional body.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn call<T: for<'b> Deserialize<'b>>(
        &mut self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        let (is_own, answer) = (self.is_own(), self.connection.call(method, path, body));
        self.attempts.record_result(if is_own { answer.await } else { self.stop.limit(answer).await })
    }

    /// Sends a request without a body; returns `None` if the resource does not exist.
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

    /// Waits until earlier records are durable, so that a later subscription does not receive them.
    ///
    /// # Errors
    /// If the store failed.
    pub(crate) async fn settled(&self) -> Result<(), Fail> {
        if self.is_own() {
            self.journal.settled().await.map_err(|poison| Fail::Store(poison.to_string()))?;
        }
        Ok(())
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&Journal) -> T) -> T {
        // Blocks this thread, because the read may wait for another process.
        tokio::task::block_in_place(|| read(self.journal))
    }

    /// Returns the current position of events: in the tree of a session, or in all trees.
    ///
    /// # Errors
    /// If the host does not answer.
    pub(crate) async fn since(&mut self, session: Option<SessionId>) -> Result<Since, Fail> {
        if let HostLocation::Own(host) = self.host {
            let root = session.map(|session| self.root_of(session)).transpose()?;
            return Ok(Since::of_host(host, root));
        }
        let read = serde_json::to_value(Read::LastLsn)?;
        self.connection.call(Method::POST, "/v1/store/reads", Some(&read)).await.map(Since::Log)
    }

    /// Subscribes to the events of a tree.
    ///
    /// # Errors
    /// If the host does not answer.
    pub(crate) async fn events(&self, since: Since, root: SessionId) -> Result<EventSource, Fail> {
        match since {
            Since::Own(events) => Ok(EventSource::of_subscription(events, root)),
            Since::Log(after) => EventSource::other(self.connect().await?, root, after).await,
        }
    }

    /// Opens a session, with an optional first input.
    ///
    /// # Errors
    /// If the session cannot be opened.
    pub(crate) async fn open(&mut self, text: Option<&str>) -> Result<Opened, Fail> {
        let mut body = self.opening.as_object().cloned().unwrap_or_default();
        if let Some(text) = text {
            body.insert("input".to_owned(), json!({"text": text}));
        }
        let opened: Opened = self.create("/v1/sessions", &body.into()).await?;
        if !self.is_own()
            && let Some(model) = &opened.session.model
        {
            self.screen.note(&format!("model: {}", on_one_line(model)));
        }
        Ok(opened)
    }

    /// Returns the name of a session's agent for the tree; `?` if it is unknown.
    pub(crate) fn agent_of(&self, session: SessionId) -> Result<Text, Fail> {
        Ok(self.read(|journal| journal.head(session))?.map_or_else(|| "?".into(), |head| head.agent))
    }

    pub(crate) fn root_of(&self, session: SessionId) -> Result<SessionId, Fail> {
        Ok(self.read(|journal| journal.head(session))?.map_or(session, |head| head.root))
    }
}
