use axum::extract::State;
use serde::Serialize;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::{Outcome, OutcomeKind};
use subtend_session::usage::Usage;
use utoipa::ToSchema;

use super::waiting::WaitQuery;
use super::{Path, Query};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

/// A run of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Run {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    run: u32,
    /// True while the run is in flight.
    in_flight: bool,
    /// Its outcome: `completed`, `failed`, `cancelled`, `interrupted`, `timed_out`, `out_of_turns`, `out_of_budget`, `lost`
    /// or `restarts_exhausted`.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    /// The outcome with its cause, in the on-disk format.
    #[schema(value_type = Option<serde_json::Value>)]
    cause: Option<Outcome>,
    /// Its full final answer.
    text: Option<String>,
    /// Number of answered turns.
    turns: Option<u32>,
    /// Usage of the run and its descendants.
    #[schema(value_type = Option<Object>)]
    usage: Option<Usage>,
}

/// Returns a run; with `wait`, waits for its end.
#[utoipa::path(get, path = "/v1/sessions/{id}/runs/{run}", tag = "runs", operation_id = "get_run",
    params(("id" = String, Path, description = "The session"), ("run" = u32, Path, description = "Its number, from 1"), WaitQuery),
    responses((status = 200, body = Run), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(host): State<Host>,
    Path((id, run)): Path<(String, u32)>,
    Query(waiting): Query<WaitQuery>,
) -> Result<Json<Run>, Problem> {
    let handle = host.reads().read_session(host.session(&id)).await??;
    let (session, of) = (handle.id(), handle.run(RunNo(run)));
    Ok(Json(match waiting.wait_until(&host, session, of).await? {
        None => Run { session, run, in_flight: true, outcome: None, cause: None, text: None, turns: None, usage: None },
        Some(ended) => Run {
            session,
            run,
            in_flight: false,
            outcome: Some(ended.outcome.kind()),
            cause: Some(ended.outcome),
            text: ended.text.map(|text| text.to_string()),
            turns: Some(ended.turns),
            usage: Some(ended.usage),
        },
    }))
}
