//! ToolSets and birth templates, made once for each distinct kind of session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use subtend_session::authority::Authority;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{Hash, SessionId, Text};
use subtend_session::place::Source;
use subtend_session::record::SessionCreated;

use super::tool_set::ToolSet;

#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) agent: Text,
    pub(crate) ceiling: Hash,
    /// What an import left of it.
    pub(crate) imported: Option<Authority>,
    pub(crate) only: Option<Vec<Text>>,
    pub(crate) attended: bool,
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) nested: bool,
    pub(crate) returns: bool,
    pub(crate) in_full: Option<Vec<Text>>,
    pub(crate) source: Source,
    /// The session's model, where it may propose that its plan be carried out.
    pub(crate) plans: Option<Text>,
    /// Agents of the sessions above.
    pub(crate) above: Arc<[Text]>,
}

/// ToolSets and birth templates, made once per distinct kind of session.
#[derive(Default)]
pub(crate) struct ToolSets {
    pub(crate) made: Mutex<HashMap<Key, Arc<ToolSet>>>,
    pub(crate) births: Births,
    pub(crate) lines: Lines,
}

/// Agents of the sessions from a parent up, sorted: the same for all its children, for life.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) Mutex<HashMap<SessionId, Arc<[Text]>>>);

/// Templates, made once for each agent, model and source of calls, with and without an approver.
pub(crate) type Births = Mutex<HashMap<(Text, Text, Source, bool), Arc<Template>>>;

/// What all children of one agent have in common.
pub(crate) struct Template {
    /// Birth record but for what `decide` settles.
    pub(crate) created: SessionCreated,
    /// The manifest's own authority.
    pub(crate) manifest: Arc<Authority>,
    /// Turn allowance.
    pub(crate) turns: u32,
    /// Turn allowance, where the manifest itself says one.
    pub(crate) own_turns: Option<u32>,
    /// Whether nobody owns its runs.
    pub(crate) detached: bool,
}
