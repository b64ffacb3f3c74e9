//! Lookup of agents by name, with the reason if a name cannot be used.

use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::Manifest;
use subtend_session::near::unknown_agent;

use super::super::fail::Fail;
use super::super::paint::on_one_line;

pub(super) fn find_agent<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Manifest, Fail> {
    catalog.get(name).map(|manifest| &**manifest).ok_or_else(|| Fail::Usage(unusable_reason(catalog, name)))
}

/// Returns why a name cannot be used: the agent's file is refused, or no agent has that name.
pub(super) fn unusable_reason(catalog: &Catalog, name: &str) -> String {
    let refusal = catalog.refusal(name);
    // The keys of a file and its path could forge a message.
    on_one_line(&refusal.unwrap_or_else(|| unknown_agent(name, catalog.all().map(|manifest| &*manifest.name))))
}
