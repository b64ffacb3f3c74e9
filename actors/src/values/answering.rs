//! Which agent and which model answer in a session.

use subtend_session::ids::Text;
use subtend_session::state::State;

/// The agent that answers in a session now.
pub(crate) fn agent_of(state: &State) -> &Text {
    state.agent.as_ref().map_or(&state.created.agent, |other| &other.agent)
}

/// The model that a session asks, as the agent that answers in it names it.
pub(crate) fn model_of(state: &State) -> &Text {
    state.agent.as_ref().map_or(&state.created.model, |other| &other.model)
}

/// The name of the pool `name` where models are named.
pub(crate) fn pool_name(name: &str) -> Text {
    format!("pool:{name}").into()
}
