//! Runs of the command with a provider.

use serde_json::Value;

use super::call::{CommandOutput, RunningCommand, User};
use super::protocol::{Protocol, clear_environment};

/// A key that must not appear anywhere.
pub(crate) const KEY: &str = "sk-canary-5f2e8c41b7a94d06";

#[derive(Clone, Debug)]
pub(crate) struct ProviderRun<'a> {
    pub(crate) protocol: Protocol,
    /// The server, as `http://host:port`.
    pub(crate) origin: &'a str,
    pub(crate) model: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) more: &'a [&'a str],
}

impl<'a> ProviderRun<'a> {
    pub(crate) fn new(protocol: Protocol, origin: &'a str) -> Self {
        Self { protocol, origin, model: "canned", agent: "general", key: Some(KEY), more: &[] }
    }

    pub(crate) fn start(&self, user: &User, prompt: &str) -> RunningCommand {
        let (model, base) = (self.protocol.model(self.model), self.protocol.base(self.origin));
        let args = ["run", "--json", "--agent", self.agent, "--model", &model, "--base-url", &base];
        let mut command = user.command(&[&args, self.more, &[prompt]].concat());
        clear_environment(&mut command);
        if let (Some(variable), Some(key)) = (self.protocol.variable(), self.key) {
            command.env(variable, key);
        }
        RunningCommand::start(command, "")
    }

    pub(crate) fn run(&self, user: &User, prompt: &str) -> RunOutput {
        RunOutput::of(self.start(user, prompt).done())
    }
}

#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) code: Option<i32>,
    pub(crate) err: String,
    pub(crate) events: Vec<Value>,
    pub(crate) end: Value,
}

impl RunOutput {
    pub(crate) fn of(done: CommandOutput) -> Self {
        let lines = done.out.lines().map(|line| serde_json::from_str(line).expect("json"));
        let mut events: Vec<Value> = lines.collect();
        let end = events.pop().unwrap_or_default();
        Self { code: done.code, err: done.err, events, end }
    }

    /// Returns the answer; panics if the run did not complete.
    pub(crate) fn answer(&self) -> &str {
        assert_eq!((self.code, &self.end["outcome"]), (Some(0), &Value::from("completed")), "{self:#?}");
        self.end["answer"].as_str().expect("an answer")
    }

    pub(crate) fn session(&self) -> &str {
        self.end["session"].as_str().unwrap_or_else(|| panic!("no session: {self:#?}"))
    }

    pub(crate) fn deltas(&self, session: &str) -> Vec<&str> {
        let of = |event: &&Value| event["type"] == "delta" && event["session"] == session;
        self.events.iter().filter(of).map(|event| event["text"].as_str().expect("a text")).collect()
    }
}
