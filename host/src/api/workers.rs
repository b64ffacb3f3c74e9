//! Remote tools: workers take calls under leases, renew the leases, and complete calls with the fencing tokens of the
//! leases.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use subtend_session::ids::Text;
use subtend_session::near::near;
use utoipa::ToSchema;

use super::waiting::WaitQuery;
use super::{Body, NoParameters, Query};
use crate::auth::{Access, Sender};
use crate::host::Host;
use crate::host_bug::HostBug;
use crate::json::Json;
use crate::problem::Problem;
use crate::workers::{CompletionRefused, LeaseLost, LeasedCall, TakeRefused, WorkerResult, WorkersView};

const MAX_NAME_BYTES: usize = 64;

const MAX_PROGRESS_BYTES: usize = 200;
/// Maximum size of a request body, except of completions.
pub(super) const MAX_BODY_BYTES: usize = 16 << 10;

/// The request of a worker for a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TakeCall {
    /// Name of the worker, for listings.
    worker: String,
    /// Remote tools whose calls it answers.
    #[schema(value_type = Vec<String>)]
    tools: Vec<Text>,
}

/// The renewal of a lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RenewLease {
    /// Fencing token of the lease.
    token: String,
    /// Progress line for users who follow the session.
    progress: Option<String>,
}

/// A renewed lease.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RenewedLease {
    /// Time in ms until the lease expires, counted from the arrival of the request.
    lease_ms: u64,
    /// True if the call was cancelled. The worker must stop it and complete it with `stopped`, or with `not_started` if
    /// it had not begun.
    stop: bool,
}

/// The end of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CompleteCall {
    /// Fencing token of the lease.
    token: String,
    /// Result of the call.
    result: WorkerResult,
}

/// Lists remote tools, known workers, and waiting and running calls.
#[utoipa::path(get, path = "/v1/workers", tag = "workers", operation_id = "list_workers",
    responses((status = 200, body = WorkersView)))]
pub(super) async fn list(State(host): State<Host>, _: NoParameters) -> Json<WorkersView> {
    Json(host.workers().view())
}

/// Takes a call of a remote tool under a lease. The worker must renew the lease before it starts the call, and keep
/// renewing it until it completes the call.
///
/// If the lease expires before the first renewal, the call goes to another worker. If it expires later, the worker counts
/// as lost: a call of an idempotent tool is repeated, other calls end with unknown effects.
#[utoipa::path(post, path = "/v1/workers/take", tag = "workers", operation_id = "take_call", params(WaitQuery),
    request_body = TakeCall,
    responses((status = 200, body = LeasedCall), (status = 204, description = "No call waits"),
        (status = 403, body = Problem, description = "The token is for other tools"),
        (status = 422, body = Problem)))]
pub(super) async fn take(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    access: Option<Extension<Arc<Access>>>,
    Query(wait): Query<WaitQuery>,
    Body(request): Body<TakeCall>,
) -> Result<Response, Problem> {
    check(&host, &request)?;
    check_tools(sender, &request.tools)?;
    let lasts = || access.as_ref().is_none_or(|access| access.is_valid());
    match wait.wait_for(&host, host.workers().take(&request.worker, &request.tools, lasts)).await {
        Some(Ok(call)) => Ok(Json(call).into_response()),
        Some(Err(refused)) => Err(refused.into()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Refuses tools that the token does not allow.
fn check_tools(sender: Option<Extension<Sender>>, tools: &[Text]) -> Result<(), Problem> {
    let Some(Extension(Sender::Token(grant))) = sender else { return Ok(()) };
    match tools.iter().find(|tool| !grant.answers(tool)) {
        None => Ok(()),
        Some(tool) => {
            let detail = format!(
                "the token is not for calls of {tool:?}: `subtend token create NAME --scope work --tool {tool}` makes one"
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "scope_too_small", detail))
        }
    }
}

fn check(host: &Host, request: &TakeCall) -> Result<(), Problem> {
    let TakeCall { worker, tools } = request;
    if worker.is_empty() || worker.len() > MAX_NAME_BYTES || worker.chars().any(char::is_control) {
        let detail = format!("invalid worker name {worker:?}: use 1 to {MAX_NAME_BYTES} bytes on one line");
        return Err(Problem::invalid("invalid_worker", detail));
    }
    let declared: Vec<&str> = host.workers().declarations().iter().map(|tool| &*tool.spec.name).collect();
    if tools.is_empty() || tools.len() > declared.len().max(1) {
        let detail = format!("tools: name 1 to {} remote tools, each once", declared.len().max(1));
        return Err(Problem::invalid("invalid_worker", detail));
    }
    match tools.iter().find(|tool| !declared.contains(&&***tool)) {
        None => Ok(()),
        Some(unknown) => {
            let near = near(unknown, declared.iter().copied()).map_or_else(
                || "; declare it in `remote_tools` of the host's configuration".to_owned(),
                |near| format!("; did you mean `{near}`?"),
            );
            let detail = format!("the host declares no remote tool {unknown:?}{near}");
            Err(Problem::invalid("unknown_remote_tool", detail))
        }
    }
}

/// Renews a lease. The first renewal begins the call. With `wait`, responds when the call is cancelled or the time
/// limit has passed.
#[utoipa::path(post, path = "/v1/workers/renew", tag = "workers", operation_id = "renew_lease", params(WaitQuery),
    request_body = RenewLease,
    responses((status = 200, body = RenewedLease), (status = 409, body = Problem, description = "The lease is over")))]
pub(super) async fn renew(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    Query(wait): Query<WaitQuery>,
    Body(RenewLease { token, progress }): Body<RenewLease>,
) -> Result<Json<RenewedLease>, Problem> {
    check_tools(sender, host.workers().tool_of(&token).as_slice())?;
    let shown = progress.as_deref();
    let shown = shown.map(|line| line.get(..line.floor_char_boundary(MAX_PROGRESS_BYTES)).unwrap_or(line));
    let renewed = host.workers().renew(&token, shown)?;
    // Dropped before the wait, so that a long line does not stay in memory.
    drop(progress);
    wait.wait_for(&host, renewed.stop.cancelled()).await;
    // Does not extend the lease, which counts from the arrival of the request.
    let stop = host.workers().is_stopped(&token)?;
    Ok(Json(RenewedLease { lease_ms: u64::try_from(renewed.lease.as_millis()).unwrap_or(u64::MAX), stop }))
}

/// Completes a call. A repeated completion gets the same response.
#[utoipa::path(post, path = "/v1/workers/complete", tag = "workers", operation_id = "complete_call",
    request_body = CompleteCall,
    responses((status = 204), (status = 409, body = Problem, description = "The lease is over, never renewed, or completed with another result")))]
pub(super) async fn complete(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    Body(request): Body<CompleteCall>,
) -> Result<StatusCode, Problem> {
    check_tools(sender, host.workers().tool_of(&request.token).as_slice())?;
    let any_lease = host.options().injected_bug.has(HostBug::OldLease);
    host.workers().complete(&request.token, request.result, any_lease)?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<LeaseLost> for Problem {
    fn from(_: LeaseLost) -> Self {
        let detail =
            "the lease has ended, or an earlier host process granted it: stop the call, its result is not used";
        Self::conflict("lease_lost", detail)
    }
}

impl From<CompletionRefused> for Problem {
    fn from(refused: CompletionRefused) -> Self {
        match refused {
            CompletionRefused::Lost => LeaseLost.into(),
            CompletionRefused::NotBegun => Self::conflict(
                "call_not_begun",
                "the lease was never renewed: renew it before the call is started, or complete it with `not_started`",
            ),
            CompletionRefused::Differs => Self::conflict(
                "completed_otherwise",
                "the call was already completed with another result, which is kept",
            ),
        }
    }
}

impl From<TakeRefused> for Problem {
    fn from(refused: TakeRefused) -> Self {
        match refused {
            TakeRefused::NoRandomness => {
                Self::internal("internal", "cannot get random bytes from the system".to_owned())
            }
        }
    }
}
