//! Caches of tool sets and templates, one for each distinct kind of session.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use foldhash::fast::FixedState;
use subtend_agents::skill::Skill;
use subtend_session::authority::Authority;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{self, SessionId, Text};
use subtend_session::place::{Isolation, OnRestart, Source};
use subtend_session::record::SessionCreated;

use super::tool_set::ToolSet;

#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ToolSetKey {
    /// Changes when tools are added or removed.
    pub(crate) generation: u64,
    pub(crate) agent: Text,
    pub(crate) ceiling: ids::Hash,
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

/// Bytes of a name in a list, besides its text.
const SIZE_OF_NAME: usize = 32;

impl ToolSetKey {
    /// Returns the bytes of what clients and agent files choose. The tool set has a copy of the list of tools.
    pub(crate) fn bytes(&self) -> usize {
        let names = self.only.iter().flatten().map(|name| name.len().saturating_add(SIZE_OF_NAME));
        let imported = self.imported.as_ref().map_or(0, Authority::bytes);
        names.fold(0, usize::saturating_add).saturating_mul(2).saturating_add(imported)
    }
}

/// Maximum number of entries of a cache. Clients choose permissions and models, so there may be one for each session.
const MAX_ENTRIES: usize = 256;
/// Maximum bytes of permissions or prompts in a cache.
const MAX_BYTES: usize = 4 << 20;

/// A cache of bounded size. Sessions hold the entries that they use, so it may forget all of them.
pub(crate) struct BoundedCache<K, V> {
    /// The entries with their bytes.
    entries: HashMap<K, (Arc<V>, usize)>,
    bytes: usize,
}

impl<K, V> Default for BoundedCache<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), bytes: 0 }
    }
}

impl<K: Eq + Hash, V> BoundedCache<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&Arc<V>> {
        self.entries.get(key).map(|(value, _)| value)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
        self.bytes = self.entries.values().map(|(_, bytes)| bytes).sum();
    }

    /// Adds an entry with this number of bytes. Forgets all others if they would be too many, and does not keep a larger
    /// entry than the cache may have in all.
    pub(crate) fn insert(&mut self, key: K, value: &Arc<V>, bytes: usize) {
        if self.entries.len() >= MAX_ENTRIES || self.bytes.saturating_add(bytes) > MAX_BYTES {
            *self = Self::default();
        }
        if bytes <= MAX_BYTES {
            self.bytes = self.bytes.saturating_add(bytes);
            self.entries.insert(key, (Arc::clone(value), bytes));
        }
    }
}

/// Tool sets and templates, one for each distinct kind of session.
#[derive(Default)]
pub(crate) struct ToolSets {
    pub(crate) tool_sets: Mutex<BoundedCache<ToolSetKey, ToolSet>>,
    pub(crate) templates: Templates,
    pub(crate) ancestors: AncestorAgents,
}

/// A cache of the agents of a parent and its ancestors, sorted. They are the same for all its children.
#[derive(Default)]
pub(crate) struct AncestorAgents(pub(crate) Mutex<HashMap<SessionId, Arc<[Text]>, FixedState>>);

/// Templates by agent, model and source of calls, with and without an approver.
pub(crate) type Templates = Mutex<BoundedCache<(Text, Text, Source, bool), Template>>;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients choose the permissions and the model of each session, so the kinds of sessions are endless. The control:
    /// entries below the bounds.
    #[test]
    fn endless_kinds_of_sessions_take_bounded_memory() {
        let most = |number: usize, bytes: usize| {
            let mut cache = BoundedCache::default();
            let sizes = (0..number).map(|key| {
                cache.insert(key, &Arc::new(key), bytes);
                assert_eq!(cache.entries.len() * bytes, cache.bytes);
                cache.entries.len()
            });
            sizes.max()
        };
        assert_eq!([most(1_000, 1), most(20, 1 << 20), most(20, MAX_BYTES + 1)], [Some(256), Some(4), Some(0)]);
        assert_eq!([most(256, 1), most(4, 1 << 20)], [Some(256), Some(4)]);
    }
}
