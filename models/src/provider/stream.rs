//! Makes one call, from the request to the end of the stream.

use std::sync::Arc;

use bytes::Bytes;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use subtend_session::message::Message;
use tokio::time::Instant;

use super::client::Client;
use super::fault::{self, Fault};
use super::frames::{Frames, PIECE};
use super::gather::{Draft, QUIET};
use super::{body, near, render};
use crate::model::{Answer, Deltas, ModelError, Request};

/// Maximum bytes of the body of an error. The reason is in the first few hundred bytes.
const ERROR_BYTES: usize = 64 * 1024;

/// Sends `request` and gathers the answer. A drop of the future closes the stream.
pub(super) async fn answer(client: Arc<Client>, request: Request, deltas: Deltas) -> Result<Answer, ModelError> {
    let cap = request.settings.output_tokens;
    let mut draft = Draft::new(client.protocol, request.turn, deltas).with_hidden_key(client.key.clone());
    let text = |message: &Message| match message {
        Message::Assistant { text, .. } => text.clone(),
        Message::User { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    };
    if let Some(earlier) = request.messages.iter().rev().find_map(text) {
        draft = draft.continuing(&earlier);
    }
    let fault = match exchange(&client, request, &mut draft).await {
        Ok(()) => None,
        // Ignore a lost connection after the stop reason: the answer is complete.
        Err(_) if draft.is_complete() => None,
        Err(fault) => {
            draft.show_held();
            Some(fault)
        }
    };
    let cost = draft.cost();
    let fault = match fault.map_or_else(|| draft.finish(cap), Err) {
        Ok(answer) => {
            // Report the model with its provider, as in the names that users choose.
            let model = answer.model.map(|name| format!("{}/{name}", client.protocol).into());
            return Ok(Answer { model, ..answer });
        }
        Err(fault) => fault,
    };
    let hint = if fault.unknown_model { near::hint(&client).await } else { String::new() };
    let fault = Fault { text: format!("{}{hint}", fault.text), ..fault };
    Err(ModelError { usage: cost, ..fault.into_error(&client) })
}

/// Sends the request and reads frames until the draft is over.
async fn exchange(client: &Client, request: Request, draft: &mut Draft) -> Result<(), Fault> {
    let body = render::body(client, &request)?;
    // The answer may take long, so drop the transcript.
    drop(request);
    let call = client.call().header(CONTENT_TYPE, "application/json").body(body.to_string());
    drop(body);
    let sent = client.send(call).await;
    let mut response = sent.map_err(|error| fault::http::of_transport(&error, client))?;
    let (status, headers) = (response.status(), response.headers().clone());
    if !status.is_success() {
        let body = body::head(response, ERROR_BYTES).await;
        return Err(fault::http::of_status(status, &headers, &String::from_utf8_lossy(&body), client));
    }
    let mut frames = Frames::of(client.protocol);
    loop {
        let arrived = match tokio::time::timeout(QUIET, next(&mut response, draft)).await {
            Ok(arrived) => arrived,
            Err(_) => {
                draft.show_held();
                next(&mut response, draft).await
            }
        };
        let Some(chunk) = arrived.map_err(|error| fault::http::of_transport(&error, client))? else { break };
        for piece in chunk.chunks(PIECE) {
            frames.reserve(piece.len()).await?;
            if take(piece, &mut frames, draft)? {
                return Ok(());
            }
        }
        // Yield, because a server that is faster than this loop would block the thread.
        tokio::task::yield_now().await;
    }
    if is_overdue(draft) { Ok(()) } else { frames.end(draft) }
}

/// Returns the next bytes of the body. Returns `None` at its end, or if the rest of a complete answer does not arrive in time.
async fn next(response: &mut Response, draft: &Draft) -> reqwest::Result<Option<Bytes>> {
    match draft.rest_until() {
        Some(_) if is_overdue(draft) => Ok(None),
        Some(until) => tokio::time::timeout_at(until, response.chunk()).await.unwrap_or(Ok(None)),
        None => response.chunk().await,
    }
}

fn is_overdue(draft: &Draft) -> bool {
    draft.rest_until().is_some_and(|until| until <= Instant::now())
}

/// Passes bytes of the body to the draft. Returns whether the draft is over.
pub(super) fn take(chunk: &[u8], frames: &mut Frames, draft: &mut Draft) -> Result<bool, Fault> {
    draft.count_arrived(chunk.len());
    frames.push(chunk, draft)?;
    Ok(draft.is_over())
}
