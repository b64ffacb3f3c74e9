//! Branches of a session, and the alternatives of its answers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtend_actors::transcript::object;
use subtend_actors::{Alternatives, BranchInfo, BranchOptions};
use subtend_session::command::SwitchTo;
use subtend_session::ids::{MsgRef, Seq, SessionId};
use subtend_session::place::BranchKind;
use utoipa::ToSchema;

use super::sessions::reused;
use super::{Body, Key, Path};
use crate::host::{self, Host};
use crate::problem::Problem;

/// A branch, as its parent knows it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Branch {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    short: String,
    #[schema(value_type = String)]
    kind: BranchKind,
    inherit_context: bool,
    /// The message that it hangs on: session and record.
    #[schema(value_type = Object)]
    parent_message: MsgRef,
    /// The answer whose call made it.
    #[schema(value_type = Option<Object>)]
    assistant_message: Option<MsgRef>,
    /// The call that made it: turn and place.
    call: Option<String>,
    agent: String,
    title: String,
    task: Option<String>,
    state: Option<String>,
    iterations: u32,
    created_ms: i64,
    updated_ms: i64,
    #[schema(value_type = Object)]
    metadata: Value,
}

impl From<BranchInfo> for Branch {
    fn from(of: BranchInfo) -> Self {
        Self {
            state: of.state().map(str::to_owned),
            id: of.id,
            short: of.short.to_string(),
            kind: of.kind,
            inherit_context: of.inherits_context,
            parent_message: of.parent_message,
            assistant_message: of.assistant_message,
            call: of.call.map(|call| call.to_string()),
            agent: of.agent.to_string(),
            title: of.title.to_string(),
            task: of.task.map(|task| task.to_string()),
            iterations: of.iterations,
            created_ms: of.created_ms,
            updated_ms: of.updated_ms,
            metadata: object(of.metadata.as_deref()),
        }
    }
}

/// Lists the branches of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/branches", tag = "branches", operation_id = "list_branches",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Vec<Branch>), (status = 404, body = Problem)))]
pub(super) async fn list(State(host): State<Host>, Path(id): Path<String>) -> Result<Json<Vec<Branch>>, Problem> {
    let branches = host.session(&id).await?.branches().await?;
    Ok(Json(branches.into_iter().map(Branch::from).collect()))
}

/// What a branch is made with.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Make {
    /// The record of the message that it hangs on; the last message if not given.
    at: Option<u64>,
    /// Whether it starts without the context up to that message.
    #[serde(default)]
    fresh: bool,
    agent: Option<String>,
    title: Option<String>,
    metadata: Option<Map<String, Value>>,
}

/// The session of a new branch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Made {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    /// The run that was opened with it.
    run: Option<u32>,
}

/// Makes a branch at a message.
#[utoipa::path(post, path = "/v1/sessions/{id}/branches", tag = "branches", operation_id = "make_branch", request_body = Make,
    params(("id" = String, Path, description = "The session"), ("Idempotency-Key" = Option<String>, Header, description = "Names the command: sent again, it has no second effect")),
    responses((status = 201, body = Made), (status = 200, body = Made, description = "It was made before, by the same key"), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn make(
    State(host): State<Host>,
    Path(id): Path<String>,
    Key(key): Key,
    Body(make): Body<Make>,
) -> Result<(StatusCode, Json<Made>), Problem> {
    let handle = host.session(&id).await?;
    if let Some(title) = &make.title {
        subtend_session::title::check(title).map_err(|bad| Problem::invalid("invalid_title", bad.to_string()))?;
    }
    let kind = if make.fresh { BranchKind::Subagent } else { BranchKind::Human };
    let _guard = host.keyed().await;
    let known = known(&host, handle.id(), key.as_deref(), kind).await?;
    if let Some(session) = known.filter(|known| known.is_made).map(|known| known.id) {
        return Ok((StatusCode::OK, Json(Made { session, run: None })));
    }
    let options = BranchOptions {
        id: known.map(|known| known.id),
        at: make.at.map(Seq),
        kind,
        agent: make.agent.map(Into::into),
        title: make.title.map(Into::into),
        metadata: make.metadata.map(|object| Value::from(object).to_string().into()),
    };
    let branch = handle.branch(options).await?;
    Ok((StatusCode::CREATED, Json(Made { session: branch.id(), run: None })))
}

/// The branch that a key names.
#[derive(Clone, Copy)]
struct Known {
    id: SessionId,
    /// Whether the command was executed before.
    is_made: bool,
}

/// Returns the branch of `parent` that `key` names.
///
/// # Errors
/// [`Problem`] `idempotency_key_reused` where the key named a branch of another kind, `session_deleted`.
async fn known(host: &Host, parent: SessionId, key: Option<&str>, kind: BranchKind) -> Result<Option<Known>, Problem> {
    let Some(key) = key else { return Ok(None) };
    host.settled().await?;
    let id = host::id_of_branch(parent, key);
    let head = host.runtime().journal().head(id)?;
    match head {
        Some(head) if head.deleted => Err(Problem::deleted(id)),
        Some(head) if head.kind != Some(kind) => Err(reused(key)),
        head => Ok(Some(Known { id, is_made: head.is_some() })),
    }
}

/// An answer with its alternatives.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answers {
    /// The record of the answer.
    of: u64,
    /// The alternative that the session continues with; 0 is the original.
    active: u32,
    choices: Vec<Choice>,
}

/// One alternative of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Choice {
    /// Its session; absent for the original.
    #[schema(value_type = Option<String>, format = Uuid)]
    session: Option<SessionId>,
    text: Option<String>,
}

impl From<Alternatives> for Answers {
    fn from(of: Alternatives) -> Self {
        let choice = |choice: subtend_actors::Alternative| Choice {
            session: choice.session,
            text: choice.text.map(|text| text.to_string()),
        };
        Self { of: of.of.0, active: of.active, choices: of.choices.into_iter().map(choice).collect() }
    }
}

/// Lists answers that have alternatives.
#[utoipa::path(get, path = "/v1/sessions/{id}/alternatives", tag = "branches", operation_id = "list_alternatives",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Vec<Answers>), (status = 404, body = Problem)))]
pub(super) async fn alternatives(
    State(host): State<Host>,
    Path(id): Path<String>,
) -> Result<Json<Vec<Answers>>, Problem> {
    let answers = host.session(&id).await?.alternatives().await?;
    Ok(Json(answers.into_iter().map(Answers::from).collect()))
}

/// Which answer is regenerated.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Regenerate {
    /// The record of the answer; the last one if not given.
    of: Option<u64>,
}

/// Regenerates an answer as a new alternative.
#[utoipa::path(post, path = "/v1/sessions/{id}/regenerate", tag = "branches", operation_id = "regenerate", request_body = Regenerate,
    params(("id" = String, Path, description = "The session"), ("Idempotency-Key" = Option<String>, Header, description = "Names the command: sent again, it has no second effect")),
    responses((status = 201, body = Made), (status = 200, body = Made, description = "It was made before, by the same key"), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn regenerate(
    State(host): State<Host>,
    Path(id): Path<String>,
    Key(key): Key,
    Body(which): Body<Regenerate>,
) -> Result<(StatusCode, Json<Made>), Problem> {
    let handle = host.session(&id).await?;
    let _guard = host.keyed().await;
    let known = known(&host, handle.id(), key.as_deref(), BranchKind::Alternative).await?;
    if let Some(session) = known.filter(|known| known.is_made).map(|known| known.id) {
        return Ok((StatusCode::OK, Json(Made { session, run: Some(1) })));
    }
    let (branch, run) = handle.regenerate_as(which.of.map(Seq), known.map(|known| known.id)).await?;
    Ok((StatusCode::CREATED, Json(Made { session: branch.id(), run: Some(run.0) })))
}

/// Which alternative a session continues with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    /// The record of the answer; the last one that has alternatives if not given.
    of: Option<u64>,
    /// `next`, `previous`, or a number; 0 is the original.
    #[schema(value_type = String)]
    to: To,
}

/// An alternative, by number or by direction.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum To {
    Number(u32),
    Word(Direction),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Next,
    Previous,
}

/// The alternative that a session continues with.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Switched {
    of: u64,
    to: u32,
}

/// Chooses the alternative of an answer that the session continues with.
#[utoipa::path(post, path = "/v1/sessions/{id}/switch", tag = "branches", operation_id = "switch_alternative", request_body = Switch,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Switched), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn switch(
    State(host): State<Host>,
    Path(id): Path<String>,
    Body(switch): Body<Switch>,
) -> Result<Json<Switched>, Problem> {
    let to = match switch.to {
        To::Number(index) => SwitchTo::Index(index),
        To::Word(Direction::Next) => SwitchTo::Next,
        To::Word(Direction::Previous) => SwitchTo::Previous,
    };
    let switched = host.session(&id).await?.switch(switch.of.map(Seq), to).await?;
    Ok(Json(Switched { of: switched.of.0, to: switched.to }))
}
