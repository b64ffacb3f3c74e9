//! Splits the bytes of an answer into frames: server-sent events, or lines of JSON. Lines and events have a maximum size. Source: the HTML
//! standard, "Server-sent events", 9.2.6.

use std::time::Duration;

use bytes::BytesMut;
use subtend_session::outcome::ModelFail;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::codec::{Decoder as _, LinesCodec, LinesCodecError};

use super::fault::Fault;
use super::gather::Draft;
use super::protocol::Protocol;

/// Maximum bytes of one line or event.
const MAX_FRAME: usize = 8 * 1024 * 1024;
/// Bytes from which on an unfinished frame is large.
const LARGE_FRAME: usize = 256 * 1024;
/// Maximum bytes that are read at once, so that small frames never need a permit.
pub(super) const PIECE: usize = 64 * 1024;
/// Permits for the large unfinished frames of all streams of the process. A stream takes at most one of them, before its frame becomes
/// large, so no streams wait for each other.
static LARGE_FRAMES: Semaphore = Semaphore::const_new(8);
/// Time limit of a wait for a permit. Servers that send nothing more hold theirs until the calls end.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Frames {
    lines: LinesCodec,
    buffer: BytesMut,
    permits: &'static Semaphore,
    /// Held while the unfinished frame is large.
    permit: Option<SemaphorePermit<'static>>,
    /// The incomplete event; `None` if each line is a frame.
    event: Option<Event>,
}

#[derive(Default)]
struct Event {
    name: Option<String>,
    data: String,
    /// True after the first line that is not a comment.
    is_begun: bool,
}

impl Frames {
    pub(super) fn of(protocol: Protocol) -> Self {
        Self::with_permits(protocol, &LARGE_FRAMES)
    }

    fn with_permits(protocol: Protocol, permits: &'static Semaphore) -> Self {
        let event = (protocol != Protocol::Ollama).then(Event::default);
        let lines = LinesCodec::new_with_max_length(MAX_FRAME);
        Self { lines, buffer: BytesMut::new(), permits, permit: None, event }
    }

    /// Waits until the unfinished frame may grow by `bytes`. Meanwhile the stream is not read. A dropped wait changes nothing.
    /// # Errors
    /// If too many streams have large frames for too long.
    pub(super) async fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        if self.permit.is_some() || self.unfinished().saturating_add(bytes) <= LARGE_FRAME {
            return Ok(());
        }
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, self.permits.acquire()).await;
        self.permit = Some(permit.map_err(|_| busy_error())?.map_err(|_| busy_error())?);
        Ok(())
    }

    /// Returns the bytes of the unfinished frame.
    fn unfinished(&self) -> usize {
        let data = self.event.as_ref().map_or(0, |event| event.data.len());
        data.saturating_add(self.buffer.len())
    }

    /// Splits bytes, and passes complete frames to `draft` until the draft is over. Bytes after its end or error are not read, even if they arrive
    /// in the same chunk.
    /// # Errors
    /// If the bytes are not text, or a line or an event is too long.
    pub(super) fn push(&mut self, chunk: &[u8], draft: &mut Draft) -> Result<(), Fault> {
        self.buffer.extend_from_slice(chunk);
        let bytes = self.buffer.len();
        while !draft.is_over()
            && let Some(line) = self.lines.decode(&mut self.buffer).map_err(unreadable)?
        {
            self.read_line(&line, draft)?;
        }
        // The line belongs to the event, so both together have its maximum size.
        if !draft.is_over() && self.unfinished() > MAX_FRAME {
            return Err(length_error());
        }
        if bytes > LARGE_FRAME && self.buffer.len() < bytes {
            // The buffer keeps the memory of lines that were read.
            self.buffer = BytesMut::from(&*self.buffer);
        }
        if self.unfinished() <= LARGE_FRAME {
            self.permit = None;
        }
        Ok(())
    }

    /// Passes an unterminated rest of the body to `draft`, which decides whether the rest is complete. Has the errors of [`push`](Self::push).
    pub(super) fn end(mut self, draft: &mut Draft) -> Result<(), Fault> {
        draft.mark_connection_end();
        while !draft.is_over()
            && let Some(line) = self.lines.decode_eof(&mut self.buffer).map_err(unreadable)?
        {
            self.read_line(&line, draft)?;
        }
        self.read_line("", draft)
    }

    fn read_line(&mut self, line: &str, draft: &mut Draft) -> Result<(), Fault> {
        let Some(event) = &mut self.event else {
            if !line.trim().is_empty() {
                draft.frame(None, line);
            }
            return Ok(());
        };
        if line.is_empty() {
            let Event { name, data, is_begun } = std::mem::take(event);
            if is_begun {
                draft.frame(name.as_deref(), &data);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        event.is_begun |= !field.is_empty();
        match field {
            "data" => {
                if !event.data.is_empty() {
                    event.data.push('\n');
                }
                event.data.push_str(value);
            }
            "event" => event.name = Some(value.chars().take(100).collect()),
            _ => {}
        }
        if event.data.len() > MAX_FRAME {
            return Err(length_error());
        }
        Ok(())
    }
}

fn busy_error() -> Fault {
    let text = "a line of the answer is long, and too many other calls are reading long lines";
    Fault::new(ModelFail::Unavailable, text)
}

fn length_error() -> Fault {
    Fault::new(ModelFail::BadAnswer, format!("a line of the answer is longer than {MAX_FRAME} bytes"))
}

fn unreadable(error: LinesCodecError) -> Fault {
    match error {
        LinesCodecError::MaxLineLengthExceeded => length_error(),
        LinesCodecError::Io(error) => Fault::new(ModelFail::BadAnswer, format!("the answer is not text: {error}")),
    }
}

#[cfg(test)]
mod tests;
