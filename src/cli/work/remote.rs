//! Runs of a store that another process hosts: sent to that process, and followed from here.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use subtend_actors::Ended;
use subtend_actors::event::{Event, Next, What};
use subtend_journal::remote::Read;
use subtend_models::model::Delta;
use subtend_session::ids::{CallId, Lsn, RunNo, SessionId, Text, TurnNo};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use subtend_session::usage::Usage;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

use super::super::client::{Connection, Serving, socket};
use super::super::fail::{Code, Fail};
use super::super::paint::harmless;
use super::super::trust::Trust;
use super::super::{cause, settings, workspace};
use super::face::Face;
use super::{Screen, Stop, WorkArgs, limit, policy, report, threads};

/// Between two drawings of the tree.
const FRAME: Duration = Duration::from_millis(100);

/// A verb that works through the host of its store.
pub(crate) struct Remote<'a> {
    face: Face<'a>,
    socket: PathBuf,
    connection: Connection,
    pub(crate) screen: &'a mut Screen,
    pub(crate) stop: &'a mut Stop,
    /// Comes when the person leaves.
    leaves: Option<oneshot::Receiver<()>>,
}

/// The receipt of an input.
#[derive(Deserialize)]
pub(crate) struct Accepted {
    pub(crate) session: SessionId,
    pub(crate) run: RunNo,
}

/// A run, as its resource says.
#[derive(Deserialize)]
struct Run {
    cause: Option<Outcome>,
    text: Option<Text>,
    turns: Option<u32>,
    usage: Option<Usage>,
}

/// Does `job` through the host of a store; `None` where no process hosts it. `fits` refuses options that only the host's own command
/// can have.
///
/// # Errors
/// Those of `fits` and `job`, and when the host cannot be used.
pub(crate) fn verb<J>(
    face: Face<'_>,
    fits: impl FnOnce(&Serving) -> Result<(), Fail>,
    job: J,
) -> Result<Option<Code>, Fail>
where
    J: AsyncFnOnce(Remote<'_>) -> Result<Code, Fail>,
{
    let Some(path) = socket(&face.store.place()?).filter(|path| path.exists()) else { return Ok(None) };
    let mut screen = Screen::new(face.quiet, face.json);
    let threads = threads()?;
    let done = threads.block_on(async {
        let mut stop = Stop::listen()?;
        let Some((connection, serving)) = Connection::open(&path).await? else { return Ok(None) };
        fits(&serving)?;
        let (screen, stop) = (&mut screen, &mut stop);
        job(Remote { face, socket: path, connection, screen, stop, leaves: None }).await.map(Some)
    });
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

impl WorkArgs {
    /// Refuses options of the process that has the store; for a session that exists, those of its opening too.
    pub(crate) fn through(&self, serving: &Serving, exists: bool) -> Result<(), Fail> {
        let of_process = [
            ("--host", !self.host.is_empty()),
            ("--price", !self.price.is_empty()),
            ("--trust", self.trust),
            ("--calls", self.models.limits_calls()),
            ("--model (or SUBTEND_MODEL)", exists && self.models.is_given()),
            ("--base-url (or SUBTEND_BASE_URL)", exists && !self.models.servers().is_empty()),
        ];
        match of_process.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Fail::Usage(format!(
                "`{option}`: the store is hosted by process {}, which decides that for its sessions; leave it out",
                serving.pid
            ))),
            None => Ok(()),
        }
    }

    /// The body that opens a session in the host with `text` as its first input, and the options of this command.
    ///
    /// # Errors
    /// [`Fail::Usage`] for what cannot take effect in this workspace.
    pub(crate) fn opening(&self, agent: Option<&str>, text: &str) -> Result<Value, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let trust = Trust::settle(&workspace, false, self.json)?;
        let catalog = trust.catalog(&workspace);
        policy::read(&self.allow, &self.ask, &catalog, &workspace)?;
        let agent: Text = match agent {
            Some(agent) => agent.into(),
            None => settings::load(&workspace, trust)?.config.agent,
        };
        Ok(json!({
            "workspace": workspace.path().to_string_lossy(),
            "agent": agent,
            "model": self.models.words(),
            "servers": self.models.servers(),
            "limits": limit::changes(&self.limit)?,
            "allow": self.allow,
            "ask": self.ask,
            "input": {"text": text},
        }))
    }
}

impl Remote<'_> {
    /// The end of the log: what is sent from here on comes after it.
    pub(crate) async fn end_of_log(&mut self) -> Result<Lsn, Fail> {
        let read = serde_json::to_value(Read::LastLsn)?;
        self.connection.call(Method::POST, "/v1/store/reads", Some(&read)).await
    }

    /// Sends a command.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub(crate) async fn post<T: for<'b> Deserialize<'b>>(&mut self, path: &str, body: &Value) -> Result<T, Fail> {
        self.connection.call(Method::POST, path, Some(body)).await
    }

    /// Sends `body` to `what` of the session that `name` means, and follows the run that takes it.
    pub(crate) async fn send(&mut self, name: &str, what: &str, body: &Value) -> Result<Code, Fail> {
        let (id, agent) = self.session(name).await?;
        let after = self.end_of_log().await?;
        let accepted: Accepted = self.post(&format!("/v1/sessions/{id}/{what}"), body).await?;
        self.follow(accepted.session, accepted.run, agent, after).await
    }

    /// Follows the run in flight of a session; at a terminal, the end of its input leaves it.
    pub(crate) async fn attach(&mut self, id: SessionId, after: Lsn) -> Result<Code, Fail> {
        #[derive(Deserialize)]
        struct Of {
            agent: Text,
            run: Option<RunNo>,
        }
        let of: Of = self.connection.get(&format!("/v1/sessions/{id}")).await?;
        let Some(run) = of.run else {
            let (name, again) = (id.short().0, self.face.store.again());
            self.screen.note(&format!("no run is in flight; write to it: subtend send {name}{again} TEXT"));
            return Ok(Code::Done);
        };
        if std::io::stdin().is_terminal() {
            let (left, leaves) = oneshot::channel();
            std::thread::spawn(move || {
                // Its end is what counts, or that it cannot be read.
                drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
                left.send(())
            });
            self.leaves = Some(leaves);
            self.screen.note("Ctrl-D leaves, Ctrl-C cancels the run");
        }
        self.follow(id, run, of.agent, after).await
    }

    /// Opens a session, and follows its first run, or leaves it and prints the id.
    pub(crate) async fn open(&mut self, body: &Value, leave: bool) -> Result<(SessionId, Code), Fail> {
        #[derive(Deserialize)]
        struct Opened {
            session: Of,
            input: Accepted,
        }
        #[derive(Deserialize)]
        struct Of {
            id: SessionId,
            agent: Text,
            model: Option<Text>,
        }
        let after = self.end_of_log().await?;
        let opened: Opened = self.post("/v1/sessions", body).await?;
        let Of { id, agent, model } = opened.session;
        if leave {
            writeln!(std::io::stdout(), "{id}")?;
            let again = self.face.store.again();
            self.screen.note(&format!("it runs on; follow it: subtend attach {}{again}", id.short().0));
            return Ok((id, Code::Done));
        }
        if let Some(model) = model {
            self.screen.note(&format!("model: {}", harmless(&model)));
        }
        Ok((id, self.follow(id, opened.input.run, agent, after).await?))
    }

    /// The session that `name` means, and its agent.
    pub(crate) async fn session(&mut self, name: &str) -> Result<(SessionId, Text), Fail> {
        #[derive(Deserialize)]
        struct Of {
            id: SessionId,
            agent: Text,
        }
        let of: Of = self.connection.get(&format!("/v1/sessions/{}", encoded(name))).await?;
        Ok((of.id, of.agent))
    }

    /// Follows a run to its end, from what comes after `after` in the log, and reports the end.
    pub(crate) async fn follow(
        &mut self,
        session: SessionId,
        run: RunNo,
        agent: Text,
        after: Lsn,
    ) -> Result<Code, Fail> {
        self.screen.watch(session, agent);
        if std::io::stdout().is_terminal() {
            self.screen.hear(session);
        }
        let followed = self.followed(session, run, after).await;
        self.screen.close();
        if !followed? {
            let (name, again) = (session.short().0, self.face.store.again());
            self.screen.note(&format!("it runs on; follow it: subtend attach {name}{again}"));
            return Ok(Code::Done);
        }
        // Its end is durable; that it is over comes to the host's waiters a moment later.
        let path = format!("/v1/sessions/{session}/runs/{run}?wait=true&timeout=10000");
        let of: Run = self.connection.get(&path).await?;
        let outcome = of.cause.ok_or_else(|| Fail::Other(format!("run {run} of session {session} has not ended")))?;
        let (turns, usage) = (of.turns.unwrap_or_default(), of.usage.unwrap_or_default());
        let ended = Ended { run, outcome, text: of.text, turns, usage };
        report::told(self.face, self.screen, session, &ended)?;
        Ok(cause::code(&ended.outcome))
    }

    /// Shows what happens until the run ends (`true`) or the person leaves.
    async fn followed(&mut self, session: SessionId, run: RunNo, after: Lsn) -> Result<bool, Fail> {
        let Some((mut connection, _)) = Connection::open(&self.socket).await? else { return Err(ended(session)) };
        let path = format!("/v1/trees/{session}/events?after={after}");
        let mut events =
            Events { body: connection.send(Method::GET, &path, None).await?.into_body(), text: Vec::new() };
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                () = self.stop.asked(), if !stopping => {
                    if self.stop.leaves() {
                        return Ok(false);
                    }
                    stopping = true;
                    self.screen.alert("asked to stop: cancelling the run and all that it started; Ctrl-C leaves at once");
                    let _: Value = self.connection.call(Method::POST, &format!("/v1/sessions/{session}/cancel?tree=true"), None).await?;
                }
                _ = frames.tick() => self.screen.draw(),
                line = events.next() => {
                    let Some(line) = line? else { return Err(ended(session)) };
                    if self.shown(session, run, line)? {
                        return Ok(true);
                    }
                }
                Some(_) = left(&mut self.leaves) => return Ok(false),
            }
        }
    }

    /// Shows one event; whether it is the end of the run.
    fn shown(&mut self, session: SessionId, run: RunNo, line: Value) -> Result<bool, Fail> {
        if self.face.json {
            writeln!(std::io::stdout(), "{line}")?;
        }
        match read(session, line) {
            Some(Next::Event(event)) => {
                self.screen.take(&event);
                let What::Record { record, .. } = &event.what else { return Ok(false) };
                if let Record::AskOpened { call, .. } = &**record {
                    let name = event.session.short().0;
                    self.screen.alert(&format!(
                        "call {call} of session {name} waits for an approval: `subtend approvals {name}` shows it, --allow {call} or \
                         --deny {call} answers"
                    ));
                }
                Ok(event.session == session && matches!(&**record, Record::RunEnded(ended) if ended.run == run))
            }
            Some(Next::Missed(events)) => {
                self.screen.missed(events);
                Ok(false)
            }
            None => Ok(false),
        }
    }
}

/// Comes when the person leaves; nothing where nobody can.
async fn left(leaves: &mut Option<oneshot::Receiver<()>>) -> Option<()> {
    match leaves {
        Some(leaves) => leaves.await.ok(),
        None => std::future::pending().await,
    }
}

/// A name as a part of a path.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escaped = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(escaped).collect()
}

fn ended(session: SessionId) -> Fail {
    let name = session.short().0;
    Fail::Store(format!(
        "the host of the store ended before the run did: `subtend tree {name}` shows what became of it, `subtend continue {name}` continues it"
    ))
}

/// An event as the host writes it, for the screen.
fn read(root: SessionId, line: Value) -> Option<Next> {
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Line {
        Record {
            session: SessionId,
            seq: subtend_session::ids::Seq,
            record: Box<Record>,
        },
        Delta {
            session: SessionId,
            run: RunNo,
            turn: TurnNo,
            attempt: subtend_session::ids::AttemptNo,
            kind: String,
            offset: u64,
            text: Text,
        },
        Progress {
            session: SessionId,
            call: CallId,
            line: Text,
        },
        Missed {
            events: u64,
        },
        #[serde(other)]
        Other,
    }
    let (session, what) = match serde_json::from_value(line).ok()? {
        Line::Record { session, seq, record } => (session, What::Record { seq, record: Arc::new(*record) }),
        Line::Delta { session, run, turn, attempt, kind, offset, text } => {
            let delta = match &*kind {
                "text" => Delta::Text(text),
                "reasoning" => Delta::Reasoning(text),
                _ => Delta::Call { call: CallId { turn, ix: u32::try_from(offset).ok()? }, tool: text },
            };
            (session, What::Delta { run, turn, attempt, offset, delta })
        }
        Line::Progress { session, call, line } => (session, What::Progress { call, line }),
        Line::Missed { events } => return Some(Next::Missed(events)),
        Line::Other => return None,
    };
    Some(Next::Event(Event { root, session, what }))
}

/// The data of server-sent events.
struct Events {
    body: Incoming,
    text: Vec<u8>,
}

impl Events {
    /// The next one; `None` when the host ended the stream.
    ///
    /// # Cancel safety
    /// Safe: what was read stays.
    async fn next(&mut self) -> Result<Option<Value>, Fail> {
        loop {
            while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                if let Some(data) = line.strip_prefix(b"data:") {
                    let read = serde_json::from_slice(data);
                    return read
                        .map(Some)
                        .map_err(|error| Fail::Store(format!("an event of the host cannot be read: {error}")));
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.text.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}
