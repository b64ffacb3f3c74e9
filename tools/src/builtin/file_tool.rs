//! Shared parts of the file tools: typed arguments, one blocking thread, and checks of every path.

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
use tokio_util::sync::CancellationToken;

use super::ignores::Budget;
use super::room::Room;
use crate::checkpoint::Checkpoints;
use crate::path::resource;
use crate::schema;
use crate::tool::{Progress, Tool, ToolError, ToolInvocation, ToolKey, ToolOutput};
use crate::workspace::Workspace;
use crate::workspace::names::{OtherNames, Unopened};

pub(crate) const WRITE: &str = "fs.write";
/// Concurrent calls of one tool that walk directories.
pub(super) const WALKS: usize = 4;

pub(crate) trait Builtin: Send + Sync + 'static {
    const NAME: &'static str;
    /// The description for models.
    const ABOUT: &'static str;
    const EFFECT: ToolEffect;
    /// Concurrent calls; others wait. Each takes memory.
    const AT_ONCE: usize = Semaphore::MAX_PERMITS;
    /// The actions of each call on its path.
    const ACTIONS: &'static [&'static str];
    type Args: DeserializeOwned + JsonSchema + Send + 'static;

    fn path(args: &Self::Args) -> &str;

    /// Runs on a thread that may block. `path` is normal and permitted.
    fn run(args: Self::Args, path: &str, job: &Job) -> Result<ToolOutput, ToolError>;
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) key: ToolKey,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) max_bytes: u64,
    pub(crate) progress: Progress,
    pub(super) checkpoints: Option<Checkpoints>,
    cancel: CancellationToken,
    authority: Arc<Authority>,
    other_names: OtherNames,
    pub(super) ignores: Budget,
    pub(super) room: Room,
    /// The verdict for the call itself: `Ask` after an approval.
    granted: Verdict,
}

impl Job {
    /// Fails once the call is cancelled or its future dropped.
    pub(crate) fn go_on(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() { Err(ToolError::cancelled()) } else { Ok(()) }
    }

    /// Returns whether a file found by the call may be accessed: never a denied one, nor one with a lower verdict than the call.
    pub(crate) fn permits(&self, action: &str, resource: &str) -> bool {
        let verdict = self.verdict(action, resource);
        verdict > Verdict::Deny && verdict >= self.granted
    }

    /// Returns whether `dir` or something in it may be accessed. If not, its name alone would reveal what is denied.
    pub(crate) fn may_permit_below(&self, action: &str, dir: &str) -> bool {
        self.permits(action, dir) || !self.authority.denies_below(action, dir)
    }

    /// Returns the path after links, if that is permitted too: a link never bypasses a rule.
    pub(crate) fn real(&self, actions: &[&str], path: &str) -> Result<Text, ToolError> {
        let real = self.workspace.real(path)?;
        self.leads(actions, path, &real).map(|()| real)
    }

    pub(crate) fn leads(&self, actions: &[&str], path: &str, real: &str) -> Result<(), ToolError> {
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

    /// Checks that `file`, opened from a directory, has no other name that the session may not read.
    pub(super) fn permit_names(&self, entry: (&Dir, &Path), file: &File) -> Result<(), Unopened> {
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
        Self { spec, permits: Arc::new(Semaphore::new(B::AT_ONCE)), builtin: PhantomData }
    }
}

/// Returns the accesses of a call. A path that is not normal stays as it is and is denied everywhere.
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
            let args: B::Args = serde_json::from_value(call.args)
                .map_err(|error| ToolError::bad_args(format!("the arguments of {} do not fit: {error}", B::NAME)))?;
            let path = resource(B::path(&args))?;
            // Dropping the future does not stop its thread; this guard does.
            let cancel = call.cancel.child_token();
            let _stop = cancel.clone().drop_guard();
            let job = Job {
                key: call.key,
                workspace: call.workspace,
                max_bytes: call.max_bytes,
                progress: call.progress,
                checkpoints: call.checkpoints,
                cancel,
                other_names: OtherNames::new(&call.authority),
                ignores: Budget::new(),
                room: Room::default(),
                authority: call.authority,
                granted: granted.unwrap_or(Verdict::Allow),
            };
            let permit = tokio::select! {
                biased;
                () = call.cancel.cancelled() => return Err(ToolError::cancelled()),
                permit = permits.acquire_owned() => permit,
            };
            let work = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                job.go_on()?;
                B::run(args, &path, &job)
            });
            match work.await {
                Ok(result) => result,
                Err(failed) => match failed.try_into_panic() {
                    // The runner of tools catches their panics.
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(ToolError::cancelled()),
                },
            }
        }
        .boxed()
    }
}
