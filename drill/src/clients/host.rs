//! The host that is killed: `subtend serve` on the drill's store.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use subtend_session::ids::SessionId;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::connection::call;
use crate::error::DrillError;
use crate::sabotage::{Sabotage, VARIABLE};
use crate::store_dir::StoreDir;

/// Time limit for the start of a host. A slower host counts as hanging.
const START_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn socket(store_dir: &StoreDir) -> PathBuf {
    store_dir.store().with_extension("host").join("host.sock")
}

/// Returns a script for the model. Its answers take a few milliseconds, `tree` starts children, and `hang` never answers.
fn script() -> Value {
    let child = json!({"agent": "explore", "steps": [{"latency_ms": 8, "text": "read"}]});
    let steps = json!([
        [
            {"when": {"prompt_contains": "hang"}, "hang": true, "text": "waits"},
            {"when": {"prompt_contains": "tree"}, "latency_ms": 5, "text": "shared",
                "fan_out": {"n": 3, "agent": "explore", "prompt": "Part {n}."}},
            {"latency_ms": 4, "text": "You said: {last}"}
        ],
        [{"latency_ms": 4, "text": "done", "repeat": true}]
    ]);
    json!({"name": "drill", "rules": [{"agent": "general", "steps": steps}, child]})
}

/// A running host, which is killed on drop.
pub(super) struct HostProcess {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    errors: PathBuf,
}

impl HostProcess {
    pub(super) async fn start(store_dir: &StoreDir, sabotage: Option<Sabotage>) -> Result<Self, DrillError> {
        let other = |what: &str, error: std::io::Error| DrillError::Other(format!("{what}: {error}"));
        let program = std::env::current_exe().map_err(|error| other("cannot find the running program", error))?;
        let script_file = store_dir.dir().join("script.json");
        std::fs::write(&script_file, script().to_string()).map_err(|error| other("cannot write the script", error))?;
        let errors =
            std::fs::File::create(store_dir.errors()).map_err(|error| other("cannot create the error file", error))?;
        let mut command = Command::new(program);
        command.args(["serve", "--json", "--quiet", "--listen", "none", "--store", &store_dir.spec()]);
        command.arg("--workspace").arg(store_dir.workspace());
        command.arg("--model").arg(format!("scripted:{}", script_file.display()));
        // The user's own configuration must not change a drill.
        command.env("XDG_CONFIG_HOME", store_dir.dir()).env("SUBTEND_DATA", store_dir.dir());
        match sabotage {
            Some(sabotage) => command.env(VARIABLE, sabotage.name()),
            None => command.env_remove(VARIABLE),
        };
        // A Ctrl-C at the terminal is for the drill, which then kills the host.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| other("cannot start the host", error))?;
        let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
        Ok(Self { child, lines, errors: store_dir.errors() })
    }

    /// Waits until the host accepts requests.
    pub(super) async fn ready(&mut self) -> Result<(), DrillError> {
        let line = match &mut self.lines {
            Some(lines) => tokio::time::timeout(START_TIMEOUT, lines.next_line()).await,
            None => Ok(Ok(None)),
        };
        match line {
            Ok(Ok(Some(line))) if line.contains("\"serving\"") => Ok(()),
            Ok(_) => Err(DrillError::Other(format!("the host does not start: {}", self.error_output()))),
            Err(_) => Err(DrillError::Other(format!(
                "the host did not start within {START_TIMEOUT:?}: {}",
                self.error_output()
            ))),
        }
    }

    pub(super) async fn kill(&mut self) {
        // An error means that the host ended by itself. The clients or the check of the store report that.
        drop(self.child.kill().await);
    }

    pub(super) fn error_output(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default().trim().to_owned()
    }
}

/// Waits until no run is in flight, then opens the session that marks the end, and returns its id.
/// Cancels runs in flight, which may hang: each further input to a session that was opened with `hang` hangs too.
pub(super) async fn await_rest(socket: &Path) -> Result<SessionId, DrillError> {
    let failure = |why: String| DrillError::Other(format!("the host does not answer at the end of the round: {why}"));
    let mut quiet = 0_u32;
    while quiet < 2 {
        let (status, text) = call(socket, Method::GET, "/v1/sessions?in_flight=true&limit=100", None, None)
            .await
            .map_err(|error| failure(error.to_string()))?;
        if status != StatusCode::OK {
            return Err(failure(text.to_string()));
        }
        let working = text.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for id in working.iter().filter_map(|session| session.get("id")?.as_str()) {
            let path = format!("/v1/sessions/{id}/cancel");
            // The run may have ended by itself. The next iteration lists the runs that remain.
            drop(call(socket, Method::POST, &path, None, Some(&json!({}))).await);
        }
        quiet = if working.is_empty() { quiet.saturating_add(1) } else { 0 };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let body = json!({"title": "the end"});
    let (status, opened) = call(socket, Method::POST, "/v1/sessions", Some("the end"), Some(&body))
        .await
        .map_err(|error| failure(error.to_string()))?;
    let id = opened.pointer("/session/id").and_then(Value::as_str).and_then(|id| id.parse().ok());
    id.ok_or_else(|| failure(format!("{status}: {opened}")))
}
