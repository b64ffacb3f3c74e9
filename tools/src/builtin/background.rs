//! `process`: reads the output of a background process, writes to its input, and stops it.

use std::fmt::Write as _;
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
use subtend_session::values::parse_recorded;

use super::confined;
use crate::bounded::head;
use crate::guard::Guard;
use crate::policy;
use crate::processes::{AttendedCall, BackgroundProcess, InputError, OutputReader, OutputWindow};
use crate::sandbox::{SandboxStrength, Unsupported};
use crate::schema;
use crate::tool::{Tool, ToolError, ToolInvocation, ToolOutput};

pub(crate) const NAME: &str = "process";
/// The start of the last line of a result while the process runs.
pub(crate) const RUNNING: &str = "[running";
/// Bytes reserved for the text around the output.
const FOOTER: u64 = 400;
/// Maximum output of a result in the process's own session, where each result is recorded.
const MAX_OWN_OUTPUT: u64 = 4 << 10;
/// Maximum output of the result that reports the end of the process.
const MAX_LAST_OUTPUT: u64 = 8 << 10;
const MAX_TEXT: usize = 64 << 10;
const ABOUT: &str = "Use a process that you started with shell and `background: true`. `output` returns what it wrote since \
    your last call, up to a bound, and whether it runs; `wait_ms` waits for more. `input` types a line into it, with the \
    permissions of shell; `close` ends its input, after the line if there is one. `status` returns only its state. `stop` ends it and everything that it started.";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ProcessAction {
    #[default]
    Output,
    Input,
    Status,
    Stop,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProcessArgs {
    action: ProcessAction,
    /// The process, by the id that you were given when you started it.
    session_id: Option<String>,
    /// For input: the line, without a line break.
    text: Option<String>,
    /// For input: true to close the input (end of file), after the text if there is one. Nothing can be typed afterwards.
    close: Option<bool>,
    /// For output: the position to read from; by default the end of your last read.
    from: Option<u64>,
    /// For output: how long to wait for new output, in milliseconds.
    #[schemars(range(min = 1, max = 60_000))]
    wait_ms: Option<u64>,
}

impl ProcessArgs {
    /// Returns the reason why the arguments contradict each other, if they do.
    fn mismatch(&self) -> Option<&'static str> {
        let output = self.action == ProcessAction::Output;
        let input = self.action == ProcessAction::Input;
        match self {
            Self { text: Some(text), .. } if input && (text.len() > MAX_TEXT || text.contains('\0')) => {
                Some("the text must have at most 65536 bytes and no NUL: put long texts into a file")
            }
            Self { text: None, close: None | Some(false), .. } if input => {
                Some("input needs a text, the line to type, or close")
            }
            Self { text: Some(_), .. } if !input => Some("text is for the action input"),
            Self { close: Some(true), .. } if !input => Some("close is for the action input"),
            Self { from: Some(_), .. } if !output => Some("from is for the action output"),
            Self { wait_ms: Some(_), .. } if !output => Some("wait_ms is for the action output"),
            _ => None,
        }
    }
}

/// Returns the process that a call stops, as named by the model, or `None` for other actions.
pub(crate) fn stopped_process(args: &str) -> Option<String> {
    let args: ProcessArgs = parse_recorded(args).ok()?;
    (args.action == ProcessAction::Stop && args.mismatch().is_none()).then_some(args.session_id).flatten()
}

fn is_close_only(args: &Value) -> bool {
    args.get("close") == Some(&Value::Bool(true)) && args.get("text").is_none_or(Value::is_null)
}

#[derive(Debug)]
pub(super) struct ProcessTool {
    spec: ToolSpec,
    sandbox: Result<SandboxStrength, Unsupported>,
}

impl ProcessTool {
    pub(super) fn new(guard: Option<&Guard>) -> Self {
        let spec = ToolSpec { name: NAME.into(), description: ABOUT.into(), schema: schema::of::<ProcessArgs>() };
        Self { spec, sandbox: confined::strength(guard) }
    }
}

impl Tool for ProcessTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        ToolEffect::SideEffect
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        let access = |resource: &str| vec![Access { action: "shell.run".into(), resource: resource.into() }];
        let Some(args) = args else { return access("*") };
        match args.get("action").and_then(Value::as_str) {
            // Closing the input requires no permission, like stopping the process.
            Some("input") if is_close_only(args) => Vec::new(),
            // If the process is a shell, it runs the typed text as a command.
            Some("input") => access(args.get("text").and_then(Value::as_str).unwrap_or("*")),
            // The permission to start the process covers the other actions.
            _ => Vec::new(),
        }
    }

    fn exclusion_error(&self, authority: &Authority) -> Option<ToolError> {
        confined::exclusion_error(&policy::for_commands(authority, |_| false), &self.sandbox)
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        async move {
            let args: ProcessArgs = serde_json::from_value(call.args.clone())
                .map_err(|error| ToolError::bad_args(format!("the arguments of {NAME} do not fit: {error}")))?;
            if let Some(why) = args.mismatch() {
                return Err(ToolError::bad_args(why));
            }
            let session = call.processes.child();
            let own = session.is_none() && args.session_id.is_none();
            let process = call.processes.of(session.unwrap_or(call.key.session)).filter(|_| own || session.is_some());
            let Some(process) = process else {
                let text = match (&args.session_id, own) {
                    (Some(named), false) => format!(
                        "the process {named} is not running here: it is queued, waits for an approval, or has ended. You are \
                         notified when it ends"
                    ),
                    _ => "session_id is missing: name the process by the id that you were given when you started it".to_owned(),
                };
                return Err(ToolError::not_found(text));
            };
            let wait = Duration::from_millis(args.wait_ms.unwrap_or_default());
            match args.action {
                // The process still has the rules of its start, which may be wider than the caller's current rules.
                ProcessAction::Input if !process.is_within(&call.authority) => Err(ToolError::denied(
                    "nothing was typed: the process was started with permissions that this session no longer has. Stop it and \
                     start it again",
                )),
                ProcessAction::Output if own && !process.is_within(&call.authority) => Ok(stop_narrowed(&process).await),
                ProcessAction::Output if own => wait_attended(&process, process.keep_alive(), &call, wait).await,
                ProcessAction::Output => read_output(&process, &call, args.from, wait).await,
                ProcessAction::Input => write_input(&process, args.text, args.close == Some(true)).await,
                ProcessAction::Status => Ok(ToolOutput::text(status(&process))),
                ProcessAction::Stop => {
                    process.token().cancel();
                    process.wait(None, Duration::from_secs(5)).await;
                    Ok(ToolOutput::text(status(&process)))
                }
            }
        }
        .boxed()
    }
}

/// Stops a process whose session has lost permissions since it was started.
async fn stop_narrowed(process: &BackgroundProcess) -> ToolOutput {
    process.token().cancel();
    process.wait(None, Duration::from_secs(5)).await;
    ToolOutput::text(format!("[stopped, because its permissions were reduced: {}]", state(process)))
}

/// Waits up to `limit` for the end of `process`, on behalf of the process's own session. A cancel stops the process.
pub(super) async fn wait_attended(
    process: &Arc<BackgroundProcess>,
    attendance: AttendedCall,
    call: &ToolInvocation,
    limit: Duration,
) -> Result<ToolOutput, ToolError> {
    tokio::select! {
        biased;
        () = call.cancel.cancelled() => {
            process.token().cancel();
            process.wait(None, Duration::from_secs(5)).await;
            return Err(ToolError::cancelled());
        }
        () = process.wait(None, limit) => {}
    }
    attendance.release();
    let most = |bytes: u64| bytes.min(call.max_bytes.saturating_sub(FOOTER));
    let window = match process.end() {
        Some(_) => process.tail(most(MAX_LAST_OUTPUT)),
        None => process.read(OutputReader::Own, None, most(MAX_OWN_OUTPUT)),
    };
    Ok(report(process, &window, call.max_bytes))
}

async fn read_output(
    process: &BackgroundProcess,
    call: &ToolInvocation,
    from: Option<u64>,
    wait: Duration,
) -> Result<ToolOutput, ToolError> {
    tokio::select! {
        biased;
        () = call.cancel.cancelled() => return Err(ToolError::cancelled()),
        () = process.wait(Some(OutputReader::Owner), wait) => {}
    }
    let window = process.read(OutputReader::Owner, from, call.max_bytes.saturating_sub(FOOTER));
    Ok(report(process, &window, call.max_bytes))
}

async fn write_input(process: &BackgroundProcess, text: Option<String>, close: bool) -> Result<ToolOutput, ToolError> {
    let done = match (&text, close) {
        (Some(_), true) => "typed, and closed the input",
        (None, true) => "closed the input",
        (_, false) => "typed",
    };
    let line = text.map_or_else(String::new, |text| text + "\n");
    match process.type_in(line, close).await {
        Ok(()) => Ok(ToolOutput::text(format!("{done}\n{}", status(process)))),
        Err(InputError::Closed) => Err(ToolError::refused(format!(
            "nothing was typed: an earlier call closed the input of the process {}",
            status(process)
        ))),
        Err(InputError::Ended) => Err(ToolError::refused(format!(
            "nothing was typed: the process no longer reads its input {}",
            status(process)
        ))),
        Err(InputError::Full) => Err(ToolError::refused("nothing was typed: the process has not read earlier input")),
        Err(InputError::Slow) if close => Err(ToolError::limit(
            "the process has not read its input yet; the text stays queued, and the input closes after it: do not repeat the call",
        )),
        Err(InputError::Slow) => {
            Err(ToolError::limit("the process has not read the text yet; the text stays queued: do not type it again"))
        }
    }
}

fn state(process: &BackgroundProcess) -> String {
    process.end().unwrap_or_else(|| format!("running for {} s", process.age().as_secs()))
}

fn status(process: &BackgroundProcess) -> String {
    let (unread, total) = process.unread(OutputReader::Owner);
    format!("[{}; {total} bytes of output, {unread} of them unread]", state(process))
}

fn report(process: &BackgroundProcess, window: &OutputWindow, max_bytes: u64) -> ToolOutput {
    let OutputWindow { text, skipped, start, end, total } = window;
    let mut content = String::new();
    if *skipped > 0 {
        let _ = writeln!(content, "[... {skipped} bytes left out ...]");
    }
    // The replacement character for an invalid byte is longer than the byte.
    let budget = usize::try_from(max_bytes.saturating_sub(FOOTER)).unwrap_or(usize::MAX);
    let text = text.trim_end_matches('\n');
    content.push_str(head(text, budget));
    if !content.is_empty() && !content.ends_with('\n') {
        content.push('\n');
    }
    let _ = write!(content, "[{}; output {start} to {end} of {total} bytes]", state(process));
    let cut = *skipped > 0 || *end < *total;
    ToolOutput { content: content.into(), truncated_from: cut.then_some(*total) }
}
