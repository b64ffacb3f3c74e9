//! `shell`: a command with the rights of the operating system's user, or in a sandbox that applies the session's rules.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::message::ToolSpec;
use tokio::sync::mpsc;

use super::background::attended;
use super::confined;
use super::process::{self, CommandEnd, LeftBehind, Over, RunningCommand};
use crate::bounded::head;
use crate::commands::Commands;
use crate::guard::Guard;
use crate::policy;
use crate::processes;
use crate::sandbox::{self, Strength, Unsupported};
use crate::schema;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

pub(crate) const NAME: &str = "shell";
const MAX_COMMAND: usize = 64 << 10;
/// Reserved for text about the output.
const FOOTER: u64 = 200;
/// The part of it for the truncation mark.
const MARK: u64 = 60;
const ABOUT: &str = "Run a command with `sh -c` in the workspace; the result is its output (stdout and stderr together, the \
    middle left out where it is long) and its exit code. Nothing can be typed into it. When the command ends, whatever it \
    started in the background is stopped. Prefer list, read, search, write and edit for files.

With `background: true` the call returns a session_id at once and the command keeps running, for servers, watchers and long \
builds. `process` reads its output, types into it and stops it. Its end, with its last output, comes to you by itself. Your own \
work ends only after it, so stop what you do not need any more.";
/// How long a background process is watched before the first call about it returns.
const FIRST: Duration = Duration::from_secs(1);

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
    sandbox: Result<Strength, Unsupported>,
}

impl Shell {
    pub(super) fn new(guard: Option<Guard>, commands: Commands) -> Self {
        let spec = ToolSpec { name: NAME.into(), description: ABOUT.into(), schema: schema::of::<ShellArgs>() };
        let sandbox = confined::strength(guard.as_ref());
        Self { spec, guard: guard.map(Arc::new), commands: Arc::new(commands), sandbox }
    }
}

fn fits(args: &ShellArgs) -> Result<(), ToolError> {
    if args.command.trim().is_empty() || args.command.contains('\0') || args.command.len() > MAX_COMMAND {
        return Err(ToolError::bad_args(format!(
            "the command must have 1 to {MAX_COMMAND} bytes and no NUL: put a long script into a file first"
        )));
    }
    if args.background == Some(true) && args.timeout_ms.is_some() {
        return Err(ToolError::bad_args(
            "timeout_ms is for a command that is waited for: leave it out, and stop the process when it is not needed any more",
        ));
    }
    Ok(())
}

/// Returns the command that schema-valid arguments start in the background; `None` if they do not.
///
/// # Errors
/// If the call would start nothing.
pub(crate) fn in_background(args: &Value) -> Result<Option<String>, ToolError> {
    let Ok(args) = serde_json::from_value::<ShellArgs>(args.clone()) else { return Ok(None) };
    if args.background != Some(true) {
        return Ok(None);
    }
    fits(&args).map(|()| Some(args.command))
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

    fn ruled_out(&self, authority: &Authority) -> Option<ToolError> {
        // The workspace is unknown here: each call checks what exists there.
        confined::ruled_out(&policy::for_commands(authority, |_| false), &self.sandbox)
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (guard, commands, sandbox) = (self.guard.clone(), Arc::clone(&self.commands), self.sandbox.clone());
        async move {
            let args: ShellArgs = serde_json::from_value(call.args.clone())
                .map_err(|error| ToolError::bad_args(format!("the arguments of {NAME} do not fit: {error}")))?;
            fits(&args)?;
            // The authority may have narrowed since the tool was offered.
            let root = call.workspace.path();
            let authority = policy::for_commands(&call.authority, |path| root.join(path).symlink_metadata().is_ok());
            if let Some(error) = confined::ruled_out(&authority, &sandbox) {
                return Err(error);
            }
            let alone = call.workspace.is_alone();
            if let (true, Err(missing)) = (alone, &sandbox) {
                return Err(ToolError::denied(format!(
                    "{NAME} is refused: this session works in a worktree of its own, and nothing would keep a command from \
                     writing elsewhere: {missing}. Use the file tools."
                )));
            }
            let over = match guard.as_deref() {
                // Where a sandbox exists, a session with limits never runs a command outside of it.
                Some(guard)
                    if alone
                        || sandbox::is_needed(&authority)
                        || sandbox.is_ok() && sandbox::is_needed(&call.authority) =>
                {
                    Over::Sandbox(guard, &authority)
                }
                Some(guard) => Over::Guard(guard),
                None => Over::Nobody,
            };
            if args.background == Some(true) {
                return start(&args, &call, over, &commands).await;
            }
            run(&args, &call, over, &commands).await
        }
        .boxed()
    }
}

/// Starts a background process in the session that is its own.
async fn start(
    args: &ShellArgs,
    call: &ToolInvocation,
    over: Over<'_>,
    commands: &Commands,
) -> Result<ToolOutput, ToolError> {
    if call.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let (typed, typing) = mpsc::channel(processes::TYPED);
    let running = RunningCommand::start(&args.command, &call.workspace, (over, commands), Some(typing)).await;
    let running = running.map_err(|error| ToolError::failed(format!("the command could not be started: {error}")))?;
    let most = usize::try_from(call.max_bytes).unwrap_or(usize::MAX);
    let process = call.processes.add(call.key.session, &call.authority, typed, most).ok_or_else(|| {
        ToolError::refused("a background process is running here already: read it or stop it with the tool process")
    })?;
    let (attendance, written) = (process.attend(), Arc::clone(&process));
    let held = matches!(over, Over::Sandbox(..));
    call.processes.spawn(Arc::clone(&process), async move {
        let (out, err) = (|bytes: &[u8]| written.push(0, bytes), |bytes: &[u8]| written.push(1, bytes));
        match running.finish([&out, &err], None, written.token()).await {
            Ok(CommandEnd::Exited(status)) => ended(status, held),
            Ok(CommandEnd::Cancelled(rest) | CommandEnd::TimedOut(rest)) => stopped("stopped", rest),
            Ok(CommandEnd::GuardKilled(status)) => guard_killed(status),
            Err(error) => format!("its end is not known: {error}"),
        }
    });
    attended(&process, attendance, call, FIRST).await
}

async fn run(
    args: &ShellArgs,
    call: &ToolInvocation,
    over: Over<'_>,
    commands: &Commands,
) -> Result<ToolOutput, ToolError> {
    if call.cancel.is_cancelled() {
        return Err(ToolError::cancelled());
    }
    let limit = args.timeout_ms.map(Duration::from_millis);
    let room = call.max_bytes.saturating_sub(FOOTER);
    let finished = process::run(&args.command, &call.workspace, (over, commands), limit, room, &call.cancel).await;
    let finished = finished.map_err(|error| ToolError::failed(format!("the command could not be started: {error}")))?;
    let (total, cut) = (finished.output.total(), finished.output.cut());
    let text = finished.output.text();
    let text = text.trim_end_matches('\n');
    // Invalid UTF-8 takes more bytes as text.
    let kept = head(text, usize::try_from(room.saturating_add(MARK)).unwrap_or(usize::MAX));
    let truncated_from = (cut > 0 || kept.len() < text.len()).then_some(total);
    match finished.end {
        CommandEnd::Cancelled(LeftBehind::Nothing) => Err(ToolError::cancelled()),
        CommandEnd::Cancelled(LeftBehind::Unknown) => {
            let cancelled = ToolError::cancelled();
            Err(ToolError { message: format!("{}; {LEFT}", cancelled.message), ..cancelled })
        }
        CommandEnd::GuardKilled(status) => Err(ToolError::failed(format!("{}; {}", guard_killed(status), until(kept)))),
        CommandEnd::TimedOut(rest) => {
            let limit = args.timeout_ms.unwrap_or_default();
            let end = stopped(&format!("the command was stopped after {limit} ms"), rest);
            Err(ToolError::limit(format!("{end}; {}", until(kept))))
        }
        CommandEnd::Exited(status) => {
            let held = matches!(over, Over::Sandbox(..));
            if held
                && status.code() == Some(sandbox::NOT_RUN)
                && let Some(why) = kept.lines().next_back().and_then(|last| last.strip_prefix(sandbox::WHY))
            {
                return Err(ToolError::refused(format!(
                    "{NAME} is refused: the command was not run, for the sandbox that would hold it to this session's rules \
                     cannot be made: {why}"
                )));
            }
            let end_text = ended(status, held);
            let content =
                if kept.is_empty() { format!("[no output; {end_text}]") } else { format!("{kept}\n[{end_text}]") };
            let kept = head(&content, usize::try_from(call.max_bytes).unwrap_or(usize::MAX));
            Ok(ToolOutput { content: kept.into(), truncated_from })
        }
    }
}

const LEFT: &str =
    "its guard did not answer, and something that it started may still run: the system's list of processes tells";

fn stopped(what: &str, rest: LeftBehind) -> String {
    match rest {
        LeftBehind::Nothing => format!("{what}, with all that it started"),
        LeftBehind::Unknown => format!("{what}, but {LEFT}"),
    }
}

fn guard_killed(status: std::process::ExitStatus) -> String {
    format!("the guard of the command was killed ({status}): what it started may still run")
}

fn until(kept: &str) -> String {
    if kept.is_empty() { "it had no output".into() } else { format!("its output until then:\n{kept}") }
}

fn ended(status: std::process::ExitStatus, held: bool) -> String {
    match status.code() {
        Some(code) if code != 0 && held => {
            format!(
                "exit code {code}; it ran in a sandbox: what the session's rules do not allow is out of reach, and no command lists a \
                 directory that holds something denied (the tool list does), or makes, renames and removes anything directly in it"
            )
        }
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    }
}
