//! The model trait: one call in, one answer out, deltas on the way.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use subtend_session::ids::{AttemptNo, CallId, SessionId, Text, TurnNo};
use subtend_session::message::{ToolSpec, Transcript};
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Prompt, Stop, ToolCall};
use subtend_session::settings::Settings;
use subtend_session::usage::Usage;

/// Something that answers a transcript.
///
/// # Cancel safety
/// The future of [`Model::call`] may be dropped at any point; it must stop what it started (close the stream) when it is.
pub trait Model: Send + Sync + 'static {
    /// The name that journals and listings show.
    fn name(&self) -> &str;

    /// Whether a call leaves the process: if so it waits until the record that intends it is durable (J-5).
    fn leaves_process(&self) -> bool {
        true
    }

    /// What its calls are counted under, from the narrowest to the widest: the model, then its provider. Calls of all models
    /// of a runtime that share a name share its concurrency and its rates. A model that calls nobody has none.
    fn quotas(&self) -> &[Text] {
        &[]
    }

    /// Tokens of context, where known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Answers `request`, reporting progress to `deltas`.
    ///
    /// # Errors
    /// By what the caller can do about it; retries are the caller's.
    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>>;
}

/// A model, or a shared one.
pub trait IntoModel {
    /// Converts it into a shared model.
    fn into_model(self) -> Arc<dyn Model>;
}

impl<M: Model> IntoModel for M {
    fn into_model(self) -> Arc<dyn Model> {
        Arc::new(self)
    }
}

impl<M: Model> IntoModel for Arc<M> {
    fn into_model(self) -> Arc<dyn Model> {
        self
    }
}

impl IntoModel for Arc<dyn Model> {
    fn into_model(self) -> Arc<dyn Model> {
        self
    }
}

/// One model call.
#[derive(Clone, Debug)]
pub struct Request {
    /// The session, for fakes and for provider-side caching keys.
    pub session: SessionId,
    /// The agent's name.
    pub agent: Text,
    /// The model, as named by the manifest or the host.
    pub model: Text,
    /// The turn.
    pub turn: TurnNo,
    /// The attempt within it, from 1.
    pub attempt: AttemptNo,
    /// The system prompt.
    pub system: Text,
    /// The transcript. Dropped before the answer is reported, so that the session can go on without copying it.
    pub messages: Transcript,
    /// What is put to the model besides the transcript.
    pub prompt: Prompt,
    /// The tools that are offered.
    pub tools: Arc<[ToolSpec]>,
    /// How to answer.
    pub settings: Settings,
    /// JSON schema that the answer is asked to keep, as JSON text.
    pub format: Option<Text>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The text, if there is any.
    pub text: Option<Text>,
    /// Reasoning that the provider wants back.
    pub reasoning: Option<Text>,
    /// The calls that it asks for, in order.
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// The model that answered, by the provider's own name, where it told one.
    pub model: Option<Text>,
    /// What it cost.
    pub usage: Usage,
}

impl Answer {
    /// A final answer of text alone.
    pub fn of_text(text: impl Into<Text>) -> Self {
        Self {
            text: Some(text.into()),
            reasoning: None,
            calls: Vec::new(),
            stop: Stop::End,
            model: None,
            usage: Usage::default(),
        }
    }

    /// An answer that asks for calls.
    pub fn of_calls(text: Option<Text>, calls: Vec<ToolCall>) -> Self {
        Self { text, reasoning: None, calls, stop: Stop::Calls, model: None, usage: Usage::default() }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// By what the caller can do about it.
    pub kind: ModelFail,
    /// What went wrong, for a person: bounded and free of secrets.
    pub message: String,
    /// When to ask again, if the provider said so.
    pub retry_after_ms: Option<u64>,
    /// What it cost all the same.
    pub usage: Option<Usage>,
}

impl ModelError {
    /// An error that cost nothing.
    pub fn new(kind: ModelFail, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, usage: None }
    }
}

/// A piece of an answer, on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Text.
    Text(Text),
    /// Reasoning.
    Reasoning(Text),
    /// A call begins to take shape.
    Call {
        /// Which.
        call: CallId,
        /// The tool's name.
        tool: Text,
    },
}

/// A sign of life of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A piece of the answer.
    Delta(Delta),
    /// Something arrived that is no piece of the answer: a keep-alive, a fragment of a call's arguments.
    Alive,
}

/// Takes the deltas of one call. Cheap to clone; each delta also shows that the model is not stalled.
#[derive(Clone)]
pub struct Deltas(Option<Arc<dyn Fn(Sign) + Send + Sync>>);

impl Deltas {
    /// Nobody listens.
    pub fn none() -> Self {
        Self(None)
    }

    /// Calls `sink` for each delta. It must not block.
    pub fn to(sink: impl Fn(Delta) + Send + Sync + 'static) -> Self {
        Self::watched(move |sign| match sign {
            Sign::Delta(delta) => sink(delta),
            Sign::Alive => {}
        })
    }

    /// Calls `sink` for each sign of life. It must not block.
    pub fn watched(sink: impl Fn(Sign) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Whether anybody listens: if not, deltas need not be made.
    pub fn heard(&self) -> bool {
        self.0.is_some()
    }

    /// Reports one delta.
    pub fn send(&self, delta: Delta) {
        if let Some(sink) = &self.0 {
            sink(Sign::Delta(delta));
        }
    }

    /// Shows that the model is at work, where there is nothing to report.
    pub fn alive(&self) {
        if let Some(sink) = &self.0 {
            sink(Sign::Alive);
        }
    }
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deltas").field(&self.0.is_some()).finish()
    }
}
