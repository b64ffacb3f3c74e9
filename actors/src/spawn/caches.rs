//! Caches of tool sets and templates, one for each distinct kind of session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use foldhash::fast::FixedState;
use subtend_agents::skill::Skill;
use subtend_session::authority::Authority;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{Hash, SessionId, Text};
use subtend_session::place::{Isolation, OnRestart, Source};
use subtend_session::record::SessionCreated;

use super::tool_set::ToolSet;

#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ToolSetKey {
    /// Changes when tools are added or removed.
    pub(crate) generation: u64,
    pub(crate) agent: Text,
    pub(crate) ceiling: Hash,
    pub(crate) imported: Option<Authority>,
    pub(crate) only: Option<Vec<Text>>,
    pub(crate) attended: bool,
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) nested: bool,
    pub(crate) returns: bool,
    pub(crate) in_full: Option<Vec<Text>>,
    pub(crate) source: Source,
    /// The session's model, if it may propose a plan.
    pub(crate) plans: Option<Text>,
    pub(crate) above: Arc<[Text]>,
}

/// Tool sets and templates, one for each distinct kind of session.
#[derive(Default)]
pub(crate) struct ToolSets {
    pub(crate) tool_sets: Mutex<HashMap<ToolSetKey, Arc<ToolSet>>>,
    pub(crate) templates: Templates,
    pub(crate) ancestors: AncestorAgents,
}

/// A cache of the agents of a parent and its ancestors, sorted. They are the same for all its children.
#[derive(Default)]
pub(crate) struct AncestorAgents(pub(crate) Mutex<HashMap<SessionId, Arc<[Text]>, FixedState>>);

/// Templates by agent, model and source of calls, with and without an approver.
pub(crate) type Templates = Mutex<HashMap<(Text, Text, Source, bool), Arc<Template>>>;

/// The common parts of all children of one agent.
pub(crate) struct Template {
    /// The first record without the fields that `decide` sets.
    pub(crate) created: SessionCreated,
    pub(crate) manifest: Arc<Authority>,
    pub(crate) turns: u32,
    /// The turn limit that the manifest itself sets.
    pub(crate) own_turns: Option<u32>,
    pub(crate) detached: bool,
    pub(crate) isolation: Isolation,
    /// The manifest's choice, if it has one.
    pub(crate) on_restart: Option<OnRestart>,
    /// Instruction files of the workspace in the prompt.
    pub(crate) read: Vec<Text>,
    /// Skills that the prompt lists, and those whose texts it has.
    pub(crate) skills: [Vec<Arc<Skill>>; 2],
}
