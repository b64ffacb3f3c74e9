use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::AgentChanges;
use subtend_agents::catalog::{Catalog, MAX_FILES};
use subtend_agents::manifest::Manifest;
use utoipa::ToSchema;

use super::{Body, NoKey, NoParameters, Path};
use crate::host::Host;
use crate::json::Json;
use crate::problem::{Problem, quote};

/// An agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Agent {
    name: String,
    /// `primary`, `subagent` or `all`.
    mode: String,
    description: String,
    /// The model that its manifest names.
    model: Option<String>,
    /// The tools that its manifest names; absent if it may use all that its permissions allow.
    tools: Option<Vec<String>>,
    /// True if users may open a session with it.
    pickable: bool,
    /// True if other agents may start it.
    spawnable: bool,
    /// Hash of its manifest, as sessions record it.
    hash: String,
}

impl From<&Manifest> for Agent {
    fn from(of: &Manifest) -> Self {
        Self {
            name: of.name.to_string(),
            mode: of.mode.as_str().to_owned(),
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
pub(super) async fn list(State(host): State<Host>, _: NoParameters) -> Json<Vec<Agent>> {
    let catalog = host.runtime().catalog();
    Json(catalog.all().filter(|agent| !agent.hidden).map(|agent| Agent::from(&**agent)).collect())
}

/// Returns an agent.
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents", operation_id = "get_agent",
    params(("name" = String, Path, description = "Name of the agent")),
    responses((status = 200, body = Agent), (status = 404, body = Problem)))]
pub(super) async fn get(State(host): State<Host>, Path(name): Path<String>) -> Result<Json<Agent>, Problem> {
    let agent = host.runtime().catalog().get(&name).map(|agent| Agent::from(&**agent));
    agent.map(Json).ok_or_else(|| not_found(&name))
}

fn not_found(name: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "agent_not_found",
        format!("no agent {name}: GET /v1/agents lists them", name = quote(name)),
    )
}

/// The text of an agent.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentText {
    /// Markdown with front matter, as in a file of `.subtend/agents/`. A `name` in it must be equal to the name in the path.
    text: String,
}

/// A registered agent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RegisteredAgent {
    agent: Agent,
    /// True if it replaced an agent with the same name.
    replaced: bool,
    /// Warnings about parts of the text without effect.
    warnings: Vec<String>,
}

/// Registers an agent, or replaces the agent with the same name. It is available to sessions opened later, in every
/// workspace. Open trees keep their agents until they are reloaded. The registration is lost when the host process
/// ends.
#[utoipa::path(put, path = "/v1/agents/{name}", tag = "agents", operation_id = "register_agent", request_body = AgentText,
    params(("name" = String, Path, description = "Name of the agent")),
    responses((status = 200, body = RegisteredAgent), (status = 422, body = Problem)))]
pub(super) async fn register(
    State(host): State<Host>,
    Path(name): Path<String>,
    _: NoKey,
    Body(AgentText { text }): Body<AgentText>,
) -> Result<Json<RegisteredAgent>, Problem> {
    let catalog = host.runtime().catalog();
    let refused = |why: String| Problem::invalid("invalid_agent", why);
    let read = |catalog: &Catalog| catalog.read_text(&text, &name).map_err(|error| refused(error.to_string()));
    let (manifest, mut warnings) = read(&catalog)?;
    if let Some(model) = &manifest.model {
        let unusable = host.reads().read_session(async { host.runtime().unusable_model(model) }).await?;
        warnings.extend(unusable.map(|why| format!("`model`: {why}")));
    }
    let agent = Agent::from(&manifest);
    // Other requests may have registered agents while the model was checked.
    let catalog = host.runtime().catalog();
    let (manifest, _) = read(&catalog)?;
    check_names(&host, &name)?;
    if catalog.get(&name).is_none() && catalog.all().count() >= MAX_FILES {
        return Err(refused(format!("there are {MAX_FILES} agents already, the limit of a host")));
    }
    let replaced = host.runtime().register_agent(manifest).is_some();
    Ok(Json(RegisteredAgent { agent, replaced, warnings }))
}

/// Refuses another name if clients have registered and removed many already.
fn check_names(host: &Host, name: &str) -> Result<(), Problem> {
    if host.runtime().has_room_for_agent(name) {
        return Ok(());
    }
    let why = format!(
        "agents of {MAX_FILES} names were registered or removed already: use one of these names, or restart the host"
    );
    Err(Problem::invalid("invalid_agent", why))
}

/// Removes an agent for sessions opened later, even if a file defines it. Open trees keep it until they are reloaded.
#[utoipa::path(delete, path = "/v1/agents/{name}", tag = "agents", operation_id = "remove_agent",
    params(("name" = String, Path, description = "Name of the agent")),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn remove(
    State(host): State<Host>,
    Path(name): Path<String>,
    _: NoKey,
) -> Result<StatusCode, Problem> {
    match host.runtime().catalog().get(&name) {
        None => Err(not_found(&name)),
        Some(_) => {
            check_names(&host, &name)?;
            host.runtime().remove_agent(&name);
            Ok(StatusCode::NO_CONTENT)
        }
    }
}

/// Names of the agents that a reload added, changed or removed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReloadedAgents {
    added: Vec<String>,
    changed: Vec<String>,
    removed: Vec<String>,
    /// Agent files that could not be loaded, with the reasons.
    refused: Vec<String>,
}

/// Reloads the agents, instruction files, skills and tools of a session's tree. Its sessions use them from their next
/// turn on; their prompts and permissions stay as recorded.
#[utoipa::path(post, path = "/v1/sessions/{id}/reload", tag = "sessions", operation_id = "reload_agents",
    params(("id" = String, Path, description = "A session of the tree")),
    responses((status = 200, body = ReloadedAgents), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn reload(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
) -> Result<Json<ReloadedAgents>, Problem> {
    let AgentChanges { added, changed, removed, refused } = host.session(&id).await?.reload()?;
    let [added, changed, removed, refused] =
        [added, changed, removed, refused].map(|texts| texts.iter().map(ToString::to_string).collect());
    Ok(Json(ReloadedAgents { added, changed, removed, refused }))
}
