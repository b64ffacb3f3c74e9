use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use subtend_actors::{Approval, Control};
use subtend_session::ids::{CallId, RunNo, SessionId, TurnNo};
use subtend_session::index::Head;
use subtend_session::record::AskVerdict;
use utoipa::ToSchema;

use super::{Body, NoKey, NoParameters, Path};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

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
    /// Digest of this content. An answer must repeat it, so that the answer applies to this content only.
    digest: String,
}

impl OpenAsk {
    fn of(OpenApproval { approval, run, head }: &OpenApproval) -> Self {
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
            args: approval.args.to_string(),
            action: approval.action.to_string(),
            resource: approval.resource.to_string(),
            plan: approval.plan.as_ref().map(ToString::to_string),
            digest: digest(approval, *run),
        }
    }
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

/// Returns open approvals, oldest first.
pub(crate) async fn open_approvals(host: &Host) -> Result<Vec<OpenApproval>, Problem> {
    let (mut open, journal) = (Vec::new(), host.runtime().journal());
    for approval in host.runtime().approvals().await? {
        let (row, head) = (journal.inflight_of(approval.session)?, journal.head(approval.session)?);
        if let (Some(row), Some(head)) = (row, head) {
            open.push(OpenApproval { approval, run: row.run, head });
        }
    }
    Ok(open)
}

/// Lists calls that wait for an approval, oldest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "approvals", operation_id = "list_approvals",
    responses((status = 200, body = Vec<OpenAsk>)))]
pub(super) async fn list(State(host): State<Host>, _: NoParameters) -> Result<Json<Vec<OpenAsk>>, Problem> {
    Ok(Json(open_approvals(&host).await?.iter().map(OpenAsk::of).collect()))
}

/// The answer to an approval.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApprovalAnswer {
    /// `allow`, `always` (also for identical calls in that session), or `deny`.
    #[schema(value_type = String)]
    verdict: AskVerdict,
    /// Digest of the content that was shown.
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
    let closed = || {
        let detail = format!("call {call} of session {session} is not waiting for an approval");
        Problem::conflict("approval_closed", detail)
    };
    let open = open_approvals(host).await?;
    let open_ask = open.iter().find(|ask| ask.approval.session == session && ask.approval.call == call);
    let OpenApproval { approval, run, .. } = open_ask.ok_or_else(closed)?;
    if digest(approval, *run) != shown {
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
    read().ok_or_else(|| Problem::malformed(format!("call {word:?}: give turn and index, such as 3.0")))
}
