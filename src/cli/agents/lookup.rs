//! Lookup of agents by name, with the reason if a name cannot be used.

use subtend_agents::catalog::{AgentProblem, Catalog, ProblemKind};
use subtend_agents::manifest::Manifest;
use subtend_session::near::unknown_agent;

use super::super::fail::Fail;
use super::super::paint::harmless;

pub(super) fn agent<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Manifest, Fail> {
    catalog.get(name).map(|manifest| &**manifest).ok_or_else(|| Fail::Usage(why_not(catalog, name)))
}

pub(crate) fn refusal(catalog: &Catalog, name: &str) -> Option<String> {
    let is_refused = |problem: &&AgentProblem| {
        problem.kind == ProblemKind::Refused && problem.path.file_stem().is_some_and(|stem| stem == name)
    };
    let problem = catalog.problems().iter().find(is_refused).filter(|_| catalog.get(name).is_none())?;
    let (path, why) = (problem.path.display().to_string(), &problem.message);
    Some(format!("the agent `{}` is refused: {}: {}", harmless(name), harmless(&path), harmless(why)))
}

/// Returns why a name cannot be used: the agent's file is refused, or no agent has that name.
pub(super) fn why_not(catalog: &Catalog, name: &str) -> String {
    refusal(catalog, name)
        .unwrap_or_else(|| unknown_agent(&harmless(name), catalog.all().map(|manifest| &*manifest.name)))
}
