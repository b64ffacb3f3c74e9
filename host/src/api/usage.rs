use axum::extract::State;
use serde::Serialize;
use subtend_actors::ContextShare;
use subtend_session::ids::SessionId;
use subtend_session::usage::Usage;
use utoipa::ToSchema;

use super::Path;
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

/// The usage of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionUsage {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    #[schema(value_type = Option<String>, format = Uuid)]
    parent: Option<SessionId>,
    /// Usage of this session alone.
    #[schema(value_type = Object)]
    own: Usage,
    /// Usage of the runs that it owns.
    #[schema(value_type = Object)]
    owned: Usage,
    /// Usage of this session and all its descendants.
    #[schema(value_type = Object)]
    tree: Usage,
    context: Option<ContextUse>,
    children: Vec<ChildUsage>,
    /// Size of its journal in bytes.
    recorded: u64,
    /// Size of its journal and those of its descendants, in bytes.
    recorded_below: u64,
    created_ms: i64,
    updated_ms: i64,
}

/// Use of the model's context.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ContextUse {
    /// Number of tokens used.
    used: u64,
    /// Size of the context window in tokens, if known.
    window: Option<u64>,
}

/// The usage of a child.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChildUsage {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    short: String,
    agent: String,
    #[schema(value_type = Object)]
    own: Usage,
    context: Option<ContextUse>,
    recorded: u64,
}

impl From<ContextShare> for ContextUse {
    fn from(of: ContextShare) -> Self {
        Self { used: of.used, window: of.window }
    }
}

/// Returns the usage of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/usage", tag = "usage", operation_id = "get_usage",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = SessionUsage), (status = 404, body = Problem)))]
pub(super) async fn get(State(host): State<Host>, Path(id): Path<String>) -> Result<Json<SessionUsage>, Problem> {
    let handle = host.session(&id).await?;
    let view = handle.usage().await?;
    let child = |of: subtend_actors::ChildUsage| ChildUsage {
        id: of.session,
        short: of.short.to_string(),
        agent: of.agent.to_string(),
        own: of.own,
        context: of.context.map(ContextUse::from),
        recorded: of.recorded,
    };
    Ok(Json(SessionUsage {
        id: handle.id(),
        parent: view.parent,
        own: view.own,
        owned: view.owned,
        tree: view.tree,
        context: view.context.map(ContextUse::from),
        children: view.children.into_iter().map(child).collect(),
        recorded: view.recorded,
        recorded_below: view.recorded_below,
        created_ms: view.created_ms,
        updated_ms: view.updated_ms,
    }))
}
