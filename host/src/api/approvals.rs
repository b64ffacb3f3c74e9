use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::{Approval, AskedCall, Control};
use subtend_journal::ReadError;
use subtend_session::ids::{CallId, RunNo, SessionId, TurnNo};
use subtend_session::index::Head;
use subtend_session::record::AskVerdict;
use subtend_session::values::json_bytes;
use utoipa::{IntoParams, ToSchema};

use super::{Body, NoKey, Path, Query, names, page_size};
use crate::host::Host;
use crate::json::Json;
use crate::problem::{Problem, quote};

/// A call that waits for an approval.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct OpenAsk {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    #[schema(value_type = String, format = Uuid)]
    root: SessionId,
    /// Path of short names from the root.
    path: String,
    /// Run of the call.
    run: u32,
    /// The call, as turn and index, such as `3.0`.
    call: String,
    tool: String,
    /// The exact arguments with which the tool would run.
    args: String,
    action: String,
    resource: String,
    /// The proposed plan, if the call asks for the approval of a plan.
    plan: Option<String>,
    /// The session's agent.
    agent: String,
    /// The session's title.
    title: String,
    /// Unix time in ms at which it is denied if no answer has arrived.
    deadline_ms: Option<i64>,
    /// Digest of this content. An answer must repeat it, so that the answer applies to this content only. Absent if
    /// `shortened`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    digest: Option<String>,
    /// True if arguments, resource and plan are truncated: GET /v1/approvals/SESSION/CALL has them, and the digest.
    #[serde(skip_serializing_if = "super::tasks::is_false")]
    shortened: bool,
}

/// Default and maximum number of listed calls.
const MAX_CALLS: usize = 500;
/// Maximum bytes of arguments, resources and plans in a list, as JSON.
const MAX_TEXT_BYTES: u64 = 8 << 20;
/// Bytes to which each of these texts is truncated above that.
const SHORT_TEXT: usize = 1_000;

impl OpenAsk {
    fn of(open: &OpenApproval) -> Self {
        let digest = Some(digest(&open.approval, open.run));
        Self { digest, ..Self::with_texts(open, str::to_owned) }
    }

    /// Returns the row of a list that may have `left` more bytes of texts.
    fn listed(open: &OpenApproval, left: &mut u64) -> Self {
        let of = &open.approval;
        let texts = [Some(&of.args), Some(&of.resource), of.plan.as_ref()];
        let bytes = texts.into_iter().flatten().fold(0_u64, |all, text| all.saturating_add(json_bytes(text)));
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                Self::of(open)
            }
            None => Self { shortened: true, ..Self::with_texts(open, short) },
        }
    }

    fn with_texts(OpenApproval { approval, run, head }: &OpenApproval, text: impl Fn(&str) -> String) -> Self {
        Self {
            agent: head.agent.to_string(),
            title: head.title.to_string(),
            deadline_ms: approval.deadline_ms,
            session: approval.session,
            root: approval.root,
            path: approval.path.clone(),
            run: run.0,
            call: approval.call.to_string(),
            tool: approval.tool.to_string(),
            args: text(&approval.args),
            action: approval.action.to_string(),
            resource: text(&approval.resource),
            plan: approval.plan.as_ref().map(|plan| text(plan)),
            digest: None,
            shortened: false,
        }
    }
}

fn short(text: &str) -> String {
    text.get(..text.floor_char_boundary(SHORT_TEXT)).unwrap_or_default().to_owned()
}

/// Returns the digest of an approval: of its session, run, call, tool, arguments, action and resource.
pub(crate) fn digest(of: &Approval, run: RunNo) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("subtend host: digest of an approval");
    let (session, run, call) = (of.session.to_string(), run.to_string(), of.call.to_string());
    for part in [&*session, &run, &call, &of.tool, &of.args, &of.action, &of.resource] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex().as_str().get(..32).unwrap_or_default().to_owned()
}

pub(crate) struct OpenApproval {
    pub(crate) approval: Approval,
    pub(crate) run: RunNo,
    pub(crate) head: Head,
}

/// Returns what `map` makes of each of `calls` that can be read. The content of one is in memory at a time.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn read_open<T>(
    host: &Host,
    calls: &[AskedCall],
    mut map: impl FnMut(OpenApproval) -> T,
) -> Result<Vec<T>, Problem> {
    let journal = host.runtime().journal();
    let mut read = |approval: Approval| -> Result<Option<T>, ReadError> {
        let (row, head) = (journal.inflight_of(approval.session)?, journal.head(approval.session)?);
        let known = row.zip(head);
        Ok(known.map(|(row, head)| map(OpenApproval { approval, run: row.run, head })))
    };
    let found = host.runtime().read_approvals(calls, &mut read);
    Ok(found.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?)
}

/// Returns a call if it waits for an approval.
async fn read_one(host: &Host, session: SessionId, call: CallId) -> Result<Option<OpenApproval>, Problem> {
    let mut waiting = host.runtime().waiting_calls().await?;
    waiting.retain(|waiting| (waiting.session, waiting.call) == (session, call));
    Ok(read_open(host, &waiting, |open| open)?.into_iter().next())
}

fn not_waiting(session: SessionId, call: CallId) -> String {
    format!("call {call} of session {session} is not waiting for an approval")
}

/// A page of the waiting calls.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalQuery {
    /// Maximum number of calls. Default and maximum: 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// `SESSION.CALL` of the last call of the previous page. Only calls after it are listed.
    after: Option<String>,
}

impl ApprovalQuery {
    fn page_start(&self) -> Result<Option<(SessionId, CallId)>, Problem> {
        let Some(after) = &self.after else { return Ok(None) };
        let read = || {
            let (session, call) = after.split_once('.')?;
            Some((session.parse().ok()?, call_of(call).ok()?))
        };
        let bad = || {
            let shown: String = after.chars().take(80).collect();
            Problem::malformed(format!("after {shown:?}: give `session` and `call` of a call, as SESSION.CALL"))
        };
        read().map(Some).ok_or_else(bad)
    }
}

/// Lists calls that wait for an approval, by session, oldest session first. After 8 MiB of arguments, resources and
/// plans, these are truncated, which `shortened` indicates.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", operation_id = "list_approvals", params(ApprovalQuery),
    responses((status = 200, body = Vec<OpenAsk>), (status = 400, body = Problem)))]
pub(super) async fn list(
    State(host): State<Host>,
    Query(page): Query<ApprovalQuery>,
) -> Result<Json<Vec<OpenAsk>>, Problem> {
    let (after, most) = (page.page_start()?, page_size(page.limit, MAX_CALLS, MAX_CALLS)?);
    let mut calls = host.runtime().waiting_calls().await?;
    let key = |asked: &AskedCall| (asked.session, asked.call);
    calls.retain(|asked| after.is_none_or(|after| key(asked) > after));
    calls.sort_unstable_by_key(key);
    let (mut rows, mut rest, mut left) = (Vec::new(), &*calls, MAX_TEXT_BYTES);
    // Calls that cannot be read leave room for others: a page that is not full is the last one.
    while let Some((page, others)) = rest.split_at_checked(most.saturating_sub(rows.len()).min(rest.len()))
        && !page.is_empty()
    {
        rows.extend(read_open(&host, page, |open| OpenAsk::listed(&open, &mut left))?);
        rest = others;
    }
    Ok(Json(rows))
}

/// Returns the whole content of a call that waits for an approval.
#[utoipa::path(get, path = "/v1/approvals/{session}/{call}", tag = "approvals", operation_id = "get_approval",
    params(("session" = String, Path, description = "The session"), ("call" = String, Path, description = "The call, as `3.0`")),
    responses((status = 200, body = OpenAsk),
        (status = 404, body = Problem, description = "The call is not waiting for an approval, or its session is not known")))]
pub(super) async fn get(
    State(host): State<Host>,
    Path((session, call)): Path<(String, String)>,
) -> Result<Json<OpenAsk>, Problem> {
    let (session, call) = (host.session(&session).await?.id(), call_of(&call)?);
    let open = read_one(&host, session, call).await?;
    let missing = || Problem::new(StatusCode::NOT_FOUND, "approval_not_found", not_waiting(session, call));
    Ok(Json(OpenAsk::of(&open.ok_or_else(missing)?)))
}

/// The answer to an approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalAnswer {
    /// `allow`, `always` (also for all calls of its tool on its resource in that session, with any content), or `deny`.
    #[schema(value_type = String)]
    verdict: AskVerdict,
    /// Digest of the content that was shown.
    #[serde(deserialize_with = "names::required")]
    digest: String,
}

/// Answers an approval. The answer applies once, and only to the shown content.
#[utoipa::path(post, path = "/v1/approvals/{session}/{call}", tag = "approvals", operation_id = "answer_approval",
    request_body = ApprovalAnswer,
    params(("session" = String, Path, description = "The session"), ("call" = String, Path, description = "The call, as `3.0`")),
    responses((status = 204), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "The call is not waiting for an approval, or differs from what was shown")))]
pub(super) async fn answer(
    State(host): State<Host>,
    Path((session, call)): Path<(String, String)>,
    _: NoKey,
    Body(answer): Body<ApprovalAnswer>,
) -> Result<StatusCode, Problem> {
    let handle = host.session(&session).await?;
    decide(&host, handle.id(), &call, answer.verdict, &answer.digest).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Answers the approval of `call` if `shown` is the digest of its content.
///
/// # Errors
/// [`Problem`] `approval_closed` and `approval_changed`.
pub(crate) async fn decide(
    host: &Host,
    session: SessionId,
    call: &str,
    verdict: AskVerdict,
    shown: &str,
) -> Result<(), Problem> {
    let call = call_of(call)?;
    let closed = || Problem::conflict("approval_closed", not_waiting(session, call));
    let open = host.reads().read_session(read_one(host, session, call)).await??;
    let OpenApproval { approval, run, .. } = open.ok_or_else(closed)?;
    if digest(&approval, run) != shown {
        let detail = format!("call {call} differs from what was shown: read it again and answer with its digest");
        return Err(Problem::conflict("approval_changed", detail));
    }
    match host.runtime().answer(session, call, verdict).await? {
        Control::Done(_) => Ok(()),
        Control::AlreadyEnded(..) | Control::NotFound => Err(closed()),
    }
}

fn call_of(word: &str) -> Result<CallId, Problem> {
    let read = || {
        let (turn, ix) = word.split_once('.')?;
        Some(CallId { turn: TurnNo(turn.parse().ok()?), ix: ix.parse().ok()? })
    };
    read()
        .ok_or_else(|| Problem::malformed(format!("call {word}: give turn and index, such as 3.0", word = quote(word))))
}
