//! A client that sends keyed commands until they are answered, and cancels some runs from two connections at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use subtend_invariants::When;
use subtend_invariants::observed::{ControlAnswer, KeyedCommand, ObservedAnswer, ReplySubject};
use subtend_session::ids::{InputId, RunKey, RunNo, SessionId};
use subtend_session::outcome::Initiator;

use super::DrillClients;
use super::connection::{HostGone, call};
use crate::rng::SeededRng;

#[derive(Debug, Default)]
pub(super) struct SenderResult {
    pub(super) commands: Vec<KeyedCommand>,
    pub(super) cancels: Vec<ObservedAnswer>,
    /// Number of requests without an answer, which were sent again.
    pub(super) unanswered: u64,
    /// Number of answered commands that were sent again.
    pub(super) repeated: u64,
    /// Requests that the host refused permanently.
    pub(super) refused: Vec<String>,
}

pub(super) struct CommandSender {
    shared: DrillClients,
    rng: SeededRng,
    name: String,
    number: u64,
    sessions: Vec<SessionId>,
    sent: SenderResult,
}

impl CommandSender {
    pub(super) fn new(shared: &DrillClients, seed: u64, number: u64) -> Self {
        let name = format!("sender {number}");
        let rng = SeededRng::of(seed, &name);
        Self { shared: shared.clone(), rng, name, number: 0, sessions: Vec::new(), sent: SenderResult::default() }
    }

    /// Sends commands until the drill closes. When this returns, every command has an answer.
    pub(super) async fn send(mut self) -> SenderResult {
        while !self.shared.closing.load(Ordering::Relaxed) {
            match self.rng.below(8) {
                0 => self.cancel_twice().await,
                1..=3 => _ = self.open("tree").await,
                _ => self.input().await,
            }
            let nap = Duration::from_millis(self.rng.below(40));
            tokio::time::sleep(nap).await;
        }
        self.sent
    }

    /// Returns a text that no other command has.
    fn text(&mut self, what: &str) -> String {
        self.number = self.number.saturating_add(1);
        format!("{what} {} of {}", self.number, self.name)
    }

    async fn open(&mut self, what: &str) -> Option<SessionId> {
        let text = self.text(what);
        let body = json!({"title": text, "input": {"text": text}});
        let session = self.command("/v1/sessions", &text, &body).await?;
        self.sessions.push(session);
        Some(session)
    }

    async fn input(&mut self) {
        let ix = usize::try_from(self.rng.below(self.sessions.len() as u64)).unwrap_or(0);
        let Some(session) = self.sessions.get(ix).copied() else { return };
        let text = self.text("input");
        let lane = if self.rng.one_in(3) { "steer" } else { "send" };
        self.command(&format!("/v1/sessions/{session}/inputs"), &text, &json!({"text": text, "lane": lane})).await;
    }

    /// Sends a command with its text as the key until it is answered, and sometimes once more.
    async fn command(&mut self, path: &str, text: &str, body: &Value) -> Option<SessionId> {
        let mut command = KeyedCommand { text: text.into(), replies: Vec::new() };
        let again = self.rng.one_in(3);
        for _ in 0..=u32::from(again) {
            let Some(answer) = self.answered(path, Some(text), body).await else { break };
            // The answer to the opening of a session names the session and contains the receipt of its input.
            let receipt =
                answer.get("session").filter(|session| session.is_object()).and(answer.get("input")).unwrap_or(&answer);
            let id = |name: &str| receipt.get(name).and_then(Value::as_str);
            let session = id("session").and_then(|id| id.parse().ok());
            let input = id("input").and_then(|id| id.parse().ok()).map(InputId);
            match session.zip(input) {
                Some(reply) => command.replies.push(reply),
                None => self.sent.refused.push(format!("POST {path}: {answer}")),
            }
        }
        self.sent.repeated = self.sent.repeated.saturating_add((command.replies.len() as u64).saturating_sub(1));
        let session = command.replies.first().map(|(session, _)| *session);
        self.sent.commands.push(command);
        session
    }

    /// Sends a request until it is answered. `None` if the host refuses it.
    async fn answered(&mut self, path: &str, key: Option<&str>, body: &Value) -> Option<Value> {
        let counts = self.shared.counts.clone();
        counts.unanswered.fetch_add(1, Ordering::Relaxed);
        let answer = loop {
            match call(&self.shared.socket, Method::POST, path, key, Some(body)).await {
                Ok((status, answer)) if status.is_success() => break Some(answer),
                Ok((StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _)) => {}
                Ok((status, answer)) => {
                    self.sent.refused.push(format!("POST {path} {body}: {status}: {answer}"));
                    break None;
                }
                Err(HostGone { .. }) => self.sent.unanswered = self.sent.unanswered.saturating_add(1),
            }
            let nap = Duration::from_millis(1 + self.rng.below(25));
            tokio::time::sleep(nap).await;
        };
        counts.unanswered.fetch_sub(1, Ordering::Relaxed);
        counts.answered.fetch_add(1, Ordering::Relaxed);
        answer
    }

    /// Opens a run that hangs, and cancels it from two connections at the same time.
    async fn cancel_twice(&mut self) {
        let Some(session) = self.open("hang").await else { return };
        let path = format!("/v1/sessions/{session}/cancel?run=1");
        let none = json!({});
        let socket = self.shared.socket.clone();
        let cancel = || call(&socket, Method::POST, &path, None, Some(&none));
        let (one, two) = tokio::join!(cancel(), cancel());
        for answer in [one, two] {
            match answer {
                Ok((status, answer)) if status.is_success() => self.cancelled(session, &answer),
                Ok((StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _)) | Err(HostGone { .. }) => {}
                Ok((status, answer)) => self.sent.refused.push(format!("POST {path}: {status}: {answer}")),
            }
        }
        // The run hangs, so only the cancel can end it.
        if let Some(answer) = self.answered(&path, None, &none).await {
            self.cancelled(session, &answer);
        }
    }

    fn cancelled(&mut self, session: SessionId, answer: &Value) {
        if answer.get("result").and_then(Value::as_str) != Some("done") {
            return;
        }
        let run = RunKey { session, run: RunNo(1) };
        let at = When::default();
        self.sent.cancels.push(ObservedAnswer {
            run,
            given: ReplySubject::Cancel(Initiator::Person),
            at,
            answer: ControlAnswer::Done,
        });
    }
}
