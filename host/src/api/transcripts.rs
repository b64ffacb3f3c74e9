//! Transcripts: what was said and done in a session, now or as it was at an earlier record.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::transcript::{Header, ShownEntry, Transcript, TranscriptError, TranscriptReading};
use subtend_session::ids::Seq;
use subtend_session::outcome::OutcomeKind;
use utoipa::{IntoParams, ToSchema};

use super::{Path, Query};
use crate::host::Host;
use crate::problem::Problem;

/// Entries of a page where a client does not say.
const PAGE: usize = 200;
/// Entries of a page at most.
const MOST: usize = 1_000;

/// Which part of a transcript is read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// The transcript as it was at this record; as it is now if not given.
    at: Option<u64>,
    /// Only entries that began after this record: `next` of the page before.
    after: Option<u64>,
    /// So many entries at most, and those that began with the same record as the last of them: 200 if not given, 1,000 at most.
    limit: Option<usize>,
    /// Whether calls carry the transcripts of the children that they started, where listings do not show these. Not with `at`.
    #[serde(default)]
    children: bool,
}

/// A page of a transcript: what the session is, and its entries in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TranscriptPage {
    #[serde(flatten)]
    #[schema(value_type = Object)]
    header: Header,
    /// How its last run ended.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    /// Inputs, answers with their calls and results, notices, ends, and what else happened, by `type`.
    #[schema(value_type = Vec<Object>)]
    entries: Vec<Item>,
    /// The last record that was read: `after` of the event stream that follows.
    last_seq: u64,
    /// `after` of the next page; absent on the last page.
    next: Option<u64>,
}

/// An entry with the record that it began with.
#[derive(Debug, Serialize)]
struct Item {
    record: Seq,
    #[serde(flatten)]
    shown: ShownEntry,
}

/// Returns the transcript of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/transcript", tag = "sessions", operation_id = "get_transcript",
    params(("id" = String, Path, description = "The session"), Which),
    responses((status = 200, body = TranscriptPage), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Result<Json<TranscriptPage>, Problem> {
    if which.at.is_some() && which.children {
        return Err(Problem::malformed(
            "children with at: the children at an earlier record are not known; leave one out",
        ));
    }
    // A damaged session is shown by what is left of it.
    let session = match host.session(&id).await {
        Ok(handle) => handle.id(),
        Err(problem) => id.parse().ok().filter(|_| problem.code == "session_damaged").ok_or(problem)?,
    };
    host.settled().await?;
    let how = TranscriptReading {
        nests: which.children,
        at: which.at.map(Seq),
        after: Seq(which.after.unwrap_or(0)),
        limit: Some(which.limit.unwrap_or(PAGE).clamp(1, MOST)),
    };
    let read = Transcript::read(host.runtime().journal(), session, how)?;
    if let Some(at) = which.at.filter(|at| read.last_seq < Seq(*at)) {
        let detail = format!("no record {at} in session {session}: its last one is {}", read.last_seq);
        return Err(Problem::new(StatusCode::NOT_FOUND, "record_not_found", detail));
    }
    let entries = read.entries.into_iter().map(|shown| Item { record: shown.record, shown });
    Ok(Json(TranscriptPage {
        outcome: read.header.outcome,
        header: read.header,
        entries: entries.collect(),
        last_seq: read.last_seq.0,
        next: read.next.map(|next| next.0),
    }))
}

impl From<TranscriptError> for Problem {
    fn from(error: TranscriptError) -> Self {
        let detail = error.to_string();
        match error {
            TranscriptError::Read(error) => error.into(),
            TranscriptError::NoText(_) | TranscriptError::BadText { .. } => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "session_damaged", detail)
            }
            TranscriptError::NoReplay { .. } => Self::new(StatusCode::NOT_FOUND, "record_not_found", detail),
        }
    }
}
