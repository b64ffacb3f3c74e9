//! Remote tools: tools whose calls are answered by other processes, each under a lease with a fencing token.
//!
//! A host declares each [`RemoteTool`]. [`Workers`] makes a tool for the runtime from it, and holds the calls, which
//! workers lease and answer over HTTP. To sessions, remote tools are like other tools: the runtime offers them by
//! permission, and cancels, times and records their calls. The calls and leases held here are lost when the host ends;
//! the journal records which calls were in flight.
//!
//! | state of a call | ends with |
//! |---|---|
//! | queued | the lease of a worker; the deadline or a cancel, without effects |
//! | leased | the first renewal, which begins the call; if the lease runs out before, the call is queued again |
//! | begun | its completion; if the lease runs out, the worker counts as lost |
//!
//! The call of a lost worker is repeated if the tool is idempotent, in at most [`ATTEMPTS`] attempts. Otherwise it ends
//! with unknown effects.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_session::ids::Text;
use subtend_tools::tool::{Tool, ToolError, ToolInvocation, ToolOutput};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use board::{CallBoard, RemoteCall, RemoteStep};
use tool::WorkerTool;

pub use board::{ATTEMPTS, MAX_CALLS, MAX_WORKERS};
pub use tool::{BadRemoteTool, LEASES, RemoteTool};

pub(crate) use board::{CompletionRefused, LeaseLost, LeasedCall, TakeRefused, WorkerResult};
pub(crate) use view::{WorkerMetrics, WorkersView};

mod board;
mod tool;
mod view;

/// The remote tools of a host and their calls. Cheap to clone; the default has no tools.
///
/// Pass [`Workers::tools`] to the runtime and the value itself to the host, so that workers can take the calls:
///
/// ```
/// use subtend_host::workers::{RemoteTool, Workers};
/// use subtend_host::{Host, HostOptions};
/// use subtend_session::message::ToolSpec;
/// use subtend_tools::registry::Registry;
///
/// # async fn example(builder: subtend_actors::Builder) -> Result<(), Box<dyn std::error::Error>> {
/// let workers = Workers::new([RemoteTool {
///     spec: ToolSpec {
///         name: "build".into(),
///         description: "Builds a target, and returns its log.".into(),
///         schema: std::sync::Arc::new(serde_json::json!({"type": "object"})),
///     },
///     action: "tool:build".into(),
///     idempotent: true,
///     lease: std::time::Duration::from_secs(30),
///     deadline: None,
/// }])?;
/// let tools = Registry::builder().tools(workers.tools())?.build();
/// let runtime = builder.tools(tools).start().await?;
/// let host = Host::new(runtime, HostOptions { workers, ..HostOptions::default() });
/// # drop(host);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Workers {
    inner: Arc<SharedCalls>,
}

#[derive(Debug, Default)]
struct SharedCalls {
    tools: Vec<Arc<RemoteTool>>,
    board: Mutex<CallBoard>,
    /// Notified when a call can be leased.
    queued: Notify,
}

/// The answer to a renewal.
#[derive(Debug)]
pub(crate) struct Renewed {
    pub(crate) lease: Duration,
    /// Fires when the worker should stop, because the call was cancelled or has ended.
    pub(crate) stop: CancellationToken,
}

impl Workers {
    /// Declares the remote tools of a host.
    ///
    /// # Errors
    /// [`BadRemoteTool`] for an invalid declaration. Names and schemas are checked later, by the registry that
    /// [`Workers::tools`] are added to.
    pub fn new(tools: impl IntoIterator<Item = RemoteTool>) -> Result<Self, BadRemoteTool> {
        let tools: Vec<_> = tools.into_iter().map(|tool| tool.check().map(Arc::new)).collect::<Result<_, _>>()?;
        Ok(Self { inner: Arc::new(SharedCalls { tools, ..SharedCalls::default() }) })
    }

    /// Returns the tools for the registry of a runtime.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let tools = self.inner.tools.iter();
        tools.map(|tool| Arc::new(WorkerTool::new(Arc::clone(tool), self)) as Arc<dyn Tool>).collect()
    }

    /// Returns the declarations.
    pub fn declarations(&self) -> &[Arc<RemoteTool>] {
        &self.inner.tools
    }

    fn board(&self) -> MutexGuard<'_, CallBoard> {
        self.inner.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a call of one of `tools` and leases it to `worker`. Once `may` returns false, waits forever.
    ///
    /// # Cancel safety
    /// If the future is dropped, no call is leased.
    ///
    /// # Errors
    /// [`TakeRefused`].
    pub(crate) async fn take(
        &self,
        worker: &str,
        tools: &[Text],
        may: impl Fn() -> bool,
    ) -> Result<LeasedCall, TakeRefused> {
        loop {
            let queued = self.inner.queued.notified();
            tokio::pin!(queued);
            // Registered before the check, so that a call queued after it is noticed.
            queued.as_mut().enable();
            if !may() {
                return std::future::pending().await;
            }
            if let Some(taken) = self.board().take(worker, tools, Instant::now())? {
                return Ok(taken);
            }
            queued.await;
        }
    }

    /// Returns the tool of the call that was leased with `token`; `None` for an unknown token.
    pub(crate) fn tool_of(&self, token: &str) -> Option<Text> {
        self.board().tool_of(token)
    }

    /// Extends the lease of `token`; the first renewal begins the call.
    ///
    /// # Errors
    /// [`LeaseLost`].
    pub(crate) fn renew(&self, token: &str, progress: Option<&str>) -> Result<Renewed, LeaseLost> {
        let renewed = self.board().renew(token, Instant::now());
        self.wake();
        let renewed = renewed?;
        // Outside the lock, because it calls an observer.
        progress.into_iter().for_each(|line| renewed.progress.send(line));
        Ok(Renewed { lease: renewed.lease, stop: renewed.stop })
    }

    /// Returns whether the worker of `token` should stop. Does not extend the lease.
    ///
    /// # Errors
    /// [`LeaseLost`].
    pub(crate) fn is_stopped(&self, token: &str) -> Result<bool, LeaseLost> {
        let stopped = self.board().is_stopped(token, Instant::now());
        self.wake();
        stopped
    }

    /// Ends the call leased with `token`. `any_lease`, an injected bug, also accepts an earlier lease.
    ///
    /// # Errors
    /// [`CompletionRefused`]; then nothing changes.
    pub(crate) fn complete(&self, token: &str, result: WorkerResult, any_lease: bool) -> Result<(), CompletionRefused> {
        let completed = self.board().complete(token, result, any_lease, Instant::now());
        self.wake();
        completed
    }

    /// Returns the workers, and the calls of each tool.
    pub(crate) fn view(&self) -> WorkersView {
        self.board().view(&self.inner.tools, Instant::now())
    }

    pub(crate) fn metrics(&self) -> WorkerMetrics {
        self.board().metrics()
    }

    /// Wakes waiting workers if a call was returned to the queue.
    fn wake(&self) {
        if self.board().has_returned() {
            self.inner.queued.notify_waiters();
        }
    }

    /// Queues a call and waits for its result.
    async fn run_call(self, tool: Arc<RemoteTool>, call: ToolInvocation) -> Result<ToolOutput, ToolError> {
        let cancel = call.cancel.clone();
        let (no, changed) = self.board().add(RemoteCall::new(tool, call, Instant::now()))?;
        let queued = QueuedCall { workers: self, no };
        queued.workers.inner.queued.notify_waiters();
        let mut cancelled = false;
        loop {
            let step = queued.workers.board().step(no, cancelled, Instant::now());
            queued.workers.wake();
            let until = match step {
                RemoteStep::Ended(end) => return *end,
                RemoteStep::Wait(until) => until,
            };
            tokio::select! {
                () = changed.notified() => {}
                () = sleep_until(until) => {}
                () = cancel.cancelled(), if !cancelled => cancelled = true,
            }
        }
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// A call whose result is awaited. The runtime drops it, with its lease, after the grace period of a cancel.
struct QueuedCall {
    workers: Workers,
    no: u64,
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        self.workers.board().remove(self.no);
    }
}
