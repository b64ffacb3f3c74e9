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
}

/// The context of the turn at hand.
///
/// The caller drops it before the answer is decided, so that the next message is pushed in place.
pub fn context(state: &State) -> Context {
    let prompt = state.run.as_ref().and_then(|run| run.turn.as_ref()).map_or(Prompt::Plain, |turn| turn.prompt);
    let system = state.created.system.body.clone().unwrap_or_else(|| "".into());
    Context { system, messages: state.transcript.clone(), prompt }
}
