//! Tasks: sessions that a model or the host started, with the field names of the tool `spawn_task`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use subtend_actors::tasks::{Task, TaskFilter, TaskStatus};
use subtend_actors::{BranchOptions, Control, OpenOptions, SessionHandle};
use subtend_session::dialect::task_id;
use subtend_session::ids::SessionId;
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::values::JsonText;
use utoipa::ToSchema;

use super::waiting::WaitQuery;
use super::{Body, IdempotencyKey, NoKey, Path, Query, names, page_size};
use crate::cause;
use crate::host::Host;
use crate::iso_time;
use crate::json::Json;
use crate::problem::{Problem, quote};

/// A task. Its fields have the names of a task record of `spawn_task`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskRow {
    /// `task_…`.
    id: String,
    /// Session of the task.
    #[schema(value_type = String, format = Uuid)]
    child_session_id: SessionId,
    short: String,
    /// Agent of the task.
    r#type: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: String,
    /// Outcome of its last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    outcome: Option<OutcomeKind>,
    /// Cause if the last run did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>, nullable = false)]
    cause: Option<Outcome>,
    description: String,
    /// Absent if the records of the task cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    prompt: Option<String>,
    /// The session below which it was started; absent for a task of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Uuid, nullable = false)]
    parent_session_id: Option<SessionId>,
    #[schema(value_type = String, format = Uuid)]
    root: SessionId,
    /// Full result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    result: Option<String>,
    /// `cause` as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
    #[schema(value_type = Object)]
    metadata: JsonText,
    /// ISO 8601 in UTC, such as `2026-11-24T08:58:15.042Z`.
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
    /// End of its last run; absent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    completed_at: Option<String>,
    /// True if prompt and result are truncated and long metadata is omitted: GET /v1/tasks/get/ID has them.
    #[serde(skip_serializing_if = "is_false")]
    shortened: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

impl From<Task> for TaskRow {
    fn from(of: Task) -> Self {
        let cause = of.cause.filter(|cause| *cause != Outcome::Completed);
        let unread = of.unread.map(|why| format!("its records cannot be read: {why}"));
        Self {
            id: task_id(of.session),
            child_session_id: of.session,
            short: of.short.to_string(),
            r#type: of.agent.to_string(),
            status: of.status.as_str().to_owned(),
            outcome: of.outcome,
            error: unread.or_else(|| cause.as_ref().map(cause::describe_outcome)),
            cause,
            description: of.title.to_string(),
            prompt: of.prompt.map(|text| text.to_string()),
            parent_session_id: of.parent,
            root: of.root,
            result: of.result.map(|text| text.to_string()),
            metadata: JsonText::of_metadata(of.metadata.as_ref()),
            created_at: iso_time::to_text(of.created_ms),
            updated_at: iso_time::to_text(of.updated_ms),
            completed_at: of.ended_ms.map(iso_time::to_text),
            shortened: of.shortened,
        }
    }
}

/// A task to start.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Spawn {
    /// Agent of the task.
    #[serde(deserialize_with = "names::required")]
    r#type: String,
    prompt: String,
    /// Title for listings. Default: the start of the prompt.
    description: Option<String>,
    /// Any name of the session below which the task is started. The session must be allowed to start the agent, and the
    /// task has at most its permissions. Default: none; the task belongs to the host.
    #[serde(default, deserialize_with = "names::optional", skip_serializing_if = "Option::is_none")]
    parent_session_id: Option<String>,
    #[serde(default, deserialize_with = "names::metadata")]
    #[schema(value_type = Option<Map<String, Value>>)]
    metadata: Option<JsonText>,
}

/// Starts a task in the background, below a session or as a task of the host. With an `Idempotency-Key`, a repeated
/// request starts it once.
#[utoipa::path(post, path = "/v1/tasks/spawn", tag = "tasks", operation_id = "spawn_task", request_body = Spawn,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key has no second effect")),
    responses((status = 201, body = TaskRow), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 410, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn spawn(
    State(host): State<Host>,
    IdempotencyKey(key): IdempotencyKey,
    Body(spawn): Body<Spawn>,
) -> Result<(StatusCode, Json<TaskRow>), Problem> {
    let parent = match &spawn.parent_session_id {
        Some(name) => Some(host.reads().read_session(host.session(name)).await??),
        None => None,
    };
    // As for branches, each parent has its own keys.
    let kind = parent.as_ref().map_or_else(|| "task".to_owned(), |parent| format!("task of {}", parent.id()));
    let named = match &key {
        Some(key) => Some(host.lock_named_session(&kind, key, &spawn).await?),
        None => None,
    };
    let id = named.as_ref().map(|named| named.id);
    let title = spawn.description.map(Into::into);
    let metadata = spawn.metadata.map(|metadata| metadata.0);
    let receipt = match &parent {
        Some(parent) => {
            let agent = Some(spawn.r#type.into());
            let options = BranchOptions { id, agent, title, metadata, ..BranchOptions::default() };
            host.reads().read_session(parent.spawn_task(options, spawn.prompt)).await??
        }
        None => {
            let agent = spawn.r#type.into();
            let options = OpenOptions { id, title, metadata, agent, ..host.options().open.clone() };
            host.reads().read_session(host.runtime().spawn_task(options, spawn.prompt)).await??
        }
    };
    drop(named);
    Ok((StatusCode::CREATED, Json(row(&host, receipt.session().id()).await?)))
}

/// Reads the task of a session.
async fn row(host: &Host, session: SessionId) -> Result<TaskRow, Problem> {
    let filter = TaskFilter { session: Some(session), ..TaskFilter::default() };
    let (journal, tasks) = (host.runtime().journal(), host.runtime().tasks(filter));
    let tasks = host.reads().read_whole_session(journal, session, tasks).await??;
    tasks.into_iter().next().map(TaskRow::from).ok_or_else(|| {
        let detail = format!("session {session} is not a task: POST /v1/tasks/list lists them");
        Problem::new(StatusCode::NOT_FOUND, "task_not_found", detail)
    })
}

/// Finds the session of a task. Searches all sessions for a short name.
async fn session_of(host: &Host, id: &str) -> Result<SessionHandle, Problem> {
    let found = host.reads().read_session(host.session(id)).await?;
    found.map_err(|problem| if problem.code == "session_not_found" { no_task(id) } else { problem })
}

fn no_task(id: &str) -> Problem {
    let detail = format!("no task {id}: POST /v1/tasks/list lists those that exist", id = quote(id));
    Problem::new(StatusCode::NOT_FOUND, "task_not_found", detail)
}

/// Returns a task. With `wait`, waits until it ends or `timeout` has passed.
#[utoipa::path(get, path = "/v1/tasks/get/{id}", tag = "tasks", operation_id = "get_task",
    params(("id" = String, Path, description = "The task, `task_…`"), WaitQuery),
    responses((status = 200, body = TaskRow), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(waiting): Query<WaitQuery>,
) -> Result<Json<TaskRow>, Problem> {
    let handle = session_of(&host, &id).await?;
    if let Some(run) = handle.current_run().await? {
        // Other results of the wait are ignored, because the row contains the outcome.
        if let Err(problem) = waiting.wait_until(&host, handle.id(), run).await
            && problem.code == "busy"
        {
            return Err(problem);
        }
    }
    Ok(Json(row(&host, handle.id()).await?))
}

/// Default and maximum number of listed tasks.
const MAX_TASKS: usize = 500;
/// Maximum bytes of prompts, results and metadata in a listing.
const MAX_TEXT_BYTES: usize = 8 << 20;

/// Filters of a task list.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct TaskQuery {
    /// Only tasks with this status.
    #[serde(default, deserialize_with = "names::optional")]
    status: Option<String>,
    /// Only tasks below this session.
    #[serde(default, deserialize_with = "names::optional")]
    parent_session_id: Option<String>,
    /// Maximum number of tasks. Default and maximum: 500.
    #[schema(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// `CREATEDAT.CHILDSESSIONID` of the last task of the previous page. Only older tasks are listed.
    #[serde(default, deserialize_with = "names::optional")]
    before: Option<String>,
}

impl TaskQuery {
    /// Returns the position after which the page begins.
    fn page_start(&self) -> Result<Option<(i64, SessionId)>, Problem> {
        let Some(before) = &self.before else { return Ok(None) };
        let read = || {
            let (created, session) = before.rsplit_once('.')?;
            Some((iso_time::from_text(created)?, session.parse().ok()?))
        };
        let bad = || {
            Problem::malformed(format!(
                "before {before}: give `createdAt` and `childSessionId` of a task, as CREATEDAT.CHILDSESSIONID",
                before = quote(before)
            ))
        };
        read().map(Some).ok_or_else(bad)
    }
}

/// Lists tasks, newest first. After 8 MiB of prompts, results and metadata, long texts are truncated, which `shortened`
/// indicates.
#[utoipa::path(post, path = "/v1/tasks/list", tag = "tasks", operation_id = "list_tasks", request_body = TaskQuery,
    responses((status = 200, body = Vec<TaskRow>), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 410, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn list(State(host): State<Host>, Body(list): Body<TaskQuery>) -> Result<Response, Problem> {
    let status = match &list.status {
        None => None,
        Some(word) => Some(status_of(word)?),
    };
    let (before, most) = (list.page_start()?, page_size(list.limit, MAX_TASKS, MAX_TASKS)?);
    let parent = match &list.parent_session_id {
        None => None,
        Some(name) => Some(host.reads().read_session(host.session(name)).await??.id()),
    };
    let filter =
        TaskFilter { status, parent, before, limit: Some(most), text_bytes: Some(MAX_TEXT_BYTES), session: None };
    // The rows are encoded while the permit is held, because that parses their metadata.
    let read = async {
        let tasks = host.runtime().tasks(filter).await?;
        Ok(Json(tasks.into_iter().map(TaskRow::from).collect::<Vec<_>>()).into_response())
    };
    host.reads().read_store(read).await?
}

fn status_of(word: &str) -> Result<TaskStatus, Problem> {
    TaskStatus::ALL.into_iter().find(|status| status.as_str() == word).ok_or_else(|| {
        let known = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
        Problem::invalid("unknown_status", format!("status {word}: give one of {known}", word = quote(word)))
    })
}

/// Cancels a task with its children. An ended task does not change.
#[utoipa::path(post, path = "/v1/tasks/cancel/{id}", tag = "tasks", operation_id = "cancel_task",
    params(("id" = String, Path, description = "The task, `task_…`")),
    responses((status = 200, body = TaskRow), (status = 404, body = Problem)))]
pub(super) async fn cancel(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
) -> Result<Json<TaskRow>, Problem> {
    let handle = session_of(&host, &id).await?;
    // Refuse a session that is not a task.
    row(&host, handle.id()).await?;
    match handle.cancel().await? {
        Control::Done(run) => drop(handle.run_ended(run).await?),
        Control::AlreadyEnded(..) | Control::NotFound => {}
    }
    Ok(Json(row(&host, handle.id()).await?))
}
