//! The view of agents, with problems of their files.

use askama::Template;
use axum::extract::State;
use axum::response::Html;

use super::{PageFrame, Refusal, html};
use crate::host::Host;

struct Agent {
    name: String,
    mode: &'static str,
    description: String,
    model: String,
    tools: String,
}

struct AgentFileProblem {
    path: String,
    text: String,
}

#[derive(Template)]
#[template(path = "agents.html")]
struct AgentsPage {
    frame: PageFrame,
    troubles: Vec<AgentFileProblem>,
    agents: Vec<Agent>,
}

pub(super) async fn page(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    let catalog = host.runtime().catalog();
    let agent = |of: &std::sync::Arc<subtend_agents::manifest::Manifest>| Agent {
        name: of.name.to_string(),
        mode: of.mode.as_str(),
        description: of.description.to_string(),
        model: of.model.as_ref().map(ToString::to_string).unwrap_or_default(),
        tools: match &of.tools {
            None => "all that its permissions allow".to_owned(),
            Some(tools) => tools.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        },
    };
    let agents = catalog.all().filter(|agent| !agent.hidden).map(agent).collect();
    let trouble = |of: &subtend_agents::catalog::AgentProblem| AgentFileProblem {
        path: of.path.display().to_string(),
        text: of.message.clone(),
    };
    let troubles = catalog.problems().iter().map(trouble).collect();
    html(&AgentsPage { frame: PageFrame::new(&host, "Agents", "agents").await, troubles, agents })
}
