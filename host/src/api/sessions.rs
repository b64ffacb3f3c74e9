use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use subtend_actors::{OpenOptions, Runtime, SessionHandle};
use subtend_journal::ReadError;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::index::Head;
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::BranchKind;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::Phase;
use subtend_session::values::JsonText;
use utoipa::{IntoParams, ToSchema};

use super::inputs::{Accepted, find_repeated};
use super::opening::NewSession;
use super::{Body, IdempotencyKey, NoKey, Path, Query, names, page_size};
use crate::auth::Sender;
use crate::host::Host;
use crate::json::Json;
use crate::problem::{Problem, quote};

const DEFAULT_PAGE_SIZE: usize = 50;
const MAX_PAGE_SIZE: usize = 500;

/// A session.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Session {
    #[schema(value_type = String, format = Uuid)]
    id: SessionId,
    /// Short name among its siblings.
    short: String,
    agent: String,
    title: String,
    /// The state of its run in flight: `queued`, `working`, `waiting_mid_turn`, `waiting_at_rest`, `held_interrupted`,
    /// `held_out_of_turns` or `closing`; `quiet` if it has no run in flight.
    #[schema(value_type = String)]
    state: Phase,
    /// Outcome of its last run.
    #[schema(value_type = Option<String>)]
    outcome: Option<OutcomeKind>,
    /// The run in flight.
    run: Option<u32>,
    #[schema(value_type = Option<String>, format = Uuid)]
    parent: Option<SessionId>,
    #[schema(value_type = String, format = Uuid)]
    root: SessionId,
    /// Depth below the root; only subagents count as levels.
    depth: u32,
    /// The kind of branch; absent for a session that is not a branch.
    #[schema(value_type = Option<String>)]
    kind: Option<BranchKind>,
    inspectable: bool,
    closed: bool,
    /// Workspace of the session.
    workspace: Option<String>,
    /// Name of the model, as recorded in the session.
    model: Option<String>,
    /// Number of the last record.
    last_seq: u64,
    created_ms: i64,
    updated_ms: i64,
}

impl Session {
    /// Reads the session of an index row.
    pub(super) fn read(runtime: &Runtime, id: SessionId, head: &Head) -> Result<Self, ReadError> {
        let run = runtime.journal().inflight_of(id)?.map(|row| row.run.0);
        // Still list a session that cannot be read.
        let creation = creation(runtime, id).ok().flatten();
        Ok(Self {
            id,
            short: head.short.to_string(),
            agent: head.agent.to_string(),
            title: head.title.to_string(),
            state: head.state,
            outcome: head.last_outcome,
            run,
            parent: head.parent,
            root: head.root,
            depth: head.depth,
            kind: head.kind,
            inspectable: head.inspectable,
            closed: head.closed,
            workspace: creation.as_ref().map(|creation| creation.workspace.to_string()),
            model: creation.map(|creation| creation.model.to_string()),
            last_seq: head.last_seq.0,
            created_ms: head.created_ms,
            updated_ms: head.updated_ms,
        })
    }
}

/// Reads the first record of a session, without bodies.
fn creation(runtime: &Runtime, id: SessionId) -> Result<Option<Box<SessionCreated>>, ReadError> {
    let first = runtime.journal().without_bodies().first_record(id)?;
    let Record::SessionCreated(created) = first.record else { return Ok(None) };
    Ok(Some(created))
}

/// Filters of a session list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionFilter {
    /// True to include children that are normally shown only in trees.
    #[serde(default)]
    all: bool,
    /// True for only sessions with a run in flight, false for only sessions without one.
    in_flight: Option<bool>,
    /// Only sessions whose title or agent contains this text.
    q: Option<String>,
    /// Only sessions with this workspace.
    workspace: Option<String>,
    /// Only children of this session, by its id.
    #[param(value_type = Option<String>)]
    parent: Option<SessionId>,
    /// Number of rows of the page. Default: 50; maximum: 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// `next` of the previous page.
    cursor: Option<String>,
}

/// A page of sessions, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionPage {
    items: Vec<Session>,
    /// The cursor for the next page; absent on the last page.
    next: Option<String>,
}

impl SessionFilter {
    fn is_shown(&self, id: SessionId, head: &Head) -> bool {
        let own = head.parent.is_none() || head.kind == Some(BranchKind::Human) || head.inspectable;
        let listed = self.all || self.parent.is_some() || own;
        let busy = head.state != Phase::Quiet;
        let matches_text = |q: &String| {
            let q = q.to_lowercase();
            let has = |text: &str| text.to_lowercase().contains(&q);
            has(&head.title) || has(&head.agent) || has(&head.short.0) || id.to_string().starts_with(&q)
        };
        !head.deleted
            && listed
            && self.in_flight.is_none_or(|wanted| wanted == busy)
            && self.parent.is_none_or(|parent| head.parent == Some(parent))
            && self.q.as_ref().is_none_or(matches_text)
    }

    /// Returns the last row of the previous page.
    fn after_cursor(&self) -> Result<Option<(i64, SessionId)>, Problem> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let bad = || {
            let cursor = quote(cursor);
            Problem::malformed(format!("invalid cursor {cursor}: give `next` of the previous page unchanged"))
        };
        parse_cursor(cursor).map(Some).ok_or_else(bad)
    }
}

/// Reads the position of a row: time of creation, and id.
pub(crate) fn parse_cursor(cursor: &str) -> Option<(i64, SessionId)> {
    let (ms, id) = cursor.split_once('.')?;
    Some((ms.parse().ok()?, id.parse().ok()?))
}

/// Lists sessions, newest first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", operation_id = "list_sessions", params(SessionFilter),
    responses((status = 200, body = SessionPage), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(host): State<Host>,
    Query(filter): Query<SessionFilter>,
) -> Result<Json<SessionPage>, Problem> {
    let (after, limit) = (filter.after_cursor()?, page_size(filter.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?);
    let heads = host.runtime().journal().heads()?;
    let mut rows: Vec<_> = heads.into_iter().filter(|(id, head)| filter.is_shown(*id, head)).collect();
    let sort_key = |(id, head): &(SessionId, Head)| std::cmp::Reverse((head.created_ms, *id));
    rows.sort_by_key(sort_key);
    let after = after.map(std::cmp::Reverse);
    let rest = rows.iter().filter(|row| after.is_none_or(|after| sort_key(row) > after));
    let (mut items, mut last, mut next) = (Vec::new(), None, None);
    for (id, head) in rest {
        let session = Session::read(host.runtime(), *id, head)?;
        if filter.workspace.is_some() && filter.workspace != session.workspace {
            continue;
        }
        if items.len() == limit {
            next = last;
            break;
        }
        last = Some(format!("{}.{id}", head.created_ms));
        items.push(session);
    }
    Ok(Json(SessionPage { items, next }))
}

/// An opened session, with the receipt of its first input, if any.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Opened {
    session: Session,
    input: Option<Accepted>,
}

/// Opens a session. With an `Idempotency-Key`, a repeated request returns the same session.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", operation_id = "open_session", request_body = NewSession,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key has no second effect")),
    responses((status = 201, body = Opened), (status = 200, body = Opened, description = "An earlier request with the same key opened it"),
        (status = 422, body = Problem), (status = 410, body = Problem)))]
pub(super) async fn open(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    IdempotencyKey(key): IdempotencyKey,
    Body(open): Body<NewSession>,
) -> Result<Response, Problem> {
    let named = match &key {
        Some(key) => Some(host.lock_named_session("session", key, &open).await?),
        None => None,
    };
    let (options, input) = open.options(&host, sender.map(|sender| sender.0)).await?;
    let request = match &input {
        Some(draft) => draft.with_key("session", key)?,
        None => None,
    };
    // Expand the slash command before the session is opened, so that an error does not leave a session behind.
    let directory = || Ok(options.workspace.as_deref().or(host.options().home.as_deref()).map(str::to_owned));
    let expanded = match input {
        Some(draft) => draft.expand(&host, directory).await.map(Some),
        None => Ok(None),
    };
    let id = named.as_ref().map(|named| named.id);
    let input = match expanded {
        Ok(input) => input,
        Err(problem) => {
            let known = id.map(|id| host.runtime().session(id)).transpose()?.flatten();
            let handle = known.ok_or_else(|| problem.clone())?;
            let accepted = find_repeated(&host, &handle, request.as_ref()).await?.ok_or(problem)?;
            return opened_response(&host, &handle, false, Some(accepted));
        }
    };
    let (handle, new) = host.open(OpenOptions { id, ..options }).await?;
    drop(named);
    let input = match input {
        Some(draft) => Some(draft.send(&host, &handle, request).await?),
        None => None,
    };
    opened_response(&host, &handle, new, input)
}

fn opened_response(
    host: &Host,
    handle: &SessionHandle,
    is_new: bool,
    input: Option<Accepted>,
) -> Result<Response, Problem> {
    let runtime = host.runtime();
    let head = runtime.journal().head(handle.id())?.ok_or_else(|| Problem::no_session(&handle.id().to_string()))?;
    let session = Session::read(runtime, handle.id(), &head)?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(Opened { session, input })).into_response();
    if let Ok(location) = HeaderValue::try_from(format!("/v1/sessions/{}", handle.id())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Returns a session.
#[utoipa::path(get, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "get_session",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Session), (status = 404, body = Problem), (status = 410, body = Problem)))]
pub(super) async fn get(State(host): State<Host>, Path(id): Path<String>) -> Result<Json<Session>, Problem> {
    let handle = host.session(&id).await?;
    let head = host.runtime().journal().head(handle.id())?.ok_or_else(|| Problem::no_session(&id))?;
    Ok(Json(Session::read(host.runtime(), handle.id(), &head)?))
}

/// The changes to a session.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionChange {
    title: Option<String>,
    /// Metadata to merge into that of the session. A key whose value is null is removed.
    #[serde(default, deserialize_with = "names::metadata")]
    #[schema(value_type = Option<Map<String, Value>>)]
    metadata: Option<JsonText>,
}

/// Changes the title or the metadata of a session.
#[utoipa::path(patch, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "change_session", request_body = SessionChange,
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, body = Session), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub(super) async fn change(
    State(host): State<Host>,
    Path(id): Path<String>,
    _: NoKey,
    Body(change): Body<SessionChange>,
) -> Result<Json<Session>, Problem> {
    let handle = host.session(&id).await?;
    if let Some(title) = change.title {
        subtend_session::title::check(&title).map_err(|bad| Problem::invalid("invalid_title", bad.to_string()))?;
        handle.set_title(title).await?;
    }
    if let Some(metadata) = change.metadata {
        handle.merge_metadata(metadata.value()).await?;
    }
    get(State(host), Path(handle.id().to_string())).await
}

/// Options of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteOptions {
    /// True to cancel a run in flight first; otherwise the deletion is refused while a run is in flight.
    #[serde(default)]
    force: bool,
}

/// The result of a deletion.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Deleted {
    /// Number of deleted sessions, including descendants.
    sessions: u32,
}

/// Deletes a session and its descendants.
#[utoipa::path(delete, path = "/v1/sessions/{id}", tag = "sessions", operation_id = "delete_session",
    params(("id" = String, Path, description = "The session"), DeleteOptions),
    responses((status = 200, body = Deleted), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn delete(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(options): Query<DeleteOptions>,
    _: NoKey,
) -> Result<Json<Deleted>, Problem> {
    let handle = host.session(&id).await?;
    Ok(Json(Deleted { sessions: handle.delete(options.force).await? }))
}

/// The range of records to read.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordRange {
    /// The number of the first record, from 1.
    #[param(minimum = 1)]
    from: Option<u64>,
    /// Maximum number of records. Default: 200; maximum: 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A record of a session's journal, in the on-disk format.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stored {
    seq: u64,
    at_ms: i64,
    #[schema(value_type = Object)]
    record: Record,
}

/// Reads the journal of a session.
#[utoipa::path(get, path = "/v1/sessions/{id}/records", tag = "sessions", operation_id = "list_records",
    params(("id" = String, Path, description = "The session"), RecordRange),
    responses((status = 200, body = Vec<Stored>), (status = 404, body = Problem)))]
pub(super) async fn records(
    State(host): State<Host>,
    Path(id): Path<String>,
    Query(range): Query<RecordRange>,
) -> Result<Response, Problem> {
    let (from, most) = (range.from.unwrap_or(1), page_size(range.limit, 200, 1_000)?);
    if from == 0 {
        return Err(Problem::malformed("from 0: give 1 or more, or leave it out"));
    }
    let handle = host.session(&id).await?;
    let (journal, session) = (host.runtime().journal().clone(), handle.id());
    let read = move || -> Result<Response, Problem> {
        let mut records = journal.records_from(session, Seq(from), most)?;
        // The journal reads whole frames.
        records.truncate(most);
        let stored = |of: subtend_journal::Stored| Stored { seq: of.seq.0, at_ms: of.at_ms, record: of.record };
        // Written here, since the thread that frees the texts should be the one that read them.
        Ok(Json(records.into_iter().map(stored).collect::<Vec<_>>()).into_response())
    };
    host.reads().read_in_turn(read).await
}
