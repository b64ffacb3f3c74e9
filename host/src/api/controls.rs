use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::{CONTINUE_TEXT, CompactedHistory, Control, checkpoints};
use subtend_session::ids::RunNo;
use subtend_session::outcome::{Initiator, OutcomeKind};
use subtend_session::record::{Hold, Record};
use utoipa::{IntoParams, ToSchema};

use super::inputs::{Accepted, NewInput};
use super::restores::parse_digest;
use super::{Body, IdempotencyKey, NoKey, Path, Query, Since, names};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

/// The result of a control.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Controlled {
    /// `done`, or `already_ended` if no run was in flight.
    #[schema(value_type = String)]
    result: &'static str,
    /// The run that was stopped or had already ended.
    run: Option<u32>,
    /// Outcome of that run, if it had ended.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    /// Number of cancelled runs, if the whole tree was cancelled.
    cancelled: Option<u32>,
}

impl Controlled {
    fn of(control: Control) -> Result<Json<Self>, Problem> {
        match control {
            Control::Done(run) => Ok(Json(Self { result: "done", run: Some(run.0), outcome: None, cancelled: None })),
            Control::AlreadyEnded(run, outcome) => {
                let (run, outcome) = (Some(run.0), Some(outcome.kind()));
                Ok(Json(Self { result: "already_ended", run, outcome, cancelled: None }))
            }
            Control::NotFound => Err(Problem::new(
                StatusCode::NOT_FOUND,
                "run_not_found",
                "the session has no run with this number: read its transcript for the numbers",
            )),
        }
    }
}

/// The extent of a cancel.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    /// True to cancel the whole tree, including detached runs and branches.
    #[serde(default)]
    tree: bool,
    /// Cancels only this run, so that a repeated request does not cancel a later one. Not with `tree`.
    run: Option<u32>,
}

/// Cancels the run in flight with its children.
#[utoipa::path(post, path = "/v1/sessions/{id}/cancel", tag = "runs", operation_id = "cancel",
    params(("id" = String, Path, description = "The session"), Cancel),
    responses((status = 200, body = Controlled), (status = 404, body = Problem)))]
pub(super) async fn cancel(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(how): Query<Cancel>,
    _: NoKey,
) -> Result<Json<Controlled>, Problem> {
    let handle = host.session(&id).await?;
    if let Some(run) = how.run {
        if how.tree {
            return Err(Problem::malformed(
                "`run` and `tree` were both given: a tree is cancelled as a whole. Leave one out",
            ));
        }
        return Controlled::of(handle.run(RunNo(run)).cancel().await?);
    }
    if how.tree {
        let cancelled = Some(handle.cancel_tree().await?);
        return Ok(Json(Controlled { result: "done", run: None, outcome: None, cancelled }));
    }
    Controlled::of(handle.cancel().await?)
}

/// Interrupts the run in flight, which is then held until the next input.
#[utoipa::path(post, path = "/v1/sessions/{id}/interrupt", tag = "runs", operation_id = "interrupt",
    params(("id" = String, Path, description = "The session"), Since),
    responses((status = 200, body = Controlled), (status = 404, body = Problem)))]
pub(super) async fn interrupt(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(since): Query<Since>,
    _: NoKey,
) -> Result<Json<Controlled>, Problem> {
    let handle = host.session(&id).await?;
    // Repeated without a position, it does the same to the run in flight.
    if since.after.is_none() {
        return Controlled::of(handle.interrupt().await?);
    }
    let interrupt = async |done| {
        Ok(match done {
            Some(run) => Control::Done(run),
            None => handle.interrupt().await?,
        })
    };
    Controlled::of(since.run_once(&host, handle.id(), run_interrupted_by, interrupt).await?)
}

/// Returns the run that a record interrupts: the record holds the run, or ends it as interrupted.
fn run_interrupted_by(record: &Record) -> Option<RunNo> {
    if let Record::RunHeld { run, why } = record {
        matches!(**why, Hold::Interrupted { .. }).then_some(*run)
    } else if let Record::RunEnded(ended) = record {
        (ended.outcome.kind() == OutcomeKind::Interrupted).then_some(ended.run)
    } else {
        None
    }
}

/// The input with which a session continues.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Continue {
    /// Text of the input. Default: a standard text.
    text: Option<String>,
}

/// Continues a session that is held or whose last run ended.
#[utoipa::path(post, path = "/v1/sessions/{id}/continue", tag = "runs", operation_id = "continue_session", request_body = Continue,
    params(("id" = String, Path, description = "The session"), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key has no second effect")),
    responses((status = 200, body = Accepted), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn resume(
    State(host): State<Host>,
    Path(id): Path<String>,
    IdempotencyKey(key): IdempotencyKey,
    Body(how): Body<Continue>,
) -> Result<Json<Accepted>, Problem> {
    let handle = host.session(&id).await?;
    let text = how.text.as_deref().unwrap_or(CONTINUE_TEXT);
    let input = NewInput::of_text(text);
    let request = input.with_key("continue", key)?;
    Ok(Json(input.send(&host, &handle, request).await?))
}

/// Closes a session. A later input reopens it.
#[utoipa::path(post, path = "/v1/sessions/{id}/close", tag = "sessions", operation_id = "close_session",
    params(("id" = String, Path, description = "The session"), Since),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn close(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(since): Query<Since>,
    _: NoKey,
) -> Result<StatusCode, Problem> {
    let handle = host.session(&id).await?;
    let closed = |record: &Record| matches!(record, Record::SessionClosed { .. }).then_some(());
    let close = async |done: Option<()>| {
        if done.is_none() {
            handle.close().await?;
        }
        Ok(StatusCode::NO_CONTENT)
    };
    since.run_once(&host, handle.id(), closed, close).await
}

/// The run to roll back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollBack {
    /// Number of the run. Default: the last one.
    run: Option<u32>,
    /// Digest from `restore` of the files to restore. Without it, files do not change.
    #[serde(default, deserialize_with = "names::optional")]
    files: Option<String>,
}

/// The run that was rolled back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RolledBack {
    run: u32,
    /// Restored files.
    files: Vec<String>,
    /// True if an earlier request had rolled it back, so that nothing was left to do.
    already_rolled_back: bool,
}

impl RolledBack {
    fn of(run: RunNo, files: Vec<String>, before: &BTreeSet<RunNo>) -> Self {
        Self { run: run.0, already_rolled_back: files.is_empty() && before.contains(&run), files }
    }
}

/// Hides the messages of a run that did not complete from models. A repeated request has no effect.
#[utoipa::path(post, path = "/v1/sessions/{id}/rollback", tag = "branches", operation_id = "roll_back", request_body = RollBack,
    params(("id" = String, Path, description = "The session"), Since),
    responses((status = 200, body = RolledBack), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn roll_back(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(mut since): Query<Since>,
    _: NoKey,
    Body(what): Body<RollBack>,
) -> Result<Json<RolledBack>, Problem> {
    let handle = host.session(&id).await?;
    let wanted = what.run.map(RunNo);
    let rolled_back = |record: &Record| {
        let Record::RolledBack { run, by: Initiator::Person } = record else { return None };
        wanted.is_none_or(|wanted| wanted == *run).then_some(*run)
    };
    let rolled_back_before = || checkpoints::rolled_back(host.runtime().journal(), handle.id());
    if let Some(shown) = what.files.as_deref().map(parse_digest).transpose()? {
        // With a permit, because a plan of a restore reads the records of all sessions below.
        let restore = async {
            let before = rolled_back_before()?;
            let (run, restored) = handle.roll_back_files(wanted, shown).await?;
            Ok(RolledBack::of(run, restored.files, &before))
        };
        return host.serialize_commands(handle.id(), restore, async |done| Ok(Json(done))).await;
    }
    let read = async {
        let done = since.find_later(&host, handle.id(), &rolled_back).await?;
        Ok((done, rolled_back_before()?))
    };
    let roll_back = async |(done, before): (Option<RunNo>, BTreeSet<RunNo>)| {
        let run = match done {
            Some(run) => run,
            None => handle.roll_back(wanted).await?,
        };
        Ok(Json(RolledBack::of(run, Vec::new(), &before)))
    };
    host.serialize_commands(handle.id(), read, roll_back).await
}

/// The size of a compaction: hidden messages, and tokens before and after.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Compaction {
    /// Number of hidden messages.
    messages: u64,
    /// Estimated input tokens of the next model call, before and after.
    before: u64,
    after: u64,
}

/// Summarises old messages with the agent `compaction`, hides them from model calls, and waits for the result. Closing
/// the request early does not stop it.
#[utoipa::path(post, path = "/v1/sessions/{id}/compaction", tag = "sessions", operation_id = "compact_session",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Compaction), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn compact(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
) -> Result<Json<Compaction>, Problem> {
    let CompactedHistory { messages, before, after } = host.session(&id).await?.compact().await?;
    Ok(Json(Compaction { messages, before, after }))
}

/// Undoes the last compaction: models see its hidden messages again.
#[utoipa::path(delete, path = "/v1/sessions/{id}/compaction", tag = "sessions", operation_id = "undo_compaction",
    params(("id" = String, Path, description = "The session"), Since),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn undo_compaction(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(since): Query<Since>,
    _: NoKey,
) -> Result<StatusCode, Problem> {
    let handle = host.session(&id).await?;
    let undone = |record: &Record| matches!(record, Record::CompactionUndone { .. }).then_some(());
    let undo = async |done: Option<()>| {
        if done.is_none() {
            handle.undo_compaction().await?;
        }
        Ok(StatusCode::NO_CONTENT)
    };
    since.run_once(&host, handle.id(), undone, undo).await
}

/// Options of a summary.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Summarise {
    /// True to summarise only if messages were added since the last summary.
    #[serde(default)]
    stale: bool,
}

/// The summary of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Summarised {
    /// Absent if `stale` was requested and no messages were added since the last summary.
    summary: Option<String>,
}

/// Summarises a session with the agent `summary`, and waits for the result. Closing the request early does not stop it; a
/// repeated request waits for the summary in progress.
#[utoipa::path(post, path = "/v1/sessions/{id}/summary", tag = "sessions", operation_id = "summarise_session",
    params(("id" = String, Path, description = "The session"), Summarise),
    responses((status = 200, body = Summarised), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn summarise(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(when): Query<Summarise>,
    _: NoKey,
) -> Result<Json<Summarised>, Problem> {
    let handle = host.session(&id).await?;
    if when.stale && host.reads().read_session(handle.is_summary_current()).await?? {
        return Ok(Json(Summarised { summary: None }));
    }
    Ok(Json(Summarised { summary: Some(handle.summarise().await?.to_string()) }))
}

#[cfg(all(test, unix))]
mod tests {
    use std::convert::Infallible;
    use std::fs::File;
    use std::path::Path;

    use axum::http::Request;
    use axum::response::Response;
    use rustix::fs::{Mode, OFlags, open};
    use subtend_actors::{OpenOptions, Runtime};
    use subtend_tools::checkpoint::Checkpoints;
    use tokio::task::JoinHandle;
    use tower::ServiceExt as _;

    use super::*;
    use crate::HostOptions;

    /// Opens a pipe as soon as a plan reads it. The plan then waits for its end.
    async fn opened_by_reader(pipe: &Path, plan: &JoinHandle<Result<Response, Infallible>>) -> File {
        loop {
            assert!(!plan.is_finished(), "it reads no checkpoint");
            match open(pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
                Ok(opened) => return opened.into(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    /// Attack: many rollbacks with files at a time, each of which reads the records of a tree. The control: a rollback that waits leaves
    /// permits to other reads.
    #[tokio::test]
    async fn rollbacks_with_files_hold_permits_while_they_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(std::sync::Arc::new(model)).checkpoints(Checkpoints::new(dir.path()));
        let host = Host::new(runtime.start().await.expect("a runtime"), HostOptions::default());
        let (mut plans, mut pipes, mut free) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..4 {
            let (session, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
            let pipe = dir.path().join(session.id().to_string()).join("00000000000000000001.json");
            std::fs::create_dir(pipe.parent().expect("a directory")).expect("a directory");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
            let body = format!(r#"{{"files": "{}"}}"#, "00".repeat(16));
            let request = Request::post(format!("/v1/sessions/{}/rollback", session.id()));
            let request = request.header("content-type", "application/json").body(axum::body::Body::from(body));
            let plan = tokio::spawn(host.router().oneshot(request.expect("a request")));
            pipes.push((opened_by_reader(&pipe, &plan).await, pipe));
            plans.push(plan);
            free.push(host.reads().try_read_session(async {}).await.is_some());
        }
        // So that the plan is not read again.
        pipes.iter().for_each(|(_, pipe)| std::fs::remove_file(pipe).expect("removed"));
        drop(pipes);
        for plan in plans {
            assert_eq!(plan.await.expect("it ran").expect("infallible").status(), StatusCode::CONFLICT);
        }
        assert_eq!(free, [true, true, true, false]);
    }
}
