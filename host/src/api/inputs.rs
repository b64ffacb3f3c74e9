use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_actors::{Receipt, SessionHandle, history};
use subtend_session::ids::{InputId, SessionId, Text};
use subtend_session::record::{InputAccepted, Lane, Record};
use subtend_session::values::{JsonText, parse_recorded};
use utoipa::ToSchema;

use super::waiting::WaitQuery;
use super::{Body, IdempotencyKey, Path, Query, names};
use crate::host::Host;
use crate::json::Json;
use crate::problem::{Problem, quote};
use crate::slash;

/// An input to send.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewInput {
    text: String,
    /// True to expand a text such as `/review src` to the prompt of that slash command of the session's directory. An unknown
    /// command is an error (`unknown_command`).
    #[serde(default)]
    expand: bool,
    /// `send` waits until the run in flight is at rest; `steer` is read at the next turn boundary.
    #[serde(default = "send_lane")]
    #[schema(value_type = String, default = "send")]
    lane: Lane,
    /// The agent that answers from this input on.
    #[serde(default, deserialize_with = "names::optional")]
    agent: Option<String>,
    /// Maximum number of turns of the run that the input opens, up to the limit `turns` of its session.
    turns: Option<u32>,
    /// Metadata of the client; it is not sent to models.
    #[serde(default, deserialize_with = "names::metadata")]
    #[schema(value_type = Option<Map<String, Value>>)]
    metadata: Option<JsonText>,
    /// JSON Schema for the answer.
    #[schema(value_type = Option<Object>)]
    format: Option<JsonText>,
}

fn send_lane() -> Lane {
    Lane::Send
}

/// The receipt of a durable input.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct Accepted {
    #[schema(value_type = String, format = Uuid)]
    session: SessionId,
    #[schema(value_type = String, format = Uuid)]
    input: InputId,
    /// The run that takes the input.
    run: u32,
    /// True if an input with the same key was already accepted.
    #[serde(rename = "again")]
    duplicate: bool,
}

impl From<&Receipt> for Accepted {
    fn from(of: &Receipt) -> Self {
        Self { session: of.session().id(), input: of.input, run: of.run.0, duplicate: of.duplicate }
    }
}

/// The idempotency key of an input, with the request that was sent with it.
#[derive(Clone, Debug)]
pub(super) struct KeyedRequest {
    key: String,
    /// Hash of the command and the input. A slash command is hashed unexpanded, because its file may change.
    hash: u64,
}

impl KeyedRequest {
    /// Returns the receipt of the same request, if the session has it already.
    ///
    /// # Errors
    /// [`Problem`] `idempotency_key_reused` if the key was used for another request.
    pub(super) async fn first_receipt(&self, host: &Host, handle: &SessionHandle) -> Result<Option<Accepted>, Problem> {
        let find = async {
            let mut found = None;
            history::each(host.runtime().journal(), handle.id(), |stored| {
                if let Record::InputAccepted(accepted) = &stored.record
                    && accepted.key.as_deref() == Some(&self.key)
                {
                    found.get_or_insert(accepted.id);
                }
            })?;
            Ok::<_, Problem>(found)
        };
        let Some(input) = host.reads().read_session(find).await?? else { return Ok(None) };
        match input.is_of_request(self.hash) {
            Some(true) => Ok(Some(Accepted::from(&host.reads().read_session(handle.receipt(input)).await??))),
            Some(false) => Err(Problem::reused_key(&self.key)),
            // The input was accepted by an earlier version, which did not record the request.
            None => Ok(None),
        }
    }
}

impl NewInput {
    /// Returns the key with a hash of `command` and this input, so that the key is refused for any other request.
    ///
    /// # Errors
    /// [`Problem`] `internal` if the input cannot be written as JSON.
    pub(super) fn with_key(&self, command: &str, key: Option<String>) -> Result<Option<KeyedRequest>, Problem> {
        let Some(key) = key else { return Ok(None) };
        let internal = |error: serde_json::Error| Problem::internal("internal", error.to_string());
        let mut input = serde_json::to_value(self).map_err(internal)?;
        // The order of metadata does not matter.
        input.sort_all_objects();
        let mut hasher = blake3::Hasher::new_derive_key("subtend host: request of an input");
        for part in [command, &input.to_string()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut hash = [0; 8];
        hasher.finalize_xof().fill(&mut hash);
        Ok(Some(KeyedRequest { key, hash: u64::from_le_bytes(hash) }))
    }

    pub(super) fn of_text(text: &str) -> Self {
        let (lane, text) = (send_lane(), text.to_owned());
        Self { text, expand: false, lane, agent: None, turns: None, metadata: None, format: None }
    }

    /// Refuses an invalid input before a session is opened for it.
    ///
    /// # Errors
    /// [`Problem`] `invalid_input`.
    pub(super) fn check(&self) -> Result<(), Problem> {
        match self.turns {
            Some(0) => {
                Err(Problem::invalid("invalid_input", "turns: 0 is not allowed; give 1 or more, or leave it out"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Expands a slash command if `expand` is set; `workspace` is the directory of the session.
    ///
    /// # Errors
    /// As [`slash::expand`], and errors of `workspace`.
    pub(super) async fn expand(
        self,
        host: &Host,
        workspace: impl FnOnce() -> Result<Option<String>, Problem>,
    ) -> Result<Self, Problem> {
        let Some(workspace) = (if self.expand { workspace()? } else { None }) else { return Ok(self) };
        let text = slash::expand(host, workspace, self.text).await?;
        Ok(Self { text, ..self })
    }

    /// Sends the input to `handle`.
    ///
    /// # Errors
    /// [`Problem`]; `idempotency_key_reused` if the key was used for another input.
    pub(super) async fn send(
        self,
        host: &Host,
        handle: &SessionHandle,
        request: Option<KeyedRequest>,
    ) -> Result<Accepted, Problem> {
        let sent = request.is_some().then(|| self.clone());
        let mut input = handle.input(self.text);
        if let Some(request) = &request {
            input = input.key(request.key.clone()).request_hash(request.hash);
        }
        if let Some(agent) = self.agent {
            input = input.agent(agent);
        }
        if let Some(turns) = self.turns {
            input = input.turns(turns);
        }
        if let Some(metadata) = self.metadata {
            input = input.metadata(&metadata.value());
        }
        if let Some(format) = self.format {
            input = input.format(&format.value());
        }
        let receipt = match self.lane {
            Lane::Send => input.send().await?,
            Lane::Steer => input.steer().await?,
        };
        if let Some((request, sent)) = request.zip(sent).filter(|_| receipt.duplicate) {
            match receipt.input.is_of_request(request.hash) {
                Some(true) => {}
                Some(false) => return Err(Problem::reused_key(&request.key)),
                None => {
                    let refuse = async { sent.refuse_reused_key(host, &receipt, &request.key) };
                    host.reads().read_session(refuse).await??;
                }
            }
        }
        Ok(Accepted::from(&receipt))
    }

    /// Refuses a key that an earlier version accepted for another input. That version recorded no hash of the request,
    /// so this compares the recorded input, which hooks of the host may have changed.
    fn refuse_reused_key(&self, host: &Host, receipt: &Receipt, key: &str) -> Result<(), Problem> {
        let mut is_other = false;
        history::each(host.runtime().journal(), receipt.session().id(), |stored| {
            if let Record::InputAccepted(accepted) = &stored.record
                && accepted.id == receipt.input
            {
                is_other = !self.is_same(accepted);
            }
        })?;
        if is_other { Err(Problem::reused_key(key)) } else { Ok(()) }
    }

    fn is_same(&self, accepted: &InputAccepted) -> bool {
        let json = |text: &Option<Text>| text.as_deref().map(parse_recorded::<Value>).and_then(Result::ok);
        let agent = accepted.agent_override.as_deref().map(|of| &*of.agent);
        *accepted.text == *self.text
            && accepted.lane == self.lane
            && agent == self.agent.as_deref()
            && accepted.turns == self.turns
            && json(&accepted.metadata) == self.metadata.as_ref().map(JsonText::value)
            && json(&accepted.format) == self.format.as_ref().map(JsonText::value)
    }
}

/// Sends an input. Responds when the input is durable. With an `Idempotency-Key`, a repeated input is accepted once.
#[utoipa::path(post, path = "/v1/sessions/{id}/inputs", tag = "inputs", operation_id = "send_input", request_body = NewInput,
    params(("id" = String, Path, description = "The session"),
        ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key has no second effect")),
    responses((status = 202, body = Accepted), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 429, body = Problem)))]
pub(super) async fn send(
    State(host): State<Host>,
    Path(id): Path<String>,
    IdempotencyKey(key): IdempotencyKey,
    Body(draft): Body<NewInput>,
) -> Result<Response, Problem> {
    draft.check()?;
    let handle = host.session(&id).await?;
    let request = draft.with_key("input", key)?;
    let accepted = match draft.expand(&host, || slash::workspace_of(&host, handle.id()).map(Some)).await {
        Ok(draft) => draft.send(&host, &handle, request).await?,
        Err(problem) => find_repeated(&host, &handle, request.as_ref()).await?.ok_or(problem)?,
    };
    let location = format!("/v1/sessions/{}/inputs/{}", accepted.session, accepted.input);
    let mut response = (StatusCode::ACCEPTED, Json(accepted)).into_response();
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// Returns the first receipt of a repeated request whose slash command can no longer be expanded.
///
/// # Errors
/// As [`KeyedRequest::first_receipt`].
pub(super) async fn find_repeated(
    host: &Host,
    handle: &SessionHandle,
    request: Option<&KeyedRequest>,
) -> Result<Option<Accepted>, Problem> {
    match request {
        Some(request) => request.first_receipt(host, handle).await,
        None => Ok(None),
    }
}

/// The state of an input.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InputAnswer {
    #[schema(value_type = String, format = Uuid)]
    input: InputId,
    /// True if a turn answered it.
    answered: bool,
    /// Text of the answer.
    text: Option<String>,
    /// The run that took or will take it.
    run: u32,
    /// The turn that answered it.
    turn: Option<u32>,
}

/// Returns the answer to an input; with `wait`, waits for it.
#[utoipa::path(get, path = "/v1/sessions/{id}/inputs/{input}", tag = "inputs", operation_id = "get_answer",
    params(("id" = String, Path, description = "The session"), ("input" = String, Path, description = "The input"), WaitQuery),
    responses((status = 200, body = InputAnswer), (status = 404, body = Problem),
        (status = 409, body = Problem, description = "Its run ended without an answer, or the input was removed")))]
pub(super) async fn answer(
    State(host): State<Host>,
    Path((id, input)): Path<(String, String)>,
    Query(waiting): Query<WaitQuery>,
) -> Result<Json<InputAnswer>, Problem> {
    let handle = host.reads().read_session(host.session(&id)).await??;
    let input: InputId = input
        .parse()
        .map_err(|_| Problem::malformed(format!("input {input}: give its id, a UUID", input = quote(&input))))?;
    let receipt = host.reads().read_session(handle.receipt(input)).await??;
    let run = receipt.run.0;
    Ok(Json(match waiting.wait_until(&host, receipt.session().id(), receipt.wait()).await? {
        None => InputAnswer { input, answered: false, text: None, run, turn: None },
        Some(of) => {
            InputAnswer { input, answered: true, text: Some(of.text.to_string()), run: of.run.0, turn: Some(of.turn.0) }
        }
    }))
}
