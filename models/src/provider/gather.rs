//! An answer, gathered from the frames of its stream.
//!
//! The frames are the evidence: calls may be open at the same time, arguments stay as they were written, and an answer that
//! was cut off is not taken for a whole one. What a server may send is bounded, since it may be hostile or broken.

mod anthropic;
mod frame;
mod gemini;
mod ollama;
mod openai;
mod responses;
mod tally;

use std::time::Duration;

use serde_json::Value;
use subtend_session::ids::{CallId, Text, TurnNo};
use subtend_session::limits::MAX_CALLS_PER_ANSWER;
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Stop, ToolCall};
use subtend_session::usage::Usage;
use tokio::time::Instant;

use self::tally::Tally;
use super::fault::{self, Fault};
use super::protocol::Protocol;
use super::reasoning::Kept;
use crate::model::{Answer, Delta, Deltas};

/// Bytes of one answer on the wire at most. A long answer has some 300 bytes of framing a token.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// Bytes of text, reasoning and arguments in one answer at most.
const MAX_CONTENT: usize = 16 * 1024 * 1024;
/// Frames of one answer at most.
const MAX_FRAMES: usize = 400_000;
/// How long keep-alives count as signs of life where the answer does not grow. A model may reason for minutes without a word.
const KEEP_ALIVE: Duration = Duration::from_secs(300);

/// An answer in the making.
pub(super) struct Draft {
    protocol: Protocol,
    turn: TurnNo,
    deltas: Deltas,
    text: String,
    calls: Vec<Call>,
    kept: Reasoning,
    tally: Tally,
    stop: Option<Stop>,
    model: Option<String>,
    /// Whether the event came after which nothing follows.
    ended: bool,
    fault: Option<Fault>,
    /// Whether anything came that is a frame of this protocol.
    read: bool,
    /// Whether anything came that is no frame at all.
    garbage: bool,
    /// Whether the connection has ended.
    last: bool,
    bytes: usize,
    frames: usize,
    /// The size of the content, and since when it is so.
    content: usize,
    grown: Instant,
}

/// A call in the making.
struct Call {
    /// What the provider names it by in its stream.
    place: String,
    id: String,
    tool: String,
    args: String,
    told: bool,
}

/// Reasoning in the making, of whatever protocol.
#[derive(Default)]
struct Reasoning {
    /// Plain text.
    text: String,
    /// Blocks, by their place.
    blocks: Vec<(u64, Value)>,
    /// Encrypted items.
    encrypted: Vec<String>,
    /// The signature of the text.
    signature: Option<String>,
    /// Signatures of calls, by their place among the calls.
    of_calls: Vec<(usize, String)>,
}

impl Draft {
    pub(super) fn new(protocol: Protocol, turn: TurnNo, deltas: Deltas) -> Self {
        Self {
            protocol,
            turn,
            deltas,
            text: String::new(),
            calls: Vec::new(),
            kept: Reasoning::default(),
            tally: Tally::default(),
            stop: None,
            model: None,
            ended: false,
            fault: None,
            read: false,
            garbage: false,
            last: false,
            bytes: 0,
            frames: 0,
            content: 0,
            grown: Instant::now(),
        }
    }

    /// Counts bytes as they arrive, whatever they are, and shows that the server is alive.
    ///
    /// Keep-alives alone do so for a bounded time: after it the caller's limit of silence ends the call.
    pub(super) fn arrived(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_BYTES {
            self.fail(too_much("bytes", MAX_BYTES));
        }
        if self.grown.elapsed() < KEEP_ALIVE {
            self.deltas.alive();
        }
    }

    /// Says that the connection has ended: a frame that comes yet may be cut.
    pub(super) fn comes_to_its_end(&mut self) {
        self.last = true;
    }

    /// Takes one frame: the name of its event, if it has one, and its data.
    pub(super) fn frame(&mut self, event: Option<&str>, data: &str) {
        if self.is_over() {
            return;
        }
        self.frames = self.frames.saturating_add(1);
        if self.frames > MAX_FRAMES {
            return self.fail(too_much("frames", MAX_FRAMES));
        }
        let data = data.trim();
        match data {
            "" => self.garbage |= event.is_none(),
            "[DONE]" => self.ended = true,
            _ => match serde_json::from_str::<Value>(data) {
                Ok(frame) if frame.is_object() => self.take(&frame),
                Ok(_) => self.fail(unreadable(data)),
                Err(error) if self.last && error.is_eof() && data.starts_with('{') => self.fail(Fault::cut()),
                Err(_) if self.read => self.fail(malformed(data)),
                Err(_) => self.fail(unreadable(data)),
            },
        }
    }

    fn take(&mut self, frame: &Value) {
        self.read = true;
        if let Some(fault) = fault::of_frame(frame) {
            return self.fail(fault);
        }
        match self.protocol {
            Protocol::Anthropic => anthropic::frame(self, frame),
            Protocol::OpenAi => openai::frame(self, frame),
            Protocol::OpenAiResponses => responses::frame(self, frame),
            Protocol::Gemini => gemini::frame(self, frame),
            Protocol::Ollama => ollama::frame(self, frame),
        }
        self.weigh();
    }

    /// Notices whether the answer has grown, and bounds it.
    fn weigh(&mut self) {
        let args: usize = self.calls.iter().map(|call| call.args.len()).sum();
        let content = [self.text.len(), self.kept.text.len(), args].iter().sum();
        if content > MAX_CONTENT {
            self.fail(too_much("bytes of content", MAX_CONTENT));
        }
        if content > self.content || self.stop.is_some() {
            (self.content, self.grown) = (content, Instant::now());
        }
    }

    /// Whether nothing more is awaited.
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.fault.is_some()
    }

    /// Whether the provider said why the answer ends: what is lost after that is no part of it.
    pub(super) fn is_whole(&self) -> bool {
        self.fault.is_none() && (self.ended || self.stop.is_some())
    }

    /// What it has cost so far, where that was told.
    pub(super) fn cost(&self) -> Option<Usage> {
        self.tally.is_told().then(|| self.tally.usage())
    }

    /// The answer, or why there is none. `cap` is the cap on its tokens that was asked for.
    pub(super) fn finish(mut self, cap: Option<u64>) -> Result<Answer, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if !self.is_whole() {
            return Err(if self.garbage && !self.read {
                unreadable("")
            } else if self.bytes == 0 {
                Fault::new(ModelFail::Unavailable, "the server closed the connection without an answer")
            } else {
                Fault::cut()
            });
        }
        if self.stop.is_none() && self.text.is_empty() && self.calls.is_empty() {
            // It came to its end, and nothing in it was of this protocol.
            return Err(unreadable(""));
        }
        let stop = self.reason(cap)?;
        let usage = self.tally.usage();
        let reasoning = self.reasoning().and_then(|kept| kept.to_text());
        let calls = self.calls.into_iter().map(Call::asked).collect();
        let text = (!self.text.is_empty()).then(|| Text::from(self.text));
        Ok(Answer { text, reasoning, calls, stop, model: self.model.map(Text::from), usage })
    }

    /// Why it stopped, by all the evidence.
    fn reason(&self, cap: Option<u64>) -> Result<Stop, Fault> {
        let said = self.stop.unwrap_or(if self.text.is_empty() { Stop::Other } else { Stop::End });
        // Servers that speak this protocol call an answer complete that they cut at the cap.
        let at_cap = cap.is_some_and(|cap| self.tally.output().is_some_and(|output| output >= cap));
        Ok(match said {
            Stop::End | Stop::Calls if at_cap && self.protocol == Protocol::OpenAiResponses => Stop::Length,
            Stop::End | Stop::Other if !self.calls.is_empty() => Stop::Calls,
            Stop::Calls if self.calls.is_empty() => {
                return Err(Fault::new(ModelFail::BadAnswer, "the answer says that it calls tools, and calls none"));
            }
            Stop::End | Stop::Calls | Stop::Length | Stop::Refused | Stop::Other => said,
        })
    }

    fn reasoning(&mut self) -> Option<Kept> {
        let kept = std::mem::take(&mut self.kept);
        match self.protocol {
            Protocol::Anthropic => {
                let blocks = kept.blocks.into_iter().map(|(_, block)| block).filter(anthropic::is_signed).collect();
                Some(Kept::Anthropic { blocks })
            }
            Protocol::OpenAi => Some(Kept::OpenAi { text: kept.text }),
            Protocol::OpenAiResponses => Some(Kept::OpenAiResponses { encrypted: kept.encrypted }),
            Protocol::Gemini => {
                let of = |ix: usize| kept.of_calls.iter().find(|(at, _)| *at == ix).map(|(_, sign)| sign.clone());
                Some(Kept::Gemini { text: kept.signature, calls: (0..self.calls.len()).map(of).collect() })
            }
            Protocol::Ollama => None,
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    fn say(&mut self, text: &str) {
        if !text.is_empty() {
            self.text.push_str(text);
            self.deltas.send(Delta::Text(text.into()));
        }
    }

    fn think(&mut self, text: &str) {
        if !text.is_empty() {
            self.kept.text.push_str(text);
            self.deltas.send(Delta::Reasoning(text.into()));
        }
    }

    fn model(&mut self, name: Option<&str>) {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            self.model = Some(name.chars().take(200).collect());
        }
    }

    /// The newest call at `place`.
    fn call(&mut self, place: &str) -> Option<&mut Call> {
        self.calls.iter_mut().rev().find(|call| call.place == place)
    }

    /// Opens a call and gives its place among the calls.
    fn open(&mut self, place: String, id: &str, tool: &str) -> usize {
        let ix = self.calls.len();
        if ix >= MAX_CALLS_PER_ANSWER as usize {
            // Nothing is taken from here on, so that the place that is given is of no matter.
            let text =
                format!("the answer asks for more than {MAX_CALLS_PER_ANSWER} calls, the most that one may hold");
            self.fail(Fault::new(ModelFail::BadAnswer, text));
            return ix;
        }
        self.calls.push(Call { place, id: id.into(), tool: tool.into(), args: String::new(), told: false });
        self.tell();
        ix
    }

    /// Tells of each call once, as soon as its tool is known.
    fn tell(&mut self) {
        for (call, ix) in self.calls.iter_mut().zip(0_u32..) {
            if !call.told && !call.tool.is_empty() {
                call.told = true;
                let id = CallId { turn: self.turn, ix };
                self.deltas.send(Delta::Call { call: id, tool: call.tool.as_str().into() });
            }
        }
    }
}

impl Call {
    /// As the model wrote it: arguments that do not parse stay as they are. A call without arguments has an empty object.
    fn asked(self) -> ToolCall {
        let args = if self.args.trim().is_empty() { "{}".into() } else { Text::from(self.args) };
        ToolCall { provider_id: self.id.into(), tool: self.tool.into(), args }
    }
}

fn too_much(of: &str, limit: usize) -> Fault {
    Fault::new(ModelFail::BadAnswer, format!("the answer has more than {limit} {of}"))
}

fn malformed(data: &str) -> Fault {
    let start: String = data.chars().take(80).collect();
    Fault::new(ModelFail::BadAnswer, format!("a frame of the answer is malformed: `{start}`"))
}

fn unreadable(data: &str) -> Fault {
    let start: String = data.chars().take(80).collect();
    let shown = if start.is_empty() || start.starts_with('<') { String::new() } else { format!(" (`{start}`)") };
    Fault::new(
        ModelFail::BadAnswer,
        format!("the answer is no stream of this protocol{shown}; does the server speak it?"),
    )
}

#[cfg(test)]
mod tests;
