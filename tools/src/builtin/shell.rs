//! `shell`: runs a command with the rights of the operating system's user, or in a sandbox that enforces the session's rules.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::escape::harmless;
use subtend_session::message::ToolSpec;
use tokio::sync::mpsc;

use super::background::wait_attended;
use super::confined;
use super::process::{self, CommandEnd, Confinement, Leftovers, RunningCommand};
use crate::bounded::head;
use crate::commands::Commands;
use crate::guard::Guard;
use crate::policy;
use crate::processes;
use crate::sandbox::{self, SandboxStrength, Unsupported};
use crate::schema;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};
use crate::workspace::Workspace;

pub(crate) const NAME: &str = "shell";
const MAX_COMMAND: usize = 64 << 10;
/// Bytes reserved for the text around the output.
const FOOTER: u64 = 200;
/// Part of `FOOTER` for the truncation mark.
const MARK: u64 = 60;
const ABOUT: &str = "Run a command with `sh -c` in the workspace; the result is its output (stdout and stderr together, the \
    middle left out where it is long) and its exit code. Nothing can be typed into it. When the command ends, everything that it \
    started in the background is stopped. Prefer list, read, search, write and edit for files.

With `background: true` the call returns a session_id at once and the command keeps running, for servers, watchers and long \
builds. `process` reads its output, types into it and stops it. You are notified when it ends, with its last output. Your own \
work ends only after the process, so stop processes that you no longer need.";
/// The time that a call waits for the end of the background process that it starts, to report an immediate failure.
const START_WATCH: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ShellArgs {
    #[schemars(length(min = 1))]
    command: String,
    /// Stop it after this many milliseconds.
    #[schemars(range(min = 1, max = 3_600_000))]
    timeout_ms: Option<u64>,
    /// Return at once and keep it running.
    background: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Shell {
    spec: ToolSpec,
    guard: Option<Arc<Guard>>,
    commands: Arc<Commands>,
    sandbox: Result<SandboxStrength, Unsupported>,
}

impl Shell {
    pub(super) fn new(guard: Option<Guard>, commands: Commands) -> Self {
        let spec = ToolSpec { name: NAME.into(), description: ABOUT.into(), schema: schema::of::<ShellArgs>() };
        let sandbox = confined::strength(guard.as_ref());
        Self { spec, guard: guard.map(Arc::new), commands: Arc::new(commands), sandbox }
    }
}

/// Returns false only if the system says that `path` does not exist. A command can make its lookup fail by `chmod` of a directory above the
/// workspace, or of the workspace.
fn may_exist(workspace: &Workspace, path: &str) -> bool {
    let Err(error) = workspace.dir().symlink_metadata(path) else { return true };
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn check(args: &ShellArgs) -> Result<(), ToolError> {
    if args.command.trim().is_empty() || args.command.contains('\0') || args.command.len() > MAX_COMMAND {
        return Err(ToolError::bad_args(format!(
            "the command must have 1 to {MAX_COMMAND} bytes and no NUL: put a long script into a file first"
        )));
    }
    if args.background == Some(true) && args.timeout_ms.is_some() {
        return Err(ToolError::bad_args(
            "timeout_ms is for foreground commands: leave it out, and stop the process when you do not need it any more",
        ));
    }
    Ok(())
}

/// Returns the command that schema-valid arguments start in the background, or `None` for a foreground command.
///
/// # Errors
/// If the call cannot start the command.
pub(crate) fn background_command(args: &Value) -> Result<Option<String>, ToolError> {
    let Ok(args) = serde_json::from_value::<ShellArgs>(args.clone()) else { return Ok(None) };
    if args.background != Some(true) {
        return Ok(None);
    }
    check(&args).map(|()| Some(args.command))
}

impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::SideEffect
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        let command = args.and_then(|args| args.get("command")).and_then(Value::as_str).unwrap_or("*");
        vec![Access { action: "shell.run".into(), resource: command.into() }]
    }

    fn exclusion_error(&self, authority: &Authority) -> Option<ToolError> {
        // The workspace is unknown here. Each call checks the files of its workspace.
        confined::exclusion_error(&policy::for_commands(authority, |_| false), &self.sandbox)
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (guard, commands, sandbox) = (self.guard.clone(), Arc::clone(&self.commands), self.sandbox.clone());
        async move {
            let args: ShellArgs = serde_json::from_value(call.args.clone())
                .map_err(|error| ToolError::bad_args(format!("the arguments of {NAME} do not fit: {error}")))?;
            check(&args)?;
            // The authority may have been narrowed since the tool was offered.
            let authority = policy::for_commands(&call.authority, |path| may_exist(&call.workspace, path));
            if let Some(error) = confined::exclusion_error(&authority, &sandbox) {
                return Err(error);
            }
            let in_worktree = call.workspace.made_for().is_some();
            if let (true, Err(missing)) = (in_worktree, &sandbox) {
                return Err(ToolError::denied(format!(
                    "{NAME} is refused: this session works in its own worktree, and without a sandbox a command could write \
                     elsewhere: {missing}. Use the file tools."
                )));
            }
            let confinement = match guard.as_deref() {
                // If a sandbox is available, commands of a session with limits always run in it.
                Some(guard)
                    if in_worktree
                        || sandbox::is_needed(&authority)
                        || sandbox.is_ok() && sandbox::is_needed(&call.authority) =>
                {
                    Confinement::Sandbox(guard, &authority)
                }
                Some(guard) => Confinement::Guard(guard),
                None => Confinement::Unguarded,
            };
            if args.background == Some(true) {
                return start(&args, &call, confinement, &commands).await;
            }
            run(&args, &call, confinement, &commands).await
        }
        .boxed()
    }
}

async fn start(
    args: &ShellArgs,
    call: &ToolInvocation,
    confinement: Confinement<'_>,
    commands: &Commands,
) -> Result<ToolOutput, ToolError> {
    if call.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let (typed, typing) = mpsc::channel(processes::MAX_QUEUED_TEXTS);
    let running = RunningCommand::start(&args.command, &call.workspace, (confinement, commands), Some(typing)).await;
    let running = running.map_err(|error| ToolError::failed(format!("cannot start the command: {error}")))?;
    let most = usize::try_from(call.max_bytes).unwrap_or(usize::MAX);
    let process = call.processes.add(call.key.session, &call.authority, typed, most).ok_or_else(|| {
        ToolError::refused("this session already runs a background process: use or stop it with the tool process")
    })?;
    let (attendance, written) = (process.keep_alive(), Arc::clone(&process));
    let sandboxed = matches!(confinement, Confinement::Sandbox(..));
    call.processes.spawn(Arc::clone(&process), async move {
        let (out, err) = (|bytes: &[u8]| written.push(0, bytes), |bytes: &[u8]| written.push(1, bytes));
        match running.finish([&out, &err], None, written.token()).await {
            Ok(CommandEnd::Exited(status)) => exit_text(status, sandboxed),
            Ok(CommandEnd::Cancelled(rest) | CommandEnd::TimedOut(rest)) => stop_text("stopped", &rest),
            Ok(CommandEnd::GuardKilled(status, rest)) => guard_killed_text(status, &rest),
            Err(error) => format!("its end is unknown: {error}"),
        }
    });
    wait_attended(&process, attendance, call, START_WATCH).await
}

async fn run(
    args: &ShellArgs,
    call: &ToolInvocation,
    confinement: Confinement<'_>,
    commands: &Commands,
) -> Result<ToolOutput, ToolError> {
    if call.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let limit = args.timeout_ms.map(Duration::from_millis);
    let budget = call.max_bytes.saturating_sub(FOOTER);
    let finished =
        process::run(&args.command, &call.workspace, (confinement, commands), limit, budget, &call.cancel).await;
    let finished = finished.map_err(|error| ToolError::failed(format!("cannot start the command: {error}")))?;
    let (total, cut) = (finished.output.total(), finished.output.dropped_bytes());
    let text = finished.output.text();
    let text = text.trim_end_matches('\n');
    // The replacement character for an invalid byte is longer than the byte.
    let kept = head(text, usize::try_from(budget.saturating_add(MARK)).unwrap_or(usize::MAX));
    let truncated_from = (cut > 0 || kept.len() < text.len()).then_some(total);
    match finished.end {
        CommandEnd::Cancelled(rest) => {
            let cancelled = ToolError::cancelled();
            let message = remains(&rest).map(|rest| format!("{}; {rest}", cancelled.message));
            Err(message.map_or(cancelled.clone(), |message| ToolError { message, ..cancelled }))
        }
        CommandEnd::GuardKilled(status, rest) => {
            Err(ToolError::failed(format!("{}; {}", guard_killed_text(status, &rest), output_text(kept))))
        }
        CommandEnd::TimedOut(rest) => {
            let limit = args.timeout_ms.unwrap_or_default();
            let end = stop_text(&format!("the command was stopped after {limit} ms"), &rest);
            Err(ToolError::limit(format!("{end}; {}", output_text(kept))))
        }
        CommandEnd::Exited(status) => {
            let sandboxed = matches!(confinement, Confinement::Sandbox(..));
            if sandboxed
                && status.code() == Some(sandbox::NOT_RUN)
                && let Some(why) = kept.lines().next_back().and_then(|last| last.strip_prefix(sandbox::NOT_RUN_PREFIX))
            {
                return Err(ToolError::refused(format!(
                    "{NAME} is refused: the command was not run, because its sandbox cannot be set up: {why}"
                )));
            }
            let end_text = exit_text(status, sandboxed);
            let content =
                if kept.is_empty() { format!("[no output; {end_text}]") } else { format!("{kept}\n[{end_text}]") };
            let kept = head(&content, usize::try_from(call.max_bytes).unwrap_or(usize::MAX));
            Ok(ToolOutput { content: kept.into(), truncated_from })
        }
    }
}

const UNKNOWN_REST: &str =
    "its guard did not respond, and processes that it started may still run: check the system's process list";

/// Returns what remains of a command, if anything may.
fn remains(rest: &Leftovers) -> Option<String> {
    let processes = rest.processes.then(|| UNKNOWN_REST.to_owned());
    let parts: Vec<String> = processes.into_iter().chain(files_text(rest)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn files_text(rest: &Leftovers) -> Option<String> {
    let dirs: Vec<String> = rest.files.iter().map(|dir| harmless(&dir.to_string_lossy())).collect();
    let dirs = (!dirs.is_empty()).then(|| dirs.join(", "))?;
    Some(format!("its temporary files in {dirs} are not removed yet: this continues now, or when the next host starts"))
}

fn stop_text(what: &str, rest: &Leftovers) -> String {
    match remains(rest) {
        None => format!("{what}, with all that it started"),
        Some(rest) => format!("{what}, but {rest}"),
    }
}

fn guard_killed_text(status: std::process::ExitStatus, rest: &Leftovers) -> String {
    let killed = format!("the guard of the command was killed ({status}): processes that it started may still run");
    files_text(rest).map_or_else(|| killed.clone(), |files| format!("{killed}; {files}"))
}

fn output_text(kept: &str) -> String {
    if kept.is_empty() { "it had no output".into() } else { format!("its output until then:\n{kept}") }
}

fn exit_text(status: std::process::ExitStatus, sandboxed: bool) -> String {
    match status.code() {
        Some(code) if code != 0 && sandboxed => {
            format!(
                "exit code {code}; it ran in a sandbox: files that the session's rules do not allow are out of reach, and a \
                 directory with a denied entry cannot be listed (use the tool list), nor can entries directly in it be created, \
                 renamed or removed"
            )
        }
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}
