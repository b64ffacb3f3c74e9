//! The scripted model: it plays a file of answers, tool calls, latencies and faults, for tests, benches and drills.
//! # The file
//! One JSON document. For unknown fields, wrong types and contradictory steps, the error names position, line and column.
//! ```json
//! {
//!   "name": "two readers",
//!   "rules": [
//!     { "agent": "general", "steps": [
//!       { "fan_out": { "n": 2, "agent": "explore", "background": true, "prompt": "Read part {n} of: {prompt}" } },
//!       { "text": "Two readers are running." },
//!       [ { "when": { "ended": 2 }, "text": "Both are back. {last}", "repeat": true },
//!         { "text": "Not all are back.", "repeat": true } ]
//!     ] },
//!     { "agent": "*", "steps": [
//!       [ { "when": { "attempt": 1 }, "error": { "kind": "rate", "message": "slow down", "retry_after_ms": 20 } },
//!         { "latency_ms": 50, "calls": [ { "tool": "list", "args": { "path": "." } } ] } ],
//!       { "text": "Done: {prompt}", "usage": { "in": 120, "out": 9 } }
//!     ] }
//!   ]
//! }
//! ```
//!
//! The document:
//!
//! | field | meaning | default |
//! |---|---|---|
//! | `name` | name of the model in journals and listings, except for a model that is chosen as `scripted:FILE`: its name is `scripted:FILE` | `scripted` |
//! | `leaves_process` | `true`: each call waits until its intent record is durable, as a call over a network does | `false` |
//! | `context_window` | context window in tokens that the model reports | none |
//! | `rules` | list of rules; the first whose `agent` is the session's agent or `"*"` applies | – |
//!
//! A rule has an `agent` and `steps`. **The n-th answer of a session is the n-th step.** The model counts the answers in the transcript, so it is
//! stateless: after a restart and in a retry of a turn, it uses the same step. A list of steps may replace a step: the first step whose `when`
//! holds is used. If the last step has `"repeat": true`, it is used for every further answer; otherwise, further calls fail with
//! `invalid_request`.
//!
//! A step:
//!
//! | field | meaning |
//! |---|---|
//! | `when` | conditions, all of which must hold: `prompt_contains` (first user message), `user_contains` (last user message), `result_contains` (last tool result), `last_contains` (last message), `attempt` (number within the turn, from 1), `ended` (minimum number of children that have ended, counted in notices) |
//! | `latency_ms` | wait before anything else, on tokio's clock |
//! | `chunk_ms` | wait before each piece of the text; the text is streamed in pieces of about 48 bytes |
//! | `text`, `reasoning` | text and reasoning of the answer |
//! | `calls` | list of `{ "tool": …, "args": … }`; `args` is an object, or a string that is sent unchanged, even if it is not JSON; default: `{}` |
//! | `fan_out` | `{ "n", "agent", "background", "prompt" }`: `n` calls of `task` (at most 100000), after those of `calls` |
//! | `stop` | `end`, `calls`, `length`, `refused`, `other`; default: `calls` if there are any, otherwise `end` |
//! | `usage` | `in`, `out`, `reasoning`, `cache_new`, `cache_read`, `cost_micro`, `unreliable` (`true`: a part is unknown); default: no usage |
//! | `repeat` | see above; only for the last step |
//!
//! At most one fault:
//!
//! | field | meaning |
//! |---|---|
//! | `error` | `{ "kind", "message", "retry_after_ms" }`: the call fails, after `text` was streamed; `kind` is `auth`, `rate`, `unavailable`, `bad_answer`, `context_overflow` or `invalid_request` |
//! | `hang` | `true`: the call never answers, after `text` was streamed |
//! | `panic` | the call panics with this text |
//! | `garbage` | the answer is invalid (`bad_answer`), with this text as its description |
//! | `truncated` | `true`: the answer stops by `length` |
//! | `empty` | `true`: no text, no calls |
//! | `refuse` | `true`: the model refuses |
//!
//! In `text`, `reasoning`, `fan_out.prompt` and the strings of `args` objects, `{prompt}` is the first user message, `{last}` the text of the last
//! message, and `{n}` the number of this answer, from 1. In `fan_out.prompt`, `{n}` is the number of the child. Other braces are literal, and
//! inserted text is not expanded.
//! ```
//! use subtend_models::model::Model;
//! use subtend_models::scripted::Scripted;
//!
//! let script: Scripted = r#"{ "rules": [
//!     { "agent": "*", "steps": [
//!         { "calls": [ { "tool": "read", "args": { "path": "README.md" } } ] },
//!         { "text": "It begins with: {last}" }
//!     ] }
//! ] }"#.parse()?;
//! assert_eq!(script.name(), "scripted");
//!
//! let wrong = r#"{ "rules": [
//!     { "agent": "*", "steps": [ { "txt": "oops" } ] }
//! ] }"#.parse::<Scripted>();
//! let message = wrong.map(|_| ()).map_err(|error| error.to_string());
//! assert!(message.is_err_and(|message| message.contains("rules[0].steps[0]") && message.contains("`txt`") && message.contains("line 2")));
//! # Ok::<(), subtend_models::scripted::ScriptError>(())
//! ```

mod file;
pub(crate) mod play;
mod step;
mod template;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{self, BoxFuture};
use subtend_session::ids::Text;

use self::file::{Position, Rule, Script};
pub use self::step::{MAX_FAN_OUT, Step, When};
use crate::model::{Answer, Deltas, Model, ModelError, Request};

pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// A model that plays a script. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct Scripted(Arc<Script>);

#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error("the script {} cannot be read: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("the script {} is invalid: {error}", path.display())]
    InFile { path: PathBuf, error: Box<ScriptError> },
    #[error("{place}: {message}")]
    Wrong {
        /// The position, such as `rules[0].steps[2]`, or `script` for the document itself.
        place: String,
        message: String,
    },
}

impl Scripted {
    /// Reads a script from `path`.
    /// # Errors
    /// If the file cannot be read, or is invalid.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        let text = read(path).map_err(|error| ScriptError::Read { path: path.to_owned(), error })?;
        text.parse().map_err(|error| ScriptError::InFile { path: path.to_owned(), error: Box::new(error) })
    }

    #[must_use]
    pub(crate) fn with_name(self, name: impl Into<Text>) -> Self {
        let script = Arc::unwrap_or_clone(self.0);
        Self(Arc::new(Script { name: name.into(), ..script }))
    }

    /// Returns a builder for a script in code.
    /// ```
    /// use serde_json::json;
    /// use subtend_models::scripted::{Scripted, Step};
    /// let script = Scripted::builder("pair")
    ///     .rule("general", [Step::call("task", json!({"subagent_type": "explore", "prompt": "Look."})), Step::text("{last}")])
    ///     .rule("*", [Step::text("seen").latency_ms(10).repeat()])
    ///     .build();
    /// assert!(script.is_ok());
    /// ```
    pub fn builder(name: impl Into<Text>) -> Builder {
        let script = Script { name: name.into(), leaves_process: false, context_window: None, rules: Vec::new() };
        Builder(script)
    }
}

/// Returns the text of a file of bounded size. Refuses pipes and devices: through them, another process could answer while the session
/// is running.
fn read(path: &Path) -> io::Result<String> {
    let mut options = File::options();
    options.read(true);
    // To open a pipe blocks, and only the opened file is known to be the one that is read.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        let message = "it is not a regular file. Copy the script into one";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        let message = format!("it is larger than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

impl FromStr for Scripted {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let script: Script = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let place = match error.path().to_string() {
                path if path == "." || path == "?" => "script".into(),
                path => path,
            };
            ScriptError::Wrong { place, message: error.inner().to_string() }
        })?;
        deserializer
            .end()
            .map_err(|error| ScriptError::Wrong { place: "script".into(), message: error.to_string() })?;
        Ok(Self(Arc::new(script)))
    }
}

impl Model for Scripted {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn leaves_process(&self) -> bool {
        self.0.leaves_process
    }

    fn context_window(&self) -> Option<u64> {
        self.0.context_window
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        // Plan before the future runs, so that the future does not keep the transcript in memory.
        let plan = self.0.plan(&request);
        drop(request);
        match plan {
            Ok(plan) => plan.perform(deltas).boxed(),
            Err(error) => future::ready(Err(error)).boxed(),
        }
    }
}

#[derive(Clone, Debug)]
#[must_use]
pub struct Builder(Script);

impl Builder {
    /// Adds a rule with the steps of `agent`. `"*"` means every agent without an earlier rule.
    pub fn rule(self, agent: impl Into<Text>, steps: impl IntoIterator<Item = Step>) -> Self {
        self.choices(agent, steps.into_iter().map(|step| vec![step]))
    }

    /// Adds a rule with several steps in each position. The first step whose `when` holds is used.
    pub fn choices(mut self, agent: impl Into<Text>, steps: impl IntoIterator<Item = Vec<Step>>) -> Self {
        self.0.rules.push(Rule { agent: agent.into(), steps: steps.into_iter().map(Position).collect() });
        self
    }

    /// Sets whether calls wait until their intent record is durable.
    pub fn with_leaves_process(mut self, leaves_process: bool) -> Self {
        self.0.leaves_process = leaves_process;
        self
    }

    pub fn context_window(mut self, tokens: u64) -> Self {
        self.0.context_window = Some(tokens);
        self
    }

    /// Returns the model, or the error of the first invalid step.
    pub fn build(self) -> Result<Scripted, ScriptError> {
        for (r, rule) in self.0.rules.iter().enumerate() {
            let wrong = |place: String, message| ScriptError::Wrong { place, message };
            rule.check().map_err(|message| wrong(format!("rules[{r}]"), message))?;
            for (s, position) in rule.steps.iter().enumerate() {
                for step in &position.0 {
                    step.check().map_err(|message| wrong(format!("rules[{r}].steps[{s}]"), message))?;
                }
            }
        }
        Ok(Scripted(Arc::new(self.0)))
    }
}
