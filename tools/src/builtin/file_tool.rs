//! Shared parts of the file tools: typed arguments, threads for calls that may block, and checks of every path.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::{Dir, File};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::entry_memory::EntryMemory;
use super::ignores::IgnoreBudget;
use crate::checkpoint::Checkpoints;
use crate::memory_budget::MemoryBudget;
use crate::memory_threads::spawn_for;
use crate::path::resource;
use crate::schema;
use crate::tool::{Progress, Tool, ToolError, ToolInvocation, ToolKey, ToolOutput};
use crate::workspace::Workspace;
use crate::workspace::names::{OpenNamedError, OtherNames};

pub(crate) const WRITE: &str = "fs.write";
/// Maximum number of concurrent calls of a tool that walks directories, in one registry.
pub(super) const MAX_WALKS: usize = 3;

/// Memory of directory walks: entries, lines, patterns and results. Those of one registry, and a search of another one.
pub(super) static WALKS: MemoryBudget = MemoryBudget::of_mib(384);
/// Memory of the contents of files that calls replace. Walks take none of it, so that writes do not wait for them.
pub(super) static FILES: MemoryBudget = MemoryBudget::of_mib(80);

/// Returns the bytes of contents that a call with these arguments takes.
pub(crate) type MeasureFn<A> = fn(&A, &str, &Job) -> Result<usize, ToolError>;

pub(crate) trait Builtin: Send + Sync + 'static {
    const NAME: &'static str;
    /// The description for models.
    const ABOUT: &'static str;
    const EFFECT: ToolEffect;
    /// Maximum number of concurrent calls in one registry. Further calls wait.
    const MAX_CONCURRENT: usize = Semaphore::MAX_PERMITS;
    /// Maximum bytes that a call takes to walk directories.
    const WALK_BYTES: usize = 0;
    /// Measures the contents of files that a call takes. May block. `None` if it takes little. `path` is as for `run`.
    const MEASURE: Option<MeasureFn<Self::Args>> = None;
    /// The actions that each call performs on its path.
    const ACTIONS: &'static [&'static str];
    type Args: DeserializeOwned + JsonSchema + Send + 'static;

    fn path(args: &Self::Args) -> &str;

    /// Performs a short call in the caller's task. Must be short and not block; else returns `None`. `path` is as for `run`.
    fn run_at_once(_args: &Self::Args, _path: &str, _job: &Job) -> Option<Result<ToolOutput, ToolError>> {
        None
    }

    /// Runs on a thread that may block. `path` is normalized and permitted.
    fn run(args: Self::Args, path: &str, job: &mut Job) -> Result<ToolOutput, ToolError>;
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: ToolKey,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) max_bytes: u64,
    pub(crate) progress: Progress,
    pub(super) checkpoints: Option<Checkpoints>,
    /// Bytes that are reserved for contents of files.
    pub(super) reserved: usize,
    cancel: CancellationToken,
    authority: Arc<Authority>,
    other_names: OtherNames,
    pub(super) ignores: IgnoreBudget,
    pub(super) memory: EntryMemory,
    /// The verdict on the call itself. `Ask` means that the user approved the call.
    granted: Verdict,
}

impl Job {
    /// Fails once the call is cancelled or its future is dropped.
    pub(crate) fn check_cancelled(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() { Err(ToolError::cancelled()) } else { Ok(()) }
    }

    /// Returns whether the call may access a file that it found. Refuses denied files, and files that need an approval unless the call had one.
    pub(crate) fn permits(&self, action: &str, resource: &str) -> bool {
        let verdict = self.verdict(action, resource);
        verdict > Verdict::Deny && verdict >= self.granted
    }

    /// Returns whether the call may access `dir` or any entry below it. If not, results must not contain its name.
    pub(crate) fn may_permit_below(&self, action: &str, dir: &str) -> bool {
        self.permits(action, dir) || !self.authority.denies_below(action, dir)
    }

    /// Resolves links in `path` and checks the result against the rules, so that a link cannot bypass a rule.
    pub(crate) fn real(&self, actions: &[&str], path: &str) -> Result<Text, ToolError> {
        let real = self.workspace.real(path)?;
        self.check_link_target(actions, path, &real).map(|()| real)
    }

    pub(crate) fn check_link_target(&self, actions: &[&str], path: &str, real: &str) -> Result<(), ToolError> {
        if real == path {
            return Ok(());
        }
        for action in actions {
            let why = match self.verdict(action, real) {
                Verdict::Allow => continue,
                Verdict::Ask => "requires approval: name it explicitly",
                Verdict::Deny => "is not allowed here",
            };
            return Err(ToolError::denied(format!("`{path}` leads to `{real}`, and {action} of `{real}` {why}")));
        }
        Ok(())
    }

    /// Returns whether the session may read every file of the workspace, so that other names of a file need no search.
    pub(super) fn may_read_all(&self) -> bool {
        self.other_names.need_no_search()
    }

    /// Checks that the session may read all other names (hard links) of `file`, which was opened from a directory.
    pub(super) fn permit_names(&self, entry: (&Dir, &Path), file: &File) -> Result<(), OpenNamedError> {
        self.other_names.permit(&self.workspace, &self.authority, entry, file)
    }

    fn verdict(&self, action: &str, resource: &str) -> Verdict {
        self.authority.verdict(&Access { action: action.into(), resource: resource.into() })
    }
}

#[derive(Debug)]
pub(crate) struct FileTool<B> {
    spec: ToolSpec,
    permits: Arc<Semaphore>,
    builtin: PhantomData<B>,
}

impl<B: Builtin> FileTool<B> {
    pub(crate) fn new() -> Self {
        let spec = ToolSpec { name: B::NAME.into(), description: B::ABOUT.into(), schema: schema::of::<B::Args>() };
        Self { spec, permits: Arc::new(Semaphore::new(B::MAX_CONCURRENT)), builtin: PhantomData }
    }
}

/// Returns the accesses of a call. An invalid path is passed on unchanged, and every rule denies it.
fn accesses<B: Builtin>(args: Option<&Value>) -> Vec<Access> {
    let path = args.and_then(|args| args.get("path")).and_then(Value::as_str).unwrap_or(".");
    let resource = resource(path).unwrap_or_else(|_| path.into());
    B::ACTIONS.iter().map(|action| Access { action: (*action).into(), resource: resource.clone() }).collect()
}

impl<B: Builtin> Tool for FileTool<B> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self) -> ToolEffect {
        B::EFFECT
    }

    fn leaves_process(&self) -> bool {
        B::EFFECT != ToolEffect::ReadOnly
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        accesses::<B>(args)
    }

    fn run(&self, call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let permits = Arc::clone(&self.permits);
        async move {
            let granted = accesses::<B>(Some(&call.args)).iter().map(|access| call.authority.verdict(access)).min();
            let mut args: B::Args = serde_json::from_value(call.args)
                .map_err(|error| ToolError::bad_args(format!("the arguments of {} do not fit: {error}", B::NAME)))?;
            let mut path = resource(B::path(&args))?;
            // A drop of the future does not stop the blocking thread. The drop of this guard cancels it.
            let cancel = call.cancel.child_token();
            let _stop = cancel.clone().drop_guard();
            let mut job = Job {
                key: call.key,
                workspace: call.workspace,
                max_bytes: call.max_bytes,
                progress: call.progress,
                checkpoints: call.checkpoints,
                reserved: 0,
                other_names: OtherNames::new(&call.authority, cancel.clone()),
                cancel,
                ignores: IgnoreBudget::new(),
                memory: EntryMemory::of_entries(),
                authority: call.authority,
                granted: granted.unwrap_or(Verdict::Allow),
            };
            // First the permit of the registry, so that one workspace does not reserve the memory of all.
            let free = async { (permits.acquire_owned().await, WALKS.reserve(B::WALK_BYTES).await) };
            let held = call.cancel.run_until_cancelled(free).await.ok_or_else(ToolError::cancelled)?;
            if let Some(done) = B::run_at_once(&args, &path, &job) {
                // Many such calls in a row must not keep the runtime from its connections.
                tokio::task::yield_now().await;
                return done;
            }
            let mut contents = None;
            if let Some(measure) = B::MEASURE {
                // A call that waits for memory occupies no thread.
                let measured = spawn_for(0, move || {
                    job.reserved = measure(&args, &path, &job)?;
                    Ok((args, path, job))
                });
                (args, path, job) = end(measured).await?;
                let free = FILES.reserve(job.reserved);
                contents = call.cancel.run_until_cancelled(free).await.ok_or_else(ToolError::cancelled)?;
            }
            let bytes = B::WALK_BYTES.max(job.reserved);
            let work = move || {
                let _held = (held, contents);
                job.check_cancelled()?;
                B::run(args, &path, &mut job)
            };
            end(spawn_for(bytes, work)).await
        }
        .boxed()
    }
}

/// Waits for the end of `work`.
async fn end<T>(work: JoinHandle<Result<T, ToolError>>) -> Result<T, ToolError> {
    match work.await {
        Ok(result) => result,
        Err(failed) => match failed.try_into_panic() {
            // The caller of the registry catches panics of tools.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ToolError::cancelled()),
        },
    }
}
