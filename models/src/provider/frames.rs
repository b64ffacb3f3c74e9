//! Splits the bytes of an answer into frames: server-sent events, or lines of JSON. Lines and events have a maximum size. Source: the HTML
//! standard, "Server-sent events", 9.2.6.

use bytes::BytesMut;
use subtend_session::outcome::ModelFail;
use tokio_util::codec::{Decoder as _, LinesCodec, LinesCodecError};

use super::fault::Fault;
use super::gather::Draft;
use super::protocol::Protocol;

/// Maximum bytes of one line or event.
const MAX_FRAME: usize = 8 * 1024 * 1024;

pub(super) struct Frames {
    lines: LinesCodec,
    buffer: BytesMut,
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
        let event = (protocol != Protocol::Ollama).then(Event::default);
        Self { lines: LinesCodec::new_with_max_length(MAX_FRAME), buffer: BytesMut::new(), event }
    }

    /// Splits bytes, and passes complete frames to `draft` until the draft is over. Bytes after its end or error are not read, even if they arrive
    /// in the same chunk.
    /// # Errors
    /// If the bytes are not text, or a line or an event is too long.
    pub(super) fn push(&mut self, chunk: &[u8], draft: &mut Draft) -> Result<(), Fault> {
        self.buffer.extend_from_slice(chunk);
        while !draft.is_over()
            && let Some(line) = self.lines.decode(&mut self.buffer).map_err(unreadable)?
        {
            self.read_line(&line, draft)?;
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

fn length_error() -> Fault {
    Fault::new(ModelFail::BadAnswer, format!("a line of the answer is longer than {MAX_FRAME} bytes"))
}

fn unreadable(error: LinesCodecError) -> Fault {
    match error {
        LinesCodecError::MaxLineLengthExceeded => length_error(),
        LinesCodecError::Io(error) => Fault::new(ModelFail::BadAnswer, format!("the answer is not text: {error}")),
    }
}
