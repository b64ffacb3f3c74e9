//! A mock of the providers' protocols, which answers with fixtures and records its requests.

use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http;
use super::server::{ListeningServer, installed, server_file};

/// Returns fixtures for an agent whose system prompt contains `agent`: its n-th request is answered by the n-th of
/// `answers`, each a response, or a fixture with details of the transmission.
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
    /// Answers each request with the first matching fixture, or with 503 if none matches.
    pub(crate) fn new(fixtures: &[Value]) -> Self {
        Self::with(fixtures, |_| {})
    }

    /// Like [`Mock::new`], but refuses every key except `key`.
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
        command
            .arg("--import")
            .arg(server_file("leash.mjs"))
            .arg(installed("node_modules/@copilotkit/aimock/dist/cli.js"));
        command.args(["--port", "0", "--strict", "--validate-on-load", "--fixtures"]).arg(&path);
        command.env_remove("AIMOCK_API_KEYS");
        change(&mut command);
        Self { server: ListeningServer::start(command), _fixtures: dir }
    }

    pub(crate) fn origin(&self) -> &str {
        self.server.origin()
    }

    /// Returns the received requests, all translated into OpenAI's protocol.
    pub(crate) fn journal(&self) -> Vec<Value> {
        let journal = http::get(self.origin(), "/__aimock/journal?method=POST");
        journal.as_array().expect("entries").clone()
    }

    pub(crate) fn statuses(&self) -> Vec<u64> {
        self.journal().iter().map(|entry| entry["response"]["status"].as_u64().expect("a status")).collect()
    }
}
