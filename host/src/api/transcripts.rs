//! Transcripts of sessions, now or as of an earlier record.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use subtend_actors::transcript::{
    Header, MAX_NESTED_LEVELS, ShownEntry, Transcript, TranscriptError, TranscriptReading,
};
use subtend_journal::Journal;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::outcome::OutcomeKind;
use utoipa::{IntoParams, ToSchema};

use super::{Path, Query, page_size};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

const DEFAULT_PAGE_SIZE: usize = 200;
const MAX_PAGE_SIZE: usize = 1_000;

/// The part of a transcript to read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct EntriesQuery {
    /// The record as of which the transcript is read. Default: the last one.
    at: Option<u64>,
    /// Only entries that began after this record: `next` of the previous page.
    after: Option<u64>,
    /// Maximum number of entries. Entries that began with the same record as the last one are added. A page also ends with
    /// the entry with which its records reach 8 MiB. Default: 200; maximum: 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// True to include the transcripts of unlisted children in the calls that created them. A child with the system prompt
    /// of an earlier session of the answer has only its `system_of`, that session. Not with `at`.
    #[serde(default)]
    children: bool,
}

/// A page of a transcript: facts about the session, and entries in order.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TranscriptPage {
    #[serde(flatten)]
    #[schema(value_type = Object)]
    header: Header,
    /// Outcome of its last run.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    /// Inputs, answers with their calls and results, notices, ends of runs, and other events, by `type`.
    #[schema(value_type = Vec<Object>)]
    entries: Vec<Item>,
    /// The last record that was read, for `after` of the event stream.
    last_seq: u64,
    /// The value of `after` for the next page; absent on the last page.
    next: Option<u64>,
}

/// An entry, with the record at which it began.
#[derive(Debug, Serialize)]
struct Item {
    record: Seq,
    #[serde(flatten)]
    shown: ShownEntry,
}

/// Returns the transcript of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/transcript", tag = "sessions", operation_id = "get_transcript",
    params(("id" = String, Path, description = "The session"), EntriesQuery),
    responses((status = 200, body = TranscriptPage), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn get(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(which): Query<EntriesQuery>,
) -> Result<Response, Problem> {
    if which.at.is_some() && which.children {
        return Err(Problem::malformed(
            "`children` and `at` were both given: the children at an earlier record are not known. Leave one out",
        ));
    }
    let limit = page_size(which.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?;
    // A damaged session is shown as far as it can be read.
    let session = match host.session(&id).await {
        Ok(handle) => handle.id(),
        Err(problem) => id.parse().ok().filter(|_| problem.code == "session_damaged").ok_or(problem)?,
    };
    host.settled().await?;
    host.await_turn_with_relatives(session).await?;
    let how = TranscriptReading {
        nests: which.children.then_some(MAX_NESTED_LEVELS),
        at: which.at.map(Seq),
        after: Seq(which.after.unwrap_or(0)),
        limit: Some(limit),
        newest: None,
    };
    let journal = host.runtime().journal().clone();
    host.reads().read_in_turn(move || page(&journal, session, how)).await
}

fn page(journal: &Journal, session: SessionId, how: TranscriptReading) -> Result<Response, Problem> {
    let read = Transcript::read(journal, session, how)?;
    if let Some(at) = how.at.filter(|at| read.last_seq < *at) {
        let detail = format!("no record {at} in session {session}: its last one is {}", read.last_seq);
        return Err(Problem::new(StatusCode::NOT_FOUND, "record_not_found", detail));
    }
    let entries = read.entries.into_iter().map(|shown| Item { record: shown.record, shown });
    let page = TranscriptPage {
        outcome: read.header.outcome,
        header: read.header,
        entries: entries.collect(),
        last_seq: read.last_seq.0,
        next: read.next.map(|next| next.0),
    };
    // Written here, since the thread that frees the texts should be the one that read them.
    Ok(Json(page).into_response())
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
