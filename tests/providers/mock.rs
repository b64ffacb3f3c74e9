//! A mock of the providers' protocols: plays fixtures, and remembers what it was sent.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http;
use super::server::{ListeningServer, installed, ours};

/// Fixtures for an agent whose system prompt contains `agent`: its n-th request is answered by the n-th of `answers`, each a
/// response, or a fixture with more about how it is sent.
pub(crate) fn script(agent: &str, answers: &[Value]) -> Vec<Value> {
    let fixture = |(at, answer): (usize, &Value)| {
        let mut fixture = if answer["response"].is_null() { json!({ "response": answer }) } else { answer.clone() };
        fixture["match"] = json!({ "systemMessage": agent, "sequenceIndex": at });
        fixture
    };
    answers.iter().enumerate().map(fixture).collect()
}

pub(crate) struct Mock {
    server: ListeningServer,
    _fixtures: TempDir,
}

impl Mock {
    /// Plays `fixtures`: the first that matches a request answers it; where none does, the answer is 503.
    pub(crate) fn new(fixtures: &[Value]) -> Self {
        Self::with(fixtures, |_| {})
    }

    /// Like [`Mock::new`], but takes no key except `key`.
    pub(crate) fn locked(fixtures: &[Value], key: &str) -> Self {
        Self::with(fixtures, |command| {
            command.env("AIMOCK_API_KEYS", key);
        })
    }

    fn with(fixtures: &[Value], change: impl FnOnce(&mut Command)) -> Self {
        let dir = TempDir::new().expect("a temporary directory");
        let path = dir.path().join("fixtures.json");
        std::fs::write(&path, json!({ "fixtures": fixtures }).to_string()).expect("a file");
        let mut command = Command::new("node");
        command.arg("--import").arg(ours("leash.mjs")).arg(installed("node_modules/@copilotkit/aimock/dist/cli.js"));
        command.args(["--port", "0", "--strict", "--validate-on-load", "--fixtures"]).arg(&path);
        command.env_remove("AIMOCK_API_KEYS");
        change(&mut command);
        Self { server: ListeningServer::start(command), _fixtures: dir }
    }

    pub(crate) fn origin(&self) -> &str {
        self.server.origin()
    }

    /// Returns the requests that the server received, every protocol translated into OpenAI's.
    pub(crate) fn journal(&self) -> Vec<Value> {
        let journal = http::get(self.origin(), "/__aimock/journal?method=POST");
        journal.as_array().expect("entries").clone()
    }

    pub(crate) fn statuses(&self) -> Vec<u64> {
        self.journal().iter().map(|entry| entry["response"]["status"].as_u64().expect("a status")).collect()
    }
}
