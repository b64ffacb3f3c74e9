//! What a model call is given.

use crate::ids::Text;
use crate::message::Transcript;
use crate::record::Prompt;
use crate::state::State;

/// What a model call is given, besides its tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The resolved system prompt.
    pub system: Text,
    /// The transcript, shared: it ends with the text of the prompt, if there is one.
    pub messages: Transcript,
    /// Which word of ours the transcript ends with; for models that act on it.
    pub prompt: Prompt,
    /// The model to call, by the session's name for it or by a fallback's own.
    pub model: Text,
    /// JSON schema that the answer is asked to keep, as JSON text.
    pub format: Option<Text>,
}

/// The context of the turn at hand.
///
/// The caller drops it before the answer is decided, so that the next message is pushed in place.
pub fn context(state: &State) -> Context {
    let run = state.run.as_ref();
    let turn = run.and_then(|run| run.turn.as_ref());
    let prompt = turn.map_or(Prompt::Plain, |turn| turn.prompt);
    let model = turn.map_or_else(|| state.created.model.clone(), |turn| turn.model.clone());
    let format = run.and_then(|run| run.format.clone());
    let system = state.created.system.body.clone().unwrap_or_else(|| "".into());
    Context { system, messages: state.transcript.clone(), prompt, model, format }
}
