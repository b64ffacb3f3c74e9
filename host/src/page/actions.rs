//! Actions of users as POST forms. Browsers without scripts are redirected to the session; htmx shows the result.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Deserialize;
use subtend_actors::{BranchOptions, Control};
use subtend_session::command::SwitchTo;
use subtend_session::ids::{Hash, InputId, RunNo, Seq, SessionId};
use subtend_session::place::BranchKind;
use subtend_session::record::{AskVerdict, Lane};

use super::extract::{FormBody, PathPart};
use super::{Refusal, escaped, is_part_request, transcript, words};
use crate::api::{approvals, opening, restores};
use crate::auth::Sender;
use crate::host::Host;
use crate::problem::{Problem, quote};

pub(super) struct ActionResult(pub(super) String);

/// Responds to a form: with the result for htmx, or with a redirect to `back` for browsers without scripts.
pub(super) fn answer(headers: &HeaderMap, back: &str, result: Result<ActionResult, Problem>) -> Response {
    match result {
        Ok(ActionResult(text)) if is_part_request(headers) => Html(escaped(&text)).into_response(),
        Ok(_) => Redirect::to(back).into_response(),
        Err(problem) => Refusal(problem).into_response(),
    }
}

fn session_of(id: SessionId) -> String {
    format!("/s/{id}")
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionForm {
    agent: String,
    text: String,
    /// Empty for the default of the host.
    #[serde(default)]
    workspace: String,
    /// Empty for the default of the agent or the host.
    #[serde(default)]
    model: String,
}

pub(super) async fn open(
    State(host): State<Host>,
    sender: Option<Extension<Sender>>,
    FormBody(form): FormBody<SessionForm>,
) -> Result<Response, Refusal> {
    let given = [form.workspace, form.model].map(|text| Some(text.trim().to_owned()).filter(|text| !text.is_empty()));
    let options = opening::of_page(&host, sender.map(|sender| sender.0), form.agent, given).await?;
    let (handle, _) = host.open(options).await?;
    handle.send(form.text).await?;
    Ok(Redirect::to(&session_of(handle.id())).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct InputForm {
    text: String,
    #[serde(default = "send_lane")]
    lane: Lane,
}

fn send_lane() -> Lane {
    Lane::Send
}

/// Sends a message, to the queue or as a steer.
pub(super) async fn send(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
    FormBody(form): FormBody<InputForm>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let input = handle.input(form.text);
    let receipt = match form.lane {
        Lane::Send => input.send().await,
        Lane::Steer => input.steer().await,
    };
    let result =
        receipt.map(|receipt| ActionResult(format!("Accepted for run {}.", receipt.run))).map_err(Problem::from);
    Ok(answer(&headers, &session_of(handle.id()), result))
}

fn control_result(control: Control, done: &str) -> Result<ActionResult, Problem> {
    match control {
        Control::Done(run) => Ok(ActionResult(format!("{done} run {run}."))),
        Control::AlreadyEnded(run, outcome) => {
            Ok(ActionResult(format!("Run {run} had ended: {}.", outcome.kind().as_str())))
        }
        Control::NotFound => Err(Problem::new(StatusCode::NOT_FOUND, "run_not_found", "the session never had a run")),
    }
}

/// The run that the page showed. A later run must not be stopped in its place.
#[derive(Debug, Deserialize)]
pub(super) struct ShownRun {
    run: RunNo,
}

/// Cancels the run that the page showed, with its children.
pub(super) async fn cancel(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
    FormBody(ShownRun { run }): FormBody<ShownRun>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let cancelled = handle.run(run).cancel().await.map_err(Problem::from);
    let result = cancelled.and_then(|control| control_result(control, "Cancelled"));
    Ok(answer(&headers, &session_of(handle.id()), result))
}

pub(super) async fn interrupt(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
    FormBody(ShownRun { run }): FormBody<ShownRun>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    if host.runtime().journal().inflight_of(handle.id())?.is_none_or(|row| row.run != run) {
        let ended = Problem::conflict("run_ended", format!("run {run} is not in flight any more"));
        return Ok(answer(&headers, &session_of(handle.id()), Err(ended)));
    }
    let result =
        handle.interrupt().await.map_err(Problem::from).and_then(|control| control_result(control, "Interrupted"));
    Ok(answer(&headers, &session_of(handle.id()), result))
}

/// Continues a session that is held or whose last run ended.
pub(super) async fn resume(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let receipt = handle.continue_with(None).await;
    let result =
        receipt.map(|receipt| ActionResult(format!("Continued with run {}.", receipt.run))).map_err(Problem::from);
    Ok(answer(&headers, &session_of(handle.id()), result))
}

pub(super) async fn remove(
    State(host): State<Host>,
    PathPart((id, input)): PathPart<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let input: InputId = input
        .parse()
        .map_err(|_| Problem::malformed(format!("input {input}: give its id, a UUID", input = quote(&input))))?;
    let result = match handle.queue_remove(input).await {
        Ok(true) => Ok(ActionResult("Removed.".to_owned())),
        Ok(false) => Ok(ActionResult("A run has taken it already.".to_owned())),
        Err(error) => Err(error.into()),
    };
    Ok(answer(&headers, &session_of(handle.id()), result))
}

/// The answer to an approval, with the digest of the shown content.
#[derive(Debug, Deserialize)]
pub(super) struct ApprovalForm {
    call: String,
    digest: String,
    verdict: AskVerdict,
}

pub(super) async fn approve(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
    FormBody(form): FormBody<ApprovalForm>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let text = match form.verdict {
        AskVerdict::Allow => "Approved once.",
        AskVerdict::Always => "Approved for this session.",
        AskVerdict::Deny => "Denied.",
    };
    let counted = approvals::decide(&host, handle.id(), &form.call, form.verdict, &form.digest).await;
    Ok(answer(&headers, &session_of(handle.id()), counted.map(|()| ActionResult(text.to_owned()))))
}

#[derive(Debug, Deserialize)]
pub(super) struct MessageForm {
    at: u64,
    /// Digest of the files to restore; empty for none.
    #[serde(default)]
    files: String,
}

fn parse_files_digest(files: &str) -> Result<Option<Hash>, Problem> {
    Some(files).filter(|files| !files.is_empty()).map(restores::parse_digest).transpose()
}

pub(super) async fn branch(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(form): FormBody<MessageForm>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let options = BranchOptions { kind: BranchKind::Human, ..BranchOptions::at(Seq(form.at)) };
    let branch = match parse_files_digest(&form.files)? {
        Some(shown) => host.reads().read_session(handle.branch_files(options, shown)).await??.0,
        None => host.reads().read_session(handle.branch(options)).await??,
    };
    host.settled().await?;
    Ok(Redirect::to(&session_of(branch.id())).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct RunForm {
    run: u32,
    /// As in [`MessageForm`].
    #[serde(default)]
    files: String,
}

pub(super) async fn roll_back(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(form): FormBody<RunForm>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let run = Some(RunNo(form.run));
    match parse_files_digest(&form.files)? {
        Some(shown) => drop(host.reads().read_session(handle.roll_back_files(run, shown)).await??),
        None => drop(handle.roll_back(run).await?),
    }
    Ok(Redirect::to(&session_of(handle.id())).into_response())
}

/// Summarises old messages and hides them from models. Responds when the summary is done.
pub(super) async fn compact(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let result = handle.compact().await.map_err(Problem::from).map(|done| {
        let messages = words::count(done.messages, "message");
        ActionResult(format!("Compacted {messages}: about {} tokens before, {} after.", done.before, done.after))
    });
    Ok(answer(&headers, &session_of(handle.id()), result))
}

/// The last record that changed the visible messages on the page. A later compaction must not be undone in its place.
#[derive(Debug, Deserialize)]
pub(super) struct ShownHistory {
    revised: u64,
}

/// Undoes the compaction that the page showed.
pub(super) async fn undo_compaction(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    headers: HeaderMap,
    FormBody(form): FormBody<ShownHistory>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let read = async { Ok(transcript::last_revision(host.runtime().journal(), handle.id())?) };
    let undo = async |revision: Option<Seq>| {
        if revision != Some(Seq(form.revised)) {
            let changed = "after the page was shown, other messages became visible to models: check them again";
            return Ok(Err(Problem::conflict("refused", changed)));
        }
        let text = "The last compaction is undone.".to_owned();
        let undone = handle.undo_compaction().await.map(|()| ActionResult(text)).map_err(Problem::from);
        Ok(undone)
    };
    let result = host.serialize_commands(handle.id(), read, undo).await?;
    Ok(answer(&headers, &session_of(handle.id()), result))
}

#[derive(Debug, Deserialize)]
pub(super) struct AnswerForm {
    of: u64,
}

pub(super) async fn regenerate(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(form): FormBody<AnswerForm>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let (branch, _) = host.reads().read_session(handle.regenerate(Some(Seq(form.of)))).await??;
    host.settled().await?;
    Ok(Redirect::to(&session_of(branch.id())).into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct SwitchForm {
    of: u64,
    to: String,
}

pub(super) async fn switch(
    State(host): State<Host>,
    PathPart(id): PathPart<String>,
    FormBody(form): FormBody<SwitchForm>,
) -> Result<Response, Refusal> {
    let handle = host.session(&id).await?;
    let to = match &*form.to {
        "next" => SwitchTo::Next,
        "previous" => SwitchTo::Previous,
        number => SwitchTo::Index(number.parse().map_err(|_| {
            Problem::malformed(format!("alternative {number}: give next, previous or a number", number = quote(number)))
        })?),
    };
    handle.switch(Some(Seq(form.of)), to).await?;
    Ok(Redirect::to(&session_of(handle.id())).into_response())
}
