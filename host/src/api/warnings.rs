use axum::extract::State;

use super::{NoParameters, Path};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;
use crate::slash::workspace_of;

/// Lists a sentence for each MCP server of the session's workspace that was needed and cannot be used, or that refused
/// a call.
#[utoipa::path(get, path = "/v1/sessions/{id}/warnings", tag = "sessions", operation_id = "list_warnings",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Vec<String>), (status = 404, body = Problem)))]
pub(super) async fn list(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoParameters,
) -> Result<Json<Vec<String>>, Problem> {
    let session = host.session(&id).await?.id();
    let Some(warnings) = &host.options().warnings else { return Ok(Json(Vec::new())) };
    Ok(Json(warnings.of(&workspace_of(&host, session)?)))
}
