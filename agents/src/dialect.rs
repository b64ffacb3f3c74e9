//! Dialects: families of tools with which a model starts children, and the choice of dialects for a session.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;

use crate::catalog::Catalog;
use crate::manifest::Manifest;
use crate::profile::{Profiles, none_if_empty};
use crate::template::MinionTemplate;

/// Returns the lines of a system prompt that explain when to use the dialect.
pub fn hint(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Task => {
            "- Work that needs much reading for a short conclusion, or independent parts that can run in parallel: \
             hand each to an agent with `task`."
        }
        Dialect::Spawn => {
            "- Several long pieces of work at the same time: start each with `spawn`, continue meanwhile, and collect \
             them with `spawn_await`."
        }
        Dialect::SpawnTask => {
            "- Code to explore, documentation to look up, a change to plan: `spawn_task`, then `check_task` when you \
             need the result; `cancel_task` when you no longer do. Independent questions: one task each, then check \
             them all."
        }
        Dialect::Minion => {
            "- A step whose details you do not need in front of you: give it to a `minion` with only the tools that it \
             needs, and take its result."
        }
        Dialect::Subagent => {
            "- A separable job that an agent can finish alone: `subagent`. One that ran out of turns continues with its \
             `continueBranchId`."
        }
    }
}

/// Returns the part of a child's system prompt that explains how the child was started. With `discovers`, the text says how to
/// find further tools; with `only_reads`, it forbids changes.
pub fn instructions(dialect: Dialect, discovers: bool, only_reads: bool) -> Option<String> {
    const DISCOVERY: &str = include_str!("dialect/discovery.md");
    const ONLY_READS: &str = "- You only read. Do not create, change or delete anything.\n";
    match dialect {
        Dialect::Subagent => {
            let text = if discovers { DISCOVERY } else { "" };
            Some(include_str!("dialect/subagent.md").replace("{discovery}\n", text))
        }
        Dialect::SpawnTask => {
            let text = if only_reads { ONLY_READS } else { "" };
            Some(include_str!("dialect/spawn_task.md").replace("{only_reads}\n", text))
        }
        Dialect::Task | Dialect::Spawn | Dialect::Minion => None,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// True if models may start children. Otherwise only existing results can be read.
    pub enabled: bool,
    /// The offered dialects, in the order of [`Dialect::ALL`].
    pub offered: Vec<Dialect>,
    pub profiles: Profiles,
    pub minion: MinionOptions,
    pub templates: BTreeMap<Text, MinionTemplate>,
    pub subagent: SubagentOptions,
}

impl Default for Dialects {
    fn default() -> Self {
        Self {
            enabled: true,
            offered: vec![Dialect::Task],
            profiles: Profiles::default(),
            minion: MinionOptions::default(),
            templates: BTreeMap::new(),
            subagent: SubagentOptions::default(),
        }
    }
}

impl Dialects {
    /// Returns the dialects that may be offered. Where children are disabled, the list is empty.
    pub fn offered(&self) -> &[Dialect] {
        if self.enabled { &self.offered } else { &[] }
    }

    /// Returns the dialects that a session of `manifest` is offered under `authority`. If the manifest lists tools, it
    /// must list the dialect. The session must be allowed to start at least one agent. If an approver is attached
    /// (`attended`), that may require an approval.
    pub fn offered_to(
        &self,
        manifest: &Manifest,
        authority: &Authority,
        catalog: &Catalog,
        attended: bool,
    ) -> Vec<Dialect> {
        let verdict =
            |agent: &Text| authority.verdict(&Access { action: format!("task:{agent}").into(), resource: ".".into() });
        let is_permitted = |verdict: Verdict| verdict == Verdict::Allow || (verdict == Verdict::Ask && attended);
        let can_nest = catalog.spawnable().any(|agent| is_permitted(verdict(&agent.name)));
        let any = catalog.spawnable().any(|agent| verdict(&agent.name) > Verdict::Deny);
        let can_start = any || verdict(&manifest.name) > Verdict::Deny;
        let is_listed = |dialect: &Dialect| {
            manifest.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| &**tool == dialect.name()))
        };
        let usable =
            |dialect: &Dialect| is_listed(dialect) && if dialect.allows_nesting() { can_nest } else { can_start };
        self.offered().iter().copied().filter(usable).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r8_no_dialect_is_offered_when_children_are_disabled() {
        let dialects = Dialects { enabled: false, offered: Dialect::ALL.to_vec(), ..Dialects::default() };
        assert_eq!(dialects.offered(), []);
        let on = Dialects { enabled: true, ..dialects };
        assert_eq!(on.offered(), Dialect::ALL);
    }

    #[test]
    fn k25_only_task_is_offered_by_default() {
        assert_eq!(Dialects::default().offered(), [Dialect::Task]);
    }

    #[test]
    fn session_without_startable_agents_is_offered_no_dialect() {
        let catalog = Catalog::builtin();
        let dialects = Dialects { offered: Dialect::ALL.to_vec(), ..Dialects::default() };
        let offered = |manifest: &Manifest| dialects.offered_to(manifest, &manifest.authority(), &catalog, false);
        let builtin = |name: &str| Manifest::clone(catalog.get(name).unwrap());
        assert_eq!(offered(&builtin("general")), Dialect::ALL);
        assert_eq!(offered(&builtin("explore")), []);
        let listing = Manifest { tools: Some(vec!["read".into(), "spawn".into()]), ..builtin("plan") };
        assert_eq!(offered(&listing), [Dialect::Spawn]);
    }
}

/// Options of the `minion` tool. The fields have the names of the configuration keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MinionOptions {
    /// The system prompt of minions. If it is empty, minions have the system prompt of the caller's agent.
    pub system_prompt: Text,
    /// The model of minions; by default that of the caller. `config set` fills it in from the session's model when it
    /// first enables `minion`.
    #[serde(deserialize_with = "none_if_empty")]
    pub model: Option<Text>,
    /// True if later runs do not see the messages of a run that did not complete. Files that the run changed are not
    /// restored.
    pub rollback_on_error: bool,
}

/// Options of the `subagent` tool. The fields have the names of the configuration keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubagentOptions {
    /// The number of tools whose descriptions a subagent sees. A subagent with more tools sees only those that its call
    /// names, and finds the others by `get_tools` and `use_tool`.
    pub tools_in_full: u32,
}

impl Default for SubagentOptions {
    fn default() -> Self {
        Self { tools_in_full: 16 }
    }
}
