//! A client that sends keyed commands until they are answered, and cancels runs concurrently with another client.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use subtend_invariants::When;
use subtend_invariants::observed::{ControlAnswer, KeyedCommand, ObservedAnswer, ReplySubject};
use subtend_session::ids::{InputId, RunKey, RunNo, SessionId};
use subtend_session::outcome::Initiator;

use super::{KnownSession, RouterWatch, SimClients, lock, request};

/// The requests of a sender and their answers, across all hosts.
#[derive(Debug)]
pub(super) struct CommandClient {
    number: u64,
    sessions: Vec<SessionId>,
    pub(super) commands: Vec<KeyedCommand>,
    /// The command that has no reply yet: the last of `commands`.
    pending: Option<Pending>,
}

#[derive(Clone, Debug)]
struct Pending {
    path: String,
    body: Value,
    /// True if the run never ends by itself. It is cancelled when it is open.
    hangs: bool,
    sent: bool,
}

impl Pending {
    fn opens_session(&self) -> bool {
        !self.path.ends_with("/inputs")
    }
}

impl CommandClient {
    pub(super) fn new(number: u64) -> Self {
        Self { number, sessions: Vec::new(), commands: Vec::new(), pending: None }
    }

    /// Returns the command that has no reply yet, or a new command.
    fn next(&mut self, shared: &SimClients) -> Option<(Pending, String)> {
        if self.pending.is_none() {
            if shared.state().closing {
                return None;
            }
            let what = *["tree", "hang", "input", "input"].get(usize::try_from(shared.dice.below(4)).ok()?)?;
            let text = format!("{what} {} of {}", self.commands.len(), self.number);
            let of = usize::try_from(shared.dice.below(self.sessions.len() as u64)).ok()?;
            let (path, body) = match self.sessions.get(of).filter(|_| what == "input") {
                Some(session) => (format!("/v1/sessions/{session}/inputs"), json!({"text": text})),
                None => {
                    // Half of the runs resume on the next host.
                    let on_restart = if shared.dice.below(2) == 0 { "resume" } else { "fail" };
                    let body = json!({"title": text, "on_restart": on_restart, "input": {"text": text}});
                    ("/v1/sessions".to_owned(), body)
                }
            };
            self.commands.push(KeyedCommand { text: text.into(), replies: Vec::new() });
            self.pending = Some(Pending { path, body, hangs: what == "hang", sent: false });
        }
        let (pending, command) = self.pending.as_mut().zip(self.commands.last())?;
        if pending.sent {
            shared.state().run.resent += 1;
        }
        pending.sent = true;
        Some((pending.clone(), command.text.to_string()))
    }

    /// Marks the command as answered, so that the next command may be sent, possibly to the same session.
    fn done(&mut self, session: SessionId, pending: &Pending) {
        if pending.opens_session() && !pending.hangs {
            self.sessions.push(session);
        }
        self.pending = None;
    }

    /// Records a reply; returns the session that it names.
    fn take(&mut self, reply: &Value) -> Option<SessionId> {
        let receipt = reply.get("session").filter(|session| session.is_object()).and_then(|_| reply.get("input"));
        let receipt = receipt.unwrap_or(reply);
        let id = |name: &str| receipt.get(name).and_then(Value::as_str);
        let session: SessionId = id("session")?.parse().ok()?;
        let input = InputId(id("input")?.parse().ok()?);
        self.commands.last_mut()?.replies.push((session, input));
        Some(session)
    }
}

/// Sends commands to one host, until it is killed or no further command is started.
pub(super) async fn send(sender: Arc<Mutex<CommandClient>>, door: RouterWatch, shared: SimClients, life: u32) {
    let router = door.opened(&shared).await;
    loop {
        let next = lock(&sender).next(&shared);
        let Some((pending, key)) = next else { return };
        let (status, reply) = request::post(&router, &pending.path, Some(&key), &pending.body).await;
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            shared.dice.nap(50).await;
            continue;
        }
        let Some(session) = lock(&sender).take(&reply) else {
            shared.state().run.violations.push(format!("{} {key:?} is answered {status}: {reply}", pending.path));
            return;
        };
        if pending.opens_session() && !shared.state().opened.iter().any(|opened| opened.session == session) {
            shared.state().opened.push(KnownSession { session, life });
        }
        if pending.hangs {
            cancel(&router, session, &shared).await;
        }
        // One in three answered commands is sent again.
        if shared.dice.below(3) == 0 {
            let (_, reply) = request::post(&router, &pending.path, Some(&key), &pending.body).await;
            let _session = lock(&sender).take(&reply);
        }
        lock(&sender).done(session, &pending);
        shared.dice.nap(20).await;
    }
}

/// Cancels one run from two clients at the same time.
async fn cancel(router: &Router, session: SessionId, shared: &SimClients) {
    let path = format!("/v1/sessions/{session}/cancel?run=1");
    let none = json!({});
    let cancel = || request::post(router, &path, None, &none);
    let (one, two) = tokio::join!(cancel(), cancel());
    for (status, answer) in [one, two] {
        let result = answer.get("result").and_then(Value::as_str);
        if result == Some("done") {
            let run = RunKey { session, run: RunNo(1) };
            let given = ReplySubject::Cancel(Initiator::Person);
            shared.state().cancels.push(ObservedAnswer {
                run,
                given,
                at: When::default(),
                answer: ControlAnswer::Done,
            });
        } else if result != Some("already_ended") {
            shared.state().run.violations.push(format!("a cancel is answered {status}: {answer}"));
        }
    }
}
