//! One call, from its request to the end of its stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt as _;
use genai::chat::{ChatFrameSink, ChatStreamEvent, FrameCtx, RawFrameRef};

use super::client::Client;
use super::fault::{self, Fault};
use super::gather::Draft;
use super::{cache, near, options, render};
use crate::model::{Answer, Deltas, ModelError, Request};

/// Sends `request` and gathers the answer.
///
/// # Cancel safety
/// Dropping the future closes the stream.
pub(super) async fn answer(client: Arc<Client>, request: Request, deltas: Deltas) -> Result<Answer, ModelError> {
    let cap = request.settings.output_tokens;
    let draft = Arc::new(Mutex::new(Draft::new(client.protocol, request.turn, deltas)));
    let fault = match exchange(&client, request, &draft).await {
        Ok(()) => None,
        // What is lost after the provider said why it ends is no part of the answer.
        Err(_) if lock(&draft).is_whole() => None,
        Err(fault) => Some(fault),
    };
    let cost = lock(&draft).cost();
    let draft = std::mem::replace(&mut *lock(&draft), Draft::new(client.protocol, Default::default(), Deltas::none()));
    let fault = match fault.map_or_else(|| draft.finish(cap), Err) {
        Ok(answer) => return Ok(answer),
        Err(fault) => fault,
    };
    let hint = if fault.unknown_model { near::hint(&client).await } else { String::new() };
    let fault = Fault { text: format!("{}{hint}", fault.text), ..fault };
    Err(ModelError { usage: cost, ..fault.into_error(&client) })
}

/// Sends the request and reads frames until nothing more is awaited.
async fn exchange(client: &Client, request: Request, draft: &Arc<Mutex<Draft>>) -> Result<(), Fault> {
    let options = options::of(client, &request)?.with_raw_frame_sink(Sink(Arc::clone(draft)));
    let rendered = cache::marked(client, render::of(client.protocol, &request));
    // The transcript is not held while the answer takes its time.
    drop(request);
    let sent = client.genai.exec_chat_stream(client.target(), rendered, Some(&options)).await;
    let mut stream = sent.map_err(|error| fault::of_request(&error, client))?.stream;
    loop {
        let next = stream.next().await;
        if lock(draft).is_over() {
            return Ok(());
        }
        match next {
            None | Some(Ok(ChatStreamEvent::End(_))) => return Ok(()),
            Some(Ok(_)) => {}
            // An error without a fault of the transport: it could not read a frame, which was read here before.
            Some(Err(error)) => {
                if let Some(fault) = fault::of_genai(&error, client) {
                    return Err(fault);
                }
            }
        }
    }
}

/// Hands the frames on as they come.
struct Sink(Arc<Mutex<Draft>>);

impl ChatFrameSink for Sink {
    fn on_frame(&self, _: &FrameCtx, frame: RawFrameRef<'_>) {
        lock(&self.0).frame(frame.event, frame.data);
    }
}

fn lock(draft: &Mutex<Draft>) -> MutexGuard<'_, Draft> {
    draft.lock().unwrap_or_else(PoisonError::into_inner)
}
