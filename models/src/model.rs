//! The model trait. A call gives one answer, and reports parts of the answer as they arrive.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use subtend_session::ids::{AttemptNo, CallId, SessionId, Text, TurnNo};
use subtend_session::message::{ToolSpec, Transcript};
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Prompt, Stop, ToolCall};
use subtend_session::settings::Settings;
use subtend_session::usage::Usage;

/// A language model, or a substitute.
/// # Cancel safety
/// The future of [`Model::call`] may be dropped at any point. The drop must stop everything that the call started, such as a stream.
pub trait Model: Send + Sync + 'static {
    fn name(&self) -> &str;

    /// Returns whether a call leaves the process. Such a call waits until its intent record is durable.
    fn leaves_process(&self) -> bool {
        true
    }

    /// Returns the quotas of the model's calls, narrowest first: usually the model, then its provider. All calls of a runtime under one quota
    /// share its concurrency and rates. A local model returns an empty list.
    fn quotas(&self) -> &[Text] {
        &[]
    }

    /// Returns the size of the context window in tokens, if known.
    fn context_window(&self) -> Option<u64> {
        None
    }

    /// Returns the reason why no call can succeed, if one is known. A session cannot be opened with such a model.
    fn unusable(&self) -> Option<&str> {
        None
    }

    /// Answers `request`, and reports progress to `deltas`. The kind of an error decides whether the caller retries.
    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>>;
}

/// A model, by value or shared.
pub trait IntoModel {
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

#[derive(Clone, Debug)]
pub struct Request {
    /// The session of the call. Test models and the cache keys of providers use it.
    pub session: SessionId,
    pub agent: Text,
    /// The model's name in the manifest or the host's configuration.
    pub model: Text,
    pub turn: TurnNo,
    /// The attempt within the turn, from 1.
    pub attempt: AttemptNo,
    pub system: Text,
    /// The transcript. Drop it before returning the answer, so that the session can change it without a copy.
    pub messages: Transcript,
    /// A prompt that the runtime adds after the transcript, such as a request to continue.
    pub prompt: Prompt,
    pub tools: Arc<[ToolSpec]>,
    pub settings: Settings,
    /// JSON schema of the answer, as JSON text.
    pub format: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub text: Option<Text>,
    /// Reasoning to send back to the provider in later calls.
    pub reasoning: Option<Text>,
    /// The requested tool calls, in order.
    pub calls: Vec<ToolCall>,
    pub stop: Stop,
    /// The name at the provider of the model that answered, if reported.
    pub model: Option<Text>,
    pub usage: Usage,
}

impl Answer {
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

    pub fn of_calls(text: Option<Text>, calls: Vec<ToolCall>) -> Self {
        Self { text, reasoning: None, calls, stop: Stop::Calls, model: None, usage: Usage::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    pub kind: ModelFail,
    pub message: String,
    pub retry_after_ms: Option<u64>,
    pub usage: Option<Usage>,
}

impl ModelError {
    /// Returns an error without usage.
    pub fn new(kind: ModelFail, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, usage: None }
    }
}

/// A part of an answer while it streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    Text(Text),
    Reasoning(Text),
    /// The start of a tool call.
    Call {
        call: CallId,
        tool: Text,
    },
}

/// Progress of a call: a part of the answer, or other data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamProgress {
    Delta(Delta),
    /// Other data arrived: a keep-alive, or a fragment of arguments.
    Alive,
}

/// The receiver of the deltas of one call. Cheap to clone. Each delta also shows that the model is not stalled.
#[derive(Clone)]
pub struct Deltas(Option<Arc<dyn Fn(StreamProgress) + Send + Sync>>);

impl Deltas {
    /// Returns a receiver that ignores all deltas.
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns a receiver that calls `sink` for each delta. `sink` must not block.
    pub fn to(sink: impl Fn(Delta) + Send + Sync + 'static) -> Self {
        Self::with_progress(move |sign| match sign {
            StreamProgress::Delta(delta) => sink(delta),
            StreamProgress::Alive => {}
        })
    }

    /// Returns a receiver that calls `sink` for each [`StreamProgress`]. `sink` must not block.
    pub fn with_progress(sink: impl Fn(StreamProgress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(sink)))
    }

    /// Returns whether deltas are received. If not, they need not be created.
    pub fn has_receiver(&self) -> bool {
        self.0.is_some()
    }

    pub fn send(&self, delta: Delta) {
        if let Some(sink) = &self.0 {
            sink(StreamProgress::Delta(delta));
        }
    }

    /// Reports that the model is active, without a delta.
    pub fn keep_alive(&self) {
        if let Some(sink) = &self.0 {
            sink(StreamProgress::Alive);
        }
    }
}

impl fmt::Debug for Deltas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Deltas").field(&self.0.is_some()).finish()
    }
}
