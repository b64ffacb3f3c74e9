//! The agent and model that answer in a session.

use subtend_session::ids::Text;
use subtend_session::state::State;

pub(crate) fn agent_of(state: &State) -> &Text {
    state.agent.as_ref().map_or(&state.created.agent, |other| &other.agent)
}

/// Returns the model of the agent that answers in the session.
pub(crate) fn model_of(state: &State) -> &Text {
    state.agent.as_ref().map_or(&state.created.model, |other| &other.model)
}

pub(crate) fn pool_name(name: &str) -> Text {
    format!("pool:{name}").into()
}
