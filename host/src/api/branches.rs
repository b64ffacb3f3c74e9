use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::{Alternatives, BranchFilter, BranchInfo, BranchOptions};
use subtend_session::command::SwitchTo;
use subtend_session::ids::{MsgRef, Seq, SessionId};
use subtend_session::place::BranchKind;
use subtend_session::record::Record;
use subtend_session::values::JsonText;
use utoipa::{IntoParams, ToSchema};

use super::restores::parse_digest;
use super::{Body, IdempotencyKey, NoKey, Path, Query, Since, names, page_size};
use crate::host::{Host, KeyedSession};
use crate::json::Json;
use crate::problem::Problem;

/// A branch of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Branch {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    short: String,
    #[schema(value_type = String)]
    kind: BranchKind,
    inherit_context: bool,
    /// The message at which it starts, as session and record.
    #[schema(value_type = Object)]
    parent_message: MsgRef,
    /// The answer that contains the call that created it.
    #[schema(value_type = Option<Object>)]
    assistant_message: Option<MsgRef>,
    /// The call that created it, as turn and index.
    call: Option<String>,
    agent: String,
    title: String,
    task: Option<String>,
    state: Option<String>,
    iterations: u32,
    created_ms: i64,
    updated_ms: i64,
    #[schema(value_type = Object)]
    metadata: JsonText,
    /// True if the task is truncated and long metadata is omitted: GET /v1/sessions/ID/transcript has them.
    #[serde(skip_serializing_if = "super::tasks::is_false")]
    shortened: bool,
}

/// Default and maximum number of listed branches.
const MAX_BRANCHES: usize = 500;
/// Maximum bytes of tasks and metadata in a listing.
const MAX_BRANCH_BYTES: usize = 8 << 20;

/// Returns the largest page of branches.
pub(crate) fn full_page(after: Option<SessionId>) -> BranchFilter {
    BranchFilter { after, limit: Some(MAX_BRANCHES), text_bytes: Some(MAX_BRANCH_BYTES) }
}

/// A page of branches.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct BranchQuery {
    /// Maximum number of branches. Default and maximum: 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// `id` of the last branch of the previous page. Only branches that were created after it are listed.
    #[param(value_type = Option<String>)]
    after: Option<SessionId>,
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
            metadata: JsonText::of_metadata(of.metadata.as_ref()),
            shortened: of.shortened,
        }
    }
}

/// Lists the branches of a session, oldest first. After 8 MiB of tasks and metadata, tasks are truncated and long metadata
/// is omitted, which `shortened` indicates.
#[utoipa::path(get, path = "/v1/sessions/{id}/branches", tag = "branches", operation_id = "list_branches",
    params(("id" = String, Path, description = "The session"), BranchQuery),
    responses((status = 200, body = Vec<Branch>), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn list(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(page): Query<BranchQuery>,
) -> Result<Json<Vec<Branch>>, Problem> {
    let limit = page_size(page.limit, MAX_BRANCHES, MAX_BRANCHES)?;
    let filter = BranchFilter { limit: Some(limit), ..full_page(page.after) };
    let branches = host.session(&id).await?.list_branches(filter).await?;
    Ok(Json(branches.into_iter().map(Branch::from).collect()))
}

/// Options of a new branch.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBranch {
    /// Record of the message at which it starts. Default: the last message.
    at: Option<u64>,
    /// True if it starts with an empty context.
    #[serde(default)]
    fresh: bool,
    #[serde(default, deserialize_with = "names::optional")]
    agent: Option<String>,
    title: Option<String>,
    #[serde(default, deserialize_with = "names::metadata")]
    #[schema(value_type = Option<Map<String, Value>>)]
    metadata: Option<JsonText>,
    /// Digest from `restore` of the files to restore to the message. Without it, files do not change.
    #[serde(default, deserialize_with = "names::optional", skip_serializing_if = "Option::is_none")]
    files: Option<String>,
}

/// A created branch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CreatedBranch {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    /// The run that its first input opened, if any.
    run: Option<u32>,
    /// Restored files.
    files: Vec<String>,
}

/// Creates a branch at a message.
#[utoipa::path(post, path = "/v1/sessions/{id}/branches", tag = "branches", operation_id = "make_branch", request_body = NewBranch,
    params(("id" = String, Path, description = "The session"), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key has no second effect")),
    responses((status = 201, body = CreatedBranch), (status = 200, body = CreatedBranch, description = "An earlier request with the same key created it"), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn make(
    State(host): State<Host>,
    Path(id): Path<String>,
    IdempotencyKey(key): IdempotencyKey,
    Body(make): Body<NewBranch>,
) -> Result<(StatusCode, Json<CreatedBranch>), Problem> {
    let handle = host.session(&id).await?;
    if let Some(title) = &make.title {
        subtend_session::title::check(title).map_err(|bad| Problem::invalid("invalid_title", bad.to_string()))?;
    }
    let kind = if make.fresh { BranchKind::Subagent } else { BranchKind::Human };
    let known = find_known(&host, handle.id(), key.as_deref(), &(kind, &make)).await?;
    if let Some((KeyedSession { id: session, .. }, true)) = known {
        return Ok((StatusCode::OK, Json(CreatedBranch { session, run: None, files: Vec::new() })));
    }
    let shown = make.files.as_deref().map(parse_digest).transpose()?;
    let options = BranchOptions {
        id: known.as_ref().map(|(named, _)| named.id),
        at: make.at.map(Seq),
        kind,
        agent: make.agent.map(Into::into),
        title: make.title.map(Into::into),
        metadata: make.metadata.map(|metadata| metadata.0),
    };
    let (branch, files) = match shown {
        Some(shown) => {
            let (branch, restored) = host.reads().read_session(handle.branch_files(options, shown)).await??;
            (branch, restored.files)
        }
        None => (host.reads().read_session(handle.branch(options)).await??, Vec::new()),
    };
    Ok((StatusCode::CREATED, Json(CreatedBranch { session: branch.id(), run: None, files })))
}

/// Returns the id of the branch of `parent` that `command` creates with `key`, and whether it already exists.
///
/// # Errors
/// [`Problem`] `idempotency_key_reused` if the key was used for another command of that session, or `session_deleted`.
async fn find_known(
    host: &Host,
    parent: SessionId,
    key: Option<&str>,
    command: &impl Serialize,
) -> Result<Option<(KeyedSession, bool)>, Problem> {
    let Some(key) = key else { return Ok(None) };
    let named = host.lock_named_session(&format!("branch of {parent}"), key, command).await?;
    match host.runtime().journal().head(named.id)? {
        Some(head) if head.deleted => Err(Problem::deleted(named.id)),
        head => Ok(Some((named, head.is_some()))),
    }
}

/// An answer with its alternatives.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answers {
    /// Record of the answer.
    of: u64,
    /// The alternative that the session continues with; 0 is the original.
    active: u32,
    choices: Vec<AlternativeText>,
}

/// One alternative of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AlternativeText {
    /// Session of the alternative; absent for the original.
    #[schema(value_type = Option<String>, format = Uuid)]
    session: Option<SessionId>,
    text: Option<String>,
}

impl From<Alternatives> for Answers {
    fn from(of: Alternatives) -> Self {
        let choice = |choice: subtend_actors::Alternative| AlternativeText {
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

/// The answer to regenerate.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Regenerate {
    /// Record of the answer. Default: the last one.
    of: Option<u64>,
}

/// Regenerates an answer as a new alternative.
#[utoipa::path(post, path = "/v1/sessions/{id}/regenerate", tag = "branches", operation_id = "regenerate", request_body = Regenerate,
    params(("id" = String, Path, description = "The session"), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key has no second effect")),
    responses((status = 201, body = CreatedBranch), (status = 200, body = CreatedBranch, description = "An earlier request with the same key created it"), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn regenerate(
    State(host): State<Host>,
    Path(id): Path<String>,
    IdempotencyKey(key): IdempotencyKey,
    Body(which): Body<Regenerate>,
) -> Result<(StatusCode, Json<CreatedBranch>), Problem> {
    let handle = host.session(&id).await?;
    let known = find_known(&host, handle.id(), key.as_deref(), &(BranchKind::Alternative, &which)).await?;
    if let Some((KeyedSession { id: session, .. }, true)) = known {
        return Ok((StatusCode::OK, Json(CreatedBranch { session, run: Some(1), files: Vec::new() })));
    }
    let regenerate = handle.regenerate_as(which.of.map(Seq), known.as_ref().map(|(named, _)| named.id));
    let (branch, run) = host.reads().read_session(regenerate).await??;
    Ok((StatusCode::CREATED, Json(CreatedBranch { session: branch.id(), run: Some(run.0), files: Vec::new() })))
}

/// The alternative to switch to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchRequest {
    /// Record of the answer. Default: the last one that has alternatives.
    of: Option<u64>,
    /// `next`, `previous`, or a number; 0 is the original.
    to: SwitchTarget,
}

/// An alternative, by number or by direction.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum SwitchTarget {
    Number(u32),
    Word(Direction),
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Direction {
    Next,
    Previous,
}

/// The alternative with which a session continues.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ActiveAlternative {
    of: u64,
    to: u32,
}

/// Chooses the alternative of an answer with which the session continues.
#[utoipa::path(post, path = "/v1/sessions/{id}/switch", tag = "branches", operation_id = "switch_alternative", request_body = SwitchRequest,
    params(("id" = String, Path, description = "The session"), Since),
    responses((status = 200, body = ActiveAlternative), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn switch(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(since): Query<Since>,
    _: NoKey,
    Body(switch): Body<SwitchRequest>,
) -> Result<Json<ActiveAlternative>, Problem> {
    let to = match switch.to {
        SwitchTarget::Number(index) => SwitchTo::Index(index),
        SwitchTarget::Word(Direction::Next) => SwitchTo::Next,
        SwitchTarget::Word(Direction::Previous) => SwitchTo::Previous,
    };
    let handle = host.session(&id).await?;
    let switched = |record: &Record| {
        let Record::AlternativeSwitched { of, to, .. } = record else { return None };
        switch.of.is_none_or(|wanted| wanted == of.0).then_some((*of, *to))
    };
    let choose = async |done: Option<(Seq, u32)>| {
        if let Some((of, to)) = done {
            return Ok(Json(ActiveAlternative { of: of.0, to }));
        }
        let switched = handle.switch(switch.of.map(Seq), to).await?;
        Ok(Json(ActiveAlternative { of: switched.of.0, to: switched.to }))
    };
    since.run_once(&host, handle.id(), switched, choose).await
}
