use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use subtend_actors::{QueueEntry, QueueKind};
use subtend_session::ids::{InputId, Seq};
use subtend_session::record::Lane;
use utoipa::ToSchema;

use super::{NoKey, NoParameters, Path};
use crate::host::Host;
use crate::json::Json;
use crate::problem::{Problem, quote};

/// A queued input.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueuedInput {
    #[schema(value_type = String, format = Uuid)]
    id: InputId,
    /// `user`, `system`, `agent_result` or `completion`.
    #[schema(value_type = String)]
    kind: QueueKind,
    /// `send` or `steer`.
    #[schema(value_type = String)]
    lane: Lane,
    text: String,
    /// Metadata of the sender, as JSON text.
    metadata: Option<String>,
    /// Record of the input.
    #[schema(value_type = Option<u64>)]
    seq: Option<Seq>,
    time_ms: Option<i64>,
}

impl From<QueueEntry> for QueuedInput {
    fn from(of: QueueEntry) -> Self {
        let (text, metadata) = (of.text.to_string(), of.metadata.map(|text| text.to_string()));
        Self { id: of.id, kind: of.kind, lane: of.lane, text, metadata, seq: of.at, time_ms: of.time_ms }
    }
}

/// Lists queued inputs in the order of processing.
#[utoipa::path(get, path = "/v1/sessions/{id}/queue", tag = "queue", operation_id = "list_queue",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Vec<QueuedInput>), (status = 404, body = Problem)))]
pub(super) async fn list(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoParameters,
) -> Result<Json<Vec<QueuedInput>>, Problem> {
    let entries = host.session(&id).await?.queue().await?;
    Ok(Json(entries.into_iter().map(QueuedInput::from).collect()))
}

/// Number of removed inputs.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Removed {
    removed: u32,
}

/// Removes all queued inputs that users sent.
#[utoipa::path(delete, path = "/v1/sessions/{id}/queue", tag = "queue", operation_id = "clear_queue",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Removed), (status = 404, body = Problem)))]
pub(super) async fn clear(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
) -> Result<Json<Removed>, Problem> {
    Ok(Json(Removed { removed: host.session(&id).await?.queue_clear().await? }))
}

/// Removes one queued input.
#[utoipa::path(delete, path = "/v1/sessions/{id}/queue/{input}", tag = "queue", operation_id = "remove_input",
    params(("id" = String, Path, description = "The session"), ("input" = String, Path, description = "The input")),
    responses((status = 200, body = Removed), (status = 404, body = Problem)))]
pub(super) async fn remove(
    State(host): State<Host>,
    Path((id, input)): Path<(String, String)>,
    _: NoKey,
) -> Result<Json<Removed>, Problem> {
    let handle = host.session(&id).await?;
    let input: InputId = input
        .parse()
        .map_err(|_| Problem::malformed(format!("input {input}: give its id, a UUID", input = quote(&input))))?;
    if handle.queue_remove(input).await? {
        return Ok(Json(Removed { removed: 1 }));
    }
    let detail = format!("input {input} is not queued: a run took it, or it was removed");
    Err(Problem::new(StatusCode::NOT_FOUND, "input_not_found", detail))
}
