//! Profiles, as prompts and calls name them.

use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::profile::{Profile, Profiles};
use subtend_agents::prompt::Named;
use subtend_session::authority::Authority;
use subtend_session::ids::Text;
use subtend_tools::registry::Registry;

use crate::spawn::offer::{narrowed, whitelist};

/// The session that may name profiles.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The agent that answers in it.
    pub agent: &'a Text,
    /// What it may do.
    pub authority: &'a Authority,
    /// The tools that it is offered at most.
    pub only: Option<&'a Vec<Text>>,
    /// Whether an approver is attached.
    pub attended: bool,
}

/// Returns the profiles as `caller` is told of them, each with the tools that a job by it has (S5).
pub fn named(profiles: &Profiles, catalog: &Catalog, tools: &Registry, caller: Caller<'_>) -> Vec<Named> {
    let one = |profile: &Arc<Profile>| Named {
        name: Arc::clone(&profile.name),
        about: profile.about(),
        tools: of_job(profile, catalog, tools, caller),
    };
    profiles.all().map(one).collect()
}

fn of_job(profile: &Profile, catalog: &Catalog, tools: &Registry, caller: Caller<'_>) -> Vec<Text> {
    let agent = profile.agent.as_ref().unwrap_or(caller.agent);
    let Some(manifest) = catalog.get(agent) else { return Vec::new() };
    let listed = Some(&profile.tools).filter(|tools| !tools.is_empty());
    let only = narrowed(whitelist(listed, caller.only).as_ref(), manifest.tools.as_ref());
    let authority = caller.authority.meet(&manifest.authority());
    let offered = tools.offered(&authority, only.as_deref(), caller.attended);
    offered.into_iter().map(|spec| spec.name).collect()
}
