//! Runs of the command over a provider.

use serde_json::Value;

use super::call::{Done, Under, User};
use super::protocol::{Protocol, bare};

/// A key that must turn up nowhere.
pub(crate) const KEY: &str = "sk-canary-5f2e8c41b7a94d06";

/// A run, before it is started.
#[derive(Clone, Debug)]
pub(crate) struct Talk<'a> {
    pub(crate) protocol: Protocol,
    /// The server, as `http://host:port`.
    pub(crate) origin: &'a str,
    /// The model, by the provider's own name.
    pub(crate) model: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) key: Option<&'a str>,
    /// More arguments.
    pub(crate) more: &'a [&'a str],
}

impl<'a> Talk<'a> {
    pub(crate) fn new(protocol: Protocol, origin: &'a str) -> Self {
        Self { protocol, origin, model: "canned", agent: "general", key: Some(KEY), more: &[] }
    }

    pub(crate) fn start(&self, user: &User, prompt: &str) -> Under {
        let (model, base) = (self.protocol.model(self.model), self.protocol.base(self.origin));
        let args = ["run", "--json", "--agent", self.agent, "--model", &model, "--base-url", &base];
        let mut command = user.command(&[&args, self.more, &[prompt]].concat());
        bare(&mut command);
        if let (Some(variable), Some(key)) = (self.protocol.variable(), self.key) {
            command.env(variable, key);
        }
        Under::start(command, "")
    }

    pub(crate) fn run(&self, user: &User, prompt: &str) -> Told {
        Told::of(self.start(user, prompt).done())
    }
}

/// What a run told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: Option<i32>,
    pub(crate) err: String,
    /// Every line but the last.
    pub(crate) events: Vec<Value>,
    /// The last line, `Null` if there is none.
    pub(crate) end: Value,
}

impl Told {
    pub(crate) fn of(done: Done) -> Self {
        let lines = done.out.lines().map(|line| serde_json::from_str(line).expect("json"));
        let mut events: Vec<Value> = lines.collect();
        let end = events.pop().unwrap_or_default();
        Self { code: done.code, err: done.err, events, end }
    }

    /// Its answer; fails for a run that did not complete.
    pub(crate) fn answer(&self) -> &str {
        assert_eq!((self.code, &self.end["outcome"]), (Some(0), &Value::from("completed")), "{self:#?}");
        self.end["answer"].as_str().expect("an answer")
    }

    /// The session that was run.
    pub(crate) fn session(&self) -> &str {
        self.end["session"].as_str().unwrap_or_else(|| panic!("no session: {self:#?}"))
    }

    /// The pieces of text that were streamed for a session.
    pub(crate) fn deltas(&self, session: &str) -> Vec<&str> {
        let of = |event: &&Value| event["type"] == "delta" && event["session"] == session;
        self.events.iter().filter(of).map(|event| event["text"].as_str().expect("a text")).collect()
    }
}
