//! Reads streams from memory, for fuzz targets.

use subtend_session::ids::TurnNo;

use super::fault::Fault;
use super::frames::Frames;
use super::gather::Draft;
use super::protocol::Protocol;
use super::stream;
use crate::model::{Answer, Deltas, ModelError};

/// Reads `chunks` as the body of an answer in `protocol`.
/// # Errors
/// Returns the failure, with the usage that the stream reported.
pub fn read<'a>(
    protocol: Protocol,
    chunks: impl IntoIterator<Item = &'a [u8]>,
    cap: Option<u64>,
    deltas: Deltas,
) -> Result<Answer, ModelError> {
    let mut draft = Draft::new(protocol, TurnNo(1), deltas);
    let fault = match body(protocol, chunks, &mut draft) {
        Err(fault) if !draft.is_complete() => Some(fault),
        Ok(()) | Err(_) => None,
    };
    let usage = draft.cost();
    fault.map_or_else(|| draft.finish(cap), Err).map_err(|fault| {
        let message = fault.display_text(None);
        ModelError { usage, retry_after_ms: fault.retry_after_ms, ..ModelError::new(fault.kind, message) }
    })
}

fn body<'a>(protocol: Protocol, chunks: impl IntoIterator<Item = &'a [u8]>, draft: &mut Draft) -> Result<(), Fault> {
    let mut frames = Frames::of(protocol);
    for chunk in chunks {
        if stream::take(chunk, &mut frames, draft)? {
            return Ok(());
        }
    }
    frames.end(draft)
}
