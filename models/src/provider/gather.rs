//! Gathers an answer from the frames of its stream. Several calls may be open at the same time. Arguments are kept as written. A truncated
//! answer is never treated as complete. All input is limited, because a server may be hostile or broken.

mod anthropic;
mod frame;
mod gemini;
mod live;
mod ollama;
mod openai;
mod responses;
mod tally;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use subtend_session::ids::{CallId, Hash, Text, TurnNo};
use subtend_session::limits::MAX_CALLS_PER_ANSWER;
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Stop, ToolCall};
use subtend_session::usage::Usage;
use subtend_session::values::{MAX_VALUES, has_too_many};
use tokio::time::Instant;

use self::live::LiveDeltas;
pub(super) use self::live::QUIET;
use self::tally::TokenTally;
use super::fault::{self, Fault};
use super::key::Key;
use super::mask::{MaskedStream, mask, mask_json};
use super::protocol::Protocol;
use super::reasoning::StoredReasoning;
use super::scrub::scrub;
use crate::model::{Answer, Delta, Deltas};

/// Maximum bytes of one answer on the wire. A long answer has about 300 bytes of framing per token.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// Maximum bytes of text, reasoning and arguments in one answer. An answer of 128,000 tokens has about half a megabyte.
const MAX_CONTENT: usize = 4 * 1024 * 1024;
const MAX_FRAMES: usize = 400_000;
/// Maximum blocks, items and signatures of reasoning in one answer.
const MAX_REASONING: usize = 4_096;
/// Maximum bytes of the name of a tool.
const MAX_NAME: usize = 256;
/// Maximum bytes of the id of a call. Gateways put signatures of a few thousand bytes into ids.
const MAX_ID: usize = 16 * 1024;
/// Time for which keep-alives count as progress while the answer does not grow. A model may reason silently for minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Time limit for the rest of a complete answer, such as its usage, after the last growth of the answer.
const REST: Duration = Duration::from_secs(10);

pub(super) struct Draft {
    protocol: Protocol,
    turn: TurnNo,
    live: LiveDeltas,
    key: Option<Key>,
    /// The text as it arrived. It is masked when it is complete.
    text: String,
    /// The state after the answer that this one may continue.
    continued: MaskedStream,
    calls: Vec<PartialCall>,
    /// Positions in `calls` of the newest calls, by the key with which the stream refers to a call.
    calls_by_key: HashMap<String, usize>,
    reasoning: Reasoning,
    tally: TokenTally,
    stop: Option<Stop>,
    model: Option<String>,
    ended: bool,
    fault: Option<Fault>,
    /// True if a frame of this protocol arrived.
    has_frames: bool,
    /// True if other data arrived.
    has_garbage: bool,
    connection_ended: bool,
    bytes: usize,
    frames: usize,
    /// The size of the content, and when it last changed.
    content: usize,
    grown: Instant,
}

struct PartialCall {
    id: String,
    tool: String,
    args: String,
    is_reported: bool,
}

#[derive(Default)]
struct Reasoning {
    text: String,
    blocks: Vec<(u64, Value)>,
    encrypted: Vec<String>,
    /// Digests of `encrypted`, because some servers send each piece twice.
    seen: HashSet<Hash>,
    signature: Option<String>,
    /// Signatures of calls, by position.
    of_calls: Vec<(usize, String)>,
    /// Number of pieces that are kept for the next request, and their bytes, without those in `text`.
    pieces: usize,
    bytes: usize,
}

impl Draft {
    pub(super) fn new(protocol: Protocol, turn: TurnNo, deltas: Deltas) -> Self {
        Self {
            protocol,
            turn,
            live: LiveDeltas::new(deltas),
            key: None,
            text: String::new(),
            continued: MaskedStream::default(),
            calls: Vec::new(),
            calls_by_key: HashMap::new(),
            reasoning: Reasoning::default(),
            tally: TokenTally::default(),
            stop: None,
            model: None,
            ended: false,
            fault: None,
            has_frames: false,
            has_garbage: false,
            connection_ended: false,
            bytes: 0,
            frames: 0,
            content: 0,
            grown: Instant::now(),
        }
    }

    /// Sets the key to hide if a server repeats it in its answer.
    pub(super) fn with_hidden_key(self, key: Option<Key>) -> Self {
        Self { key, ..self }
    }

    /// Hides the rest of a key that begins at the end of `earlier`: this answer may continue that one, and a run joins both.
    pub(super) fn continuing(self, earlier: &str) -> Self {
        let continued = MaskedStream::after(earlier, self.key.as_ref());
        Self { live: self.live.continuing(continued.clone()), continued, ..self }
    }

    /// Counts received bytes, which also show that the server is alive. Keep-alives without content count only for a
    /// limited time. After that, the caller's limit for silence applies.
    pub(super) fn count_arrived(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            self.fail(size_error("bytes", MAX_BYTES));
        }
        if self.grown.elapsed() < KEEP_ALIVE {
            self.live.keep_alive();
        }
        self.live.show_quiet(QUIET);
    }

    /// Marks the end of the connection: the next frame may be truncated.
    pub(super) fn mark_connection_end(&mut self) {
        self.connection_ended = true;
    }

    /// Processes one frame: the name of its event, if it has one, and its data.
    pub(super) fn frame(&mut self, event: Option<&str>, data: &str) {
        if self.is_over() {
            return;
        }
        self.frames = self.frames.saturating_add(1);
        if self.frames > MAX_FRAMES {
            return self.fail(size_error("frames", MAX_FRAMES));
        }
        let data = data.trim();
        match data {
            "" => self.has_garbage |= event.is_none(),
            "[DONE]" => self.ended = true,
            _ if has_too_many(data.as_bytes()) => self.fail(size_error("JSON values in one frame", MAX_VALUES)),
            _ => match serde_json::from_str::<Value>(data) {
                Ok(frame) if frame.is_object() => self.take(&frame),
                Ok(_) => self.fail(unreadable(&self.shown_start(data))),
                Err(error) if self.connection_ended && error.is_eof() && data.starts_with('{') => {
                    self.fail(Fault::interrupted())
                }
                Err(_) if self.has_frames => self.fail(malformed(&self.shown_start(data))),
                Err(_) => self.fail(unreadable(&self.shown_start(data))),
            },
        }
    }

    /// Returns the start of `data` for an error, cut after the key is masked.
    fn shown_start(&self, data: &str) -> String {
        scrub(data, self.key.as_ref().map(Key::reveal)).chars().take(80).collect()
    }

    fn take(&mut self, frame: &Value) {
        self.has_frames = true;
        if let Some(fault) = fault::of_frame(frame) {
            return self.fail(fault);
        }
        let was_stopped = self.stop.is_some();
        match self.protocol {
            Protocol::Anthropic => anthropic::frame(self, frame),
            Protocol::OpenAi => openai::frame(self, frame),
            Protocol::OpenAiResponses => responses::frame(self, frame),
            Protocol::Gemini => gemini::frame(self, frame),
            Protocol::Ollama => ollama::frame(self, frame),
        }
        self.track_growth(self.stop.is_some() && !was_stopped);
    }

    /// Tracks and limits the growth of the answer. A stop reason counts once as growth.
    fn track_growth(&mut self, is_stop: bool) {
        let calls: usize = self.calls.iter().map(PartialCall::bytes).sum();
        let signature = self.reasoning.signature.as_ref().map_or(0, String::len);
        let content = [self.text.len(), self.reasoning.text.len(), self.reasoning.bytes, signature, calls].iter().sum();
        if content > MAX_CONTENT {
            self.fail(size_error("bytes of content", MAX_CONTENT));
        }
        if content > self.content || is_stop {
            (self.content, self.grown) = (content, Instant::now());
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended || self.fault.is_some()
    }

    /// Returns whether the stop reason arrived. Then the answer is complete, even if the connection fails later.
    pub(super) fn is_complete(&self) -> bool {
        self.fault.is_none() && (self.ended || self.stop.is_some())
    }

    /// Returns the time at which the wait for the rest of a complete answer ends, because a server may keep the stream open.
    pub(super) fn rest_until(&self) -> Option<Instant> {
        self.stop.and_then(|_| self.grown.checked_add(REST))
    }

    pub(super) fn cost(&self) -> Option<Usage> {
        self.tally.is_reported().then(|| self.tally.usage())
    }

    /// Returns the answer or the failure. `cap` is the requested cap on output tokens.
    pub(super) fn finish(mut self, cap: Option<u64>) -> Result<Answer, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if !self.is_complete() {
            return Err(if self.has_garbage && !self.has_frames {
                unreadable("")
            } else if self.bytes == 0 {
                Fault::new(ModelFail::Unavailable, "the server closed the connection without an answer")
            } else {
                Fault::interrupted()
            });
        }
        if self.stop.is_none() && self.text.is_empty() && self.calls.is_empty() {
            // The stream ended without any frame of this protocol.
            return Err(unreadable(""));
        }
        self.show_held();
        let stop = self.stop_reason(cap)?;
        let usage = self.tally.usage();
        let reasoning = self.stored_reasoning().and_then(|kept| kept.to_text());
        let key = self.key;
        // Reasoning is stored as JSON, so a key in it may be escaped.
        let reasoning = reasoning.map(|text| mask_json(&text, key.as_ref()).into());
        let calls = self.calls.into_iter().map(|call| call.into_tool_call(key.as_ref())).collect();
        let mut text = self.continued.push(&self.text, key.as_ref()).into_owned();
        text.push_str(&self.continued.show_rest());
        let text = (!text.is_empty()).then(|| Text::from(text));
        let model = self.model.map(Text::from);
        Ok(Answer { text, reasoning, calls, stop, model, usage })
    }

    /// Returns the stop reason. Corrects a reason that contradicts the calls or the cap.
    fn stop_reason(&self, cap: Option<u64>) -> Result<Stop, Fault> {
        let stop = self.stop.unwrap_or(if self.text.is_empty() { Stop::Other } else { Stop::End });
        // Some servers of the Responses API report an answer as complete although they truncated it at the cap.
        let at_cap = cap.is_some_and(|cap| self.tally.output().is_some_and(|output| output >= cap));
        Ok(match stop {
            Stop::End | Stop::Calls if at_cap && self.protocol == Protocol::OpenAiResponses => Stop::Length,
            Stop::End | Stop::Other if !self.calls.is_empty() => Stop::Calls,
            Stop::Calls if self.calls.is_empty() => {
                return Err(Fault::new(ModelFail::BadAnswer, "the answer announces tool calls, but includes no call"));
            }
            Stop::End | Stop::Calls | Stop::Length | Stop::Refused | Stop::Other => stop,
        })
    }

    fn stored_reasoning(&mut self) -> Option<StoredReasoning> {
        let kept = std::mem::take(&mut self.reasoning);
        match self.protocol {
            Protocol::Anthropic => {
                let blocks = kept.blocks.into_iter().map(|(_, block)| block).filter(anthropic::is_signed).collect();
                Some(StoredReasoning::Anthropic { blocks })
            }
            Protocol::OpenAi => Some(StoredReasoning::OpenAi { text: kept.text }),
            Protocol::OpenAiResponses => Some(StoredReasoning::OpenAiResponses { encrypted: kept.encrypted }),
            Protocol::Gemini => {
                let of = |ix: usize| kept.of_calls.iter().find(|(at, _)| *at == ix).map(|(_, sign)| sign.clone());
                Some(StoredReasoning::Gemini { text: kept.signature, calls: (0..self.calls.len()).map(of).collect() })
            }
            Protocol::Ollama => None,
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.live.push_text(text, self.key.as_ref());
        }
    }

    fn push_reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.reasoning.text.push_str(text);
            self.live.push_reasoning(text, self.key.as_ref());
        }
    }

    /// Shows what was held back, because nothing follows for a while.
    pub(super) fn show_held(&mut self) {
        self.live.show_all();
    }

    /// Counts a piece of reasoning with `bytes` bytes. Returns whether the piece is kept.
    fn try_keep(&mut self, bytes: usize) -> bool {
        self.reasoning.bytes = self.reasoning.bytes.saturating_add(bytes);
        self.reasoning.pieces = self.reasoning.pieces.saturating_add(1);
        if self.reasoning.pieces > MAX_REASONING {
            self.fail(size_error("pieces of reasoning", MAX_REASONING));
        }
        self.fault.is_none()
    }

    fn model(&mut self, name: Option<&str>) {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            self.model = Some(mask(name, self.key.as_ref()).chars().take(200).collect());
        }
    }

    /// Returns the position of the newest call with `key`.
    fn position(&self, key: &str) -> Option<usize> {
        self.calls_by_key.get(key).copied()
    }

    fn call(&mut self, key: &str) -> Option<&mut PartialCall> {
        let ix = self.position(key)?;
        self.calls.get_mut(ix)
    }

    /// Opens a call and returns its position.
    fn open(&mut self, key: String, id: &str, tool: &str) -> usize {
        let ix = self.calls.len();
        if ix >= MAX_CALLS_PER_ANSWER as usize {
            // The returned position does not matter, because no further frame is read.
            let text = format!("the answer has more than {MAX_CALLS_PER_ANSWER} calls");
            self.fail(Fault::new(ModelFail::BadAnswer, text));
            return ix;
        }
        // In some protocols, `key` differs from `id`, or is built from `id` and `tool`.
        if !self.fits(id, tool) || key.len() > MAX_ID.saturating_add(MAX_NAME).saturating_add(1) {
            self.fail(size_error("bytes in the id of a call", MAX_ID));
            return ix;
        }
        self.calls_by_key.insert(key, ix);
        self.calls.push(PartialCall { id: id.into(), tool: tool.into(), args: String::new(), is_reported: false });
        self.report_call(ix);
        ix
    }

    /// Returns whether the id and the tool name of a call are within their limits.
    fn fits(&mut self, id: &str, tool: &str) -> bool {
        if id.len() > MAX_ID {
            self.fail(size_error("bytes in the id of a call", MAX_ID));
        }
        if tool.len() > MAX_NAME {
            self.fail(size_error("bytes in the name of a tool", MAX_NAME));
        }
        self.fault.is_none()
    }

    /// Reports a call once, as soon as its tool is known.
    fn report_call(&mut self, ix: usize) {
        let Some(call) = self.calls.get_mut(ix).filter(|call| !call.is_reported && !call.tool.is_empty()) else {
            return;
        };
        call.is_reported = true;
        let tool = mask(&call.tool, self.key.as_ref()).into();
        let id = CallId { turn: self.turn, ix: u32::try_from(ix).unwrap_or(u32::MAX) };
        self.live.push_call(Delta::Call { call: id, tool });
    }
}

impl PartialCall {
    fn bytes(&self) -> usize {
        [&self.id, &self.tool, &self.args].iter().map(|text| text.len()).sum()
    }

    /// Returns the call as the model wrote it, even with invalid arguments. Missing arguments become an empty object.
    fn into_tool_call(self, key: Option<&Key>) -> ToolCall {
        let args = if self.args.trim().is_empty() { "{}".into() } else { Text::from(mask_json(&self.args, key)) };
        ToolCall { provider_id: mask(&self.id, key).into(), tool: mask(&self.tool, key).into(), args }
    }
}

fn size_error(of: &str, limit: usize) -> Fault {
    Fault::new(ModelFail::BadAnswer, format!("the answer has more than {limit} {of}"))
}

fn malformed(start: &str) -> Fault {
    Fault::new(ModelFail::BadAnswer, format!("a frame of the answer is malformed: `{start}`"))
}

fn unreadable(start: &str) -> Fault {
    let shown = if start.is_empty() || start.starts_with('<') { String::new() } else { format!(" (`{start}`)") };
    Fault::new(
        ModelFail::BadAnswer,
        format!("the answer is not a stream of this protocol{shown}; check that the server speaks it"),
    )
}

#[cfg(test)]
mod tests;
