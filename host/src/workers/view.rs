//! The lists of workers and of calls of remote tools, for clients.

use std::sync::Arc;

use serde::Serialize;
use subtend_session::ids::{SessionId, Text};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::board::{CallBoard, RemoteCall, RemoteState};
use super::tool::RemoteTool;

/// The remote tools, their workers, and the calls that wait or run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WorkersView {
    tools: Vec<RemoteToolRow>,
    workers: Vec<WorkerRow>,
    calls: Vec<RemoteCallRow>,
}

#[derive(Debug, Serialize, ToSchema)]
struct RemoteToolRow {
    #[schema(value_type = String)]
    name: Text,
    /// The action that permission rules name.
    #[schema(value_type = String)]
    action: Text,
    /// True if the call of a lost worker is repeated.
    idempotent: bool,
    lease_ms: u64,
    deadline_ms: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
struct WorkerRow {
    /// The name that the worker gave.
    name: String,
    /// The tools whose calls it takes.
    #[schema(value_type = Vec<String>)]
    tools: Vec<Text>,
    /// Milliseconds since its last request.
    seen_ms: u64,
    /// Number of calls that it holds a lease for.
    calls: usize,
}

#[derive(Debug, Serialize, ToSchema)]
struct RemoteCallRow {
    call: String,
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    #[schema(value_type = String)]
    tool: Text,
    /// `queued`; `leased` until its worker begins it; then `running`.
    state: &'static str,
    worker: Option<String>,
    /// Number of times that it was leased.
    attempt: u32,
    /// Milliseconds since the session made the call.
    age_ms: u64,
}

pub(crate) struct WorkerMetrics {
    pub(crate) calls: [(&'static str, usize); 3],
    /// Number of leases that ran out.
    pub(crate) lost: u64,
}

fn ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the name of the state of a call; `None` if it has ended.
fn state(call: &RemoteCall) -> Option<&'static str> {
    match &call.state {
        RemoteState::Queued => Some("queued"),
        RemoteState::Leased(lease) if lease.begun => Some("running"),
        RemoteState::Leased(_) => Some("leased"),
        RemoteState::Ended(_) => None,
    }
}

impl CallBoard {
    pub(super) fn metrics(&self) -> WorkerMetrics {
        let count = |name| (name, self.calls.values().filter(|call| state(call) == Some(name)).count());
        WorkerMetrics { calls: ["queued", "leased", "running"].map(count), lost: self.lost }
    }

    pub(super) fn view(&self, tools: &[Arc<RemoteTool>], now: Instant) -> WorkersView {
        let worker_of = |call: &RemoteCall| match &call.state {
            RemoteState::Leased(lease) => Some(lease.worker.clone()),
            RemoteState::Queued | RemoteState::Ended(_) => None,
        };
        let tool = |tool: &Arc<RemoteTool>| RemoteToolRow {
            name: Arc::clone(&tool.spec.name),
            action: Arc::clone(&tool.action),
            idempotent: tool.idempotent,
            lease_ms: ms(tool.lease),
            deadline_ms: tool.deadline.map(ms),
        };
        let workers = self.workers.iter().map(|(name, seen)| WorkerRow {
            name: name.clone(),
            tools: seen.tools.clone(),
            seen_ms: ms(now.duration_since(seen.at)),
            calls: self.calls.values().filter(|call| worker_of(call).as_ref() == Some(name)).count(),
        });
        let calls = self.calls.values().filter_map(|call| {
            Some(RemoteCallRow {
                call: call.id.clone(),
                session: call.session,
                tool: Arc::clone(&call.tool.spec.name),
                state: state(call)?,
                worker: worker_of(call),
                attempt: call.attempt,
                age_ms: ms(now.duration_since(call.since)),
            })
        });
        WorkersView { tools: tools.iter().map(tool).collect(), workers: workers.collect(), calls: calls.collect() }
    }
}
