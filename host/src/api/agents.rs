//! Agents: who may answer.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use subtend_agents::manifest::Manifest;
use utoipa::ToSchema;

use super::Path;
use crate::host::Host;
use crate::problem::Problem;

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Agent {
    name: String,
    /// `primary`, `subagent` or `all`.
    mode: String,
    description: String,
    /// The model that it names, if it does.
    model: Option<String>,
    /// Tools that it names; all that its authority allows if it names none.
    tools: Option<Vec<String>>,
    /// Whether a person may open a session with it.
    pickable: bool,
    /// Whether other agents may start it.
    spawnable: bool,
    /// The hash of its manifest, as sessions record it.
    hash: String,
}

impl From<&Manifest> for Agent {
    fn from(of: &Manifest) -> Self {
        Self {
            name: of.name.to_string(),
            mode: of.mode.word().to_owned(),
            description: of.description.to_string(),
            model: of.model.as_ref().map(ToString::to_string),
            tools: of.tools.as_ref().map(|tools| tools.iter().map(ToString::to_string).collect()),
            pickable: of.pickable(),
            spawnable: of.spawnable(),
            hash: of.hash().to_string(),
        }
    }
}

/// Lists agents.
#[utoipa::path(get, path = "/v1/agents", tag = "agents", operation_id = "list_agents",
    responses((status = 200, body = Vec<Agent>)))]
pub(super) async fn list(State(host): State<Host>) -> Json<Vec<Agent>> {
    let catalog = host.runtime().catalog();
    Json(catalog.all().filter(|agent| !agent.hidden).map(|agent| Agent::from(&**agent)).collect())
}

/// Shows one agent.
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents", operation_id = "get_agent",
    params(("name" = String, Path, description = "Its name")),
    responses((status = 200, body = Agent), (status = 404, body = Problem)))]
pub(super) async fn get(State(host): State<Host>, Path(name): Path<String>) -> Result<Json<Agent>, Problem> {
    let agent = host.runtime().catalog().get(&name).map(|agent| Agent::from(&**agent));
    agent.map(Json).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, "agent_not_found", format!("no agent {name:?}: GET /v1/agents lists them"))
    })
}
