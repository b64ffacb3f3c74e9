//! Controls of a session: cancel, interrupt, continue, close, roll back.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::Control;
use subtend_session::ids::RunNo;
use subtend_session::outcome::OutcomeKind;
use utoipa::{IntoParams, ToSchema};

use super::inputs::Accepted;
use super::{Body, Key, Path, Query};
use crate::host::Host;
use crate::problem::Problem;

/// What a control came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Controlled {
    /// `done`, or `already_ended` where there was no run in flight any more.
    #[schema(value_type = String)]
    result: &'static str,
    /// The run that it struck.
    run: Option<u32>,
    /// How the last run had ended.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    /// Runs that were in flight, where the whole tree was cancelled.
    cancelled: Option<u32>,
}

impl Controlled {
    fn of(control: Control) -> Result<Json<Self>, Problem> {
        match control {
            Control::Done(run) => Ok(Json(Self { result: "done", run: Some(run.0), outcome: None, cancelled: None })),
            Control::AlreadyEnded(outcome) => {
                Ok(Json(Self { result: "already_ended", run: None, outcome: Some(outcome.kind()), cancelled: None }))
            }
            Control::NotFound => {
                Err(Problem::new(StatusCode::NOT_FOUND, "run_not_found", "the session never had a run"))
            }
        }
    }
}

/// How far a cancel goes.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    /// Also everything below the session: detached runs and branches of people.
    #[serde(default)]
    tree: bool,
    /// Only this run, so that a request that is sent again cancels no later one. Not with `tree`.
    run: Option<u32>,
}

/// Cancels the run in flight with all that it owns.
#[utoipa::path(post, path = "/v1/sessions/{id}/cancel", tag = "runs", operation_id = "cancel",
    params(("id" = String, Path, description = "The session"), Cancel),
    responses((status = 200, body = Controlled), (status = 404, body = Problem)))]
pub(super) async fn cancel(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(how): Query<Cancel>,
) -> Result<Json<Controlled>, Problem> {
    let handle = host.session(&id).await?;
    if let Some(run) = how.run {
        if how.tree {
            return Err(Problem::malformed("run with tree: a tree is cancelled whole; leave one out"));
        }
        return Controlled::of(handle.run(RunNo(run)).cancel().await?);
    }
    if how.tree {
        let cancelled = Some(handle.cancel_tree().await?);
        return Ok(Json(Controlled { result: "done", run: None, outcome: None, cancelled }));
    }
    Controlled::of(handle.cancel().await?)
}

/// Interrupts the run in flight: it is held until its next input.
#[utoipa::path(post, path = "/v1/sessions/{id}/interrupt", tag = "runs", operation_id = "interrupt",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Controlled), (status = 404, body = Problem)))]
pub(super) async fn interrupt(State(host): State<Host>, Path(id): Path<String>) -> Result<Json<Controlled>, Problem> {
    Controlled::of(host.session(&id).await?.interrupt().await?)
}

/// How a session continues.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Continue {
    /// The next input; a standard text if not given.
    text: Option<String>,
}

/// Continues a session that is held or whose last run ended.
#[utoipa::path(post, path = "/v1/sessions/{id}/continue", tag = "runs", operation_id = "continue_session", request_body = Continue,
    params(("id" = String, Path, description = "The session"), ("Idempotency-Key" = Option<String>, Header, description = "Names the command: sent again, it has no second effect")),
    responses((status = 200, body = Accepted), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn resume(
    State(host): State<Host>,
    Path(id): Path<String>,
    Key(key): Key,
    Body(how): Body<Continue>,
) -> Result<Json<Accepted>, Problem> {
    let mut input = host.session(&id).await?.continuation(how.text.as_deref());
    if let Some(key) = key {
        input = input.key(key);
    }
    let receipt = input.send().await?;
    Ok(Json(Accepted::from(&receipt)))
}

/// Closes a session: it takes no input until it is continued.
#[utoipa::path(post, path = "/v1/sessions/{id}/close", tag = "sessions", operation_id = "close_session",
    params(("id" = String, Path, description = "The session")),
    responses((status = 204), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn close(State(host): State<Host>, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    host.session(&id).await?.close().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which run is rolled back.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RollBack {
    /// Its number; the last run if not given.
    run: Option<u32>,
}

/// The run that was rolled back.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RolledBack {
    run: u32,
}

/// Hides the messages of a run and of all after it from the model.
#[utoipa::path(post, path = "/v1/sessions/{id}/rollback", tag = "branches", operation_id = "roll_back", request_body = RollBack,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = RolledBack), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn roll_back(
    State(host): State<Host>,
    Path(id): Path<String>,
    Body(what): Body<RollBack>,
) -> Result<Json<RolledBack>, Problem> {
    let run = host.session(&id).await?.roll_back(what.run.map(RunNo)).await?;
    Ok(Json(RolledBack { run: run.0 }))
}
