//! Profiles and templates for prompts and calls, and the tools of a dialect.

use std::sync::Arc;

use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::profile::{Profile, Profiles};
use subtend_agents::prompt::ListedProfile;
use subtend_agents::template::MinionTemplate;
use subtend_session::authority::Authority;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_tools::dialect::{Offered, OfferedProfile, OfferedTemplate, discovery, minion};
use subtend_tools::registry::Registry;

use crate::spawn::tool_set::{intersect_lists, whitelist};

/// The session that may name profiles.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub agent: &'a Text,
    pub authority: &'a Authority,
    /// The tools that the session may be offered; `None` for all.
    pub only: Option<&'a Vec<Text>>,
    pub attended: bool,
}

/// Returns the profiles for `caller`, each with the tools of its jobs.
pub fn named(profiles: &Profiles, catalog: &Catalog, tools: &Registry, caller: Caller<'_>) -> Vec<ListedProfile> {
    let one = |profile: &Arc<Profile>| ListedProfile {
        name: Arc::clone(&profile.name),
        about: profile.about_under(caller.authority),
        tools: of_job(profile, catalog, tools, caller),
    };
    profiles.all().map(one).collect()
}

fn of_job(profile: &Profile, catalog: &Catalog, tools: &Registry, caller: Caller<'_>) -> Vec<Text> {
    let agent = profile.agent.as_ref().unwrap_or(caller.agent);
    let Some(manifest) = catalog.get(agent) else { return Vec::new() };
    let listed = Some(&profile.tools).filter(|tools| !tools.is_empty());
    let only = intersect_lists(whitelist(listed, caller.only).as_ref(), manifest.tools.as_ref());
    let authority = caller.authority.meet(&manifest.authority());
    let offered = tools.offered(&authority, only.as_deref(), caller.attended);
    offered.into_iter().map(|spec| spec.name).collect()
}

/// Returns the tools that a dialect offers to models, which list all startable agents, profiles and templates, and the
/// tools that it adds for children.
pub fn tools_of(dialect: Dialect, catalog: &Catalog, dialects: &Dialects) -> (Vec<ToolSpec>, Vec<ToolSpec>) {
    let shown: Vec<(Text, Text)> =
        catalog.spawnable().map(|agent| (Arc::clone(&agent.name), Arc::clone(&agent.description))).collect();
    let offered = Offered {
        dialects: vec![dialect],
        agents: shown.clone(),
        shown,
        profiles: offered(dialects, &Authority::allow_all()),
        templates: offered_templates(dialects),
        ..Offered::default()
    };
    let of_child = match dialect {
        Dialect::Minion => vec![minion::return_spec()],
        Dialect::Subagent => discovery::specs().to_vec(),
        Dialect::Task | Dialect::Spawn | Dialect::SpawnTask => Vec::new(),
    };
    (offered.specs(true), of_child)
}

/// Returns the profiles for calls of a session with that authority.
pub(crate) fn offered(dialects: &Dialects, authority: &Authority) -> Vec<OfferedProfile> {
    let offered = |profile: &Arc<Profile>| OfferedProfile {
        name: Arc::clone(&profile.name),
        description: profile.about_under(authority).into(),
        agent: profile.agent.clone(),
        tools: profile.tools.clone(),
    };
    dialects.profiles.all().map(offered).collect()
}

pub(crate) fn offered_templates(dialects: &Dialects) -> Vec<OfferedTemplate> {
    let offered = |(name, template): (&Text, &MinionTemplate)| OfferedTemplate {
        name: Arc::clone(name),
        description: Arc::clone(&template.description),
        message: template.message.clone(),
        system_prompt: template.system_prompt.clone(),
        tools: template.enabled_tools.clone(),
        web: template.enable_web,
    };
    dialects.templates.iter().map(offered).collect()
}
