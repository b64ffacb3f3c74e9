//! Caches of tool sets and templates, one for each distinct kind of session.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use subtend_agents::skill::Skill;
use subtend_session::authority::Authority;
use subtend_session::dialect::Dialect;
use subtend_session::ids::{self, Seq, SessionId, Text};
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
    /// The session, if it sees other tools than all sessions.
    pub(crate) session: Option<SessionId>,
}

/// Bytes of a name in a list, besides its text.
const SIZE_OF_NAME: usize = 32;

/// Maximum number of parents whose ancestors are cached, and of sessions whose lists of tools are.
const MAX_ANCESTORS: usize = 4_096;

/// Returns the bytes of a list of names.
pub(crate) fn size_of_names(names: &[Text]) -> usize {
    names.iter().map(|name| name.len().saturating_add(SIZE_OF_NAME)).sum()
}

impl ToolSetKey {
    /// Returns the bytes of what clients and agent files choose. The tool set has a copy of the list of tools.
    pub(crate) fn bytes(&self) -> usize {
        let listed = self.only.as_deref().map_or(0, size_of_names).saturating_mul(2);
        let imported = self.imported.as_ref().map_or(0, Authority::bytes);
        size_of_names(&self.above).saturating_add(listed).saturating_add(imported)
    }
}

/// Maximum number of entries of a cache. Clients choose permissions and models, so there may be one for each session.
const MAX_ENTRIES: usize = 256;
/// Maximum bytes of permissions or prompts in a cache.
const MAX_BYTES: usize = 4 << 20;
/// Maximum bytes in all caches of a runtime. Each environment has its own.
const MAX_ALL_BYTES: usize = 16 << 20;

/// The bytes in all caches of a runtime.
#[derive(Default)]
pub(crate) struct CachedBytes(AtomicUsize);

/// A cache of bounded size. Sessions hold the entries that they use, so it may forget all of them.
pub(crate) struct BoundedCache<K, V: ?Sized, const MAX: usize = MAX_ENTRIES> {
    /// The entries with their bytes.
    entries: HashMap<K, (Arc<V>, usize)>,
    bytes: usize,
    all: Arc<CachedBytes>,
}

impl<K, V: ?Sized, const MAX: usize> BoundedCache<K, V, MAX> {
    pub(super) fn new(all: &Arc<CachedBytes>) -> Self {
        Self { entries: HashMap::new(), bytes: 0, all: Arc::clone(all) }
    }

    fn set_bytes(&mut self, bytes: usize) {
        // Relaxed: the sum guards no other memory.
        self.all.0.fetch_add(bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl<K, V: ?Sized, const MAX: usize> Drop for BoundedCache<K, V, MAX> {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

impl<K: Eq + Hash, V: ?Sized, const MAX: usize> BoundedCache<K, V, MAX> {
    pub(crate) fn get(&self, key: &K) -> Option<&Arc<V>> {
        self.entries.get(key).map(|(value, _)| value)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.entries.retain(|key, _| keep(key));
        self.set_bytes(self.entries.values().map(|(_, bytes)| bytes).sum());
    }

    /// Adds an entry with this number of bytes. Forgets all others if they would be too many, and does not keep an entry
    /// that is larger than the cache may be, or than what the caches of other environments leave.
    pub(crate) fn insert(&mut self, key: K, value: &Arc<V>, bytes: usize) {
        if let Some((_, replaced)) = self.entries.remove(&key) {
            self.set_bytes(self.bytes.saturating_sub(replaced));
        }
        let fits = |all: usize, most: usize| all.saturating_add(bytes) <= most;
        let in_all = || self.all.0.load(Ordering::Relaxed);
        if self.entries.len() >= MAX || !fits(self.bytes, MAX_BYTES) || !fits(in_all(), MAX_ALL_BYTES) {
            self.entries.clear();
            self.set_bytes(0);
        }
        if fits(self.bytes, MAX_BYTES) && fits(self.all.0.load(Ordering::Relaxed), MAX_ALL_BYTES) {
            self.set_bytes(self.bytes.saturating_add(bytes));
            self.entries.insert(key, (Arc::clone(value), bytes));
        }
    }
}

/// Tool sets and templates, one for each distinct kind of session.
pub(crate) struct ToolSets {
    pub(crate) tool_sets: Mutex<BoundedCache<ToolSetKey, ToolSet>>,
    pub(crate) templates: Templates,
    /// The agents of a parent and its ancestors, sorted. They are the same for all its children.
    pub(crate) ancestors: Mutex<BoundedCache<SessionId, [Text], MAX_ANCESTORS>>,
    /// The lists of tools of sessions that have one.
    pub(crate) listed_tools: Mutex<BoundedCache<SessionId, ListedTools, MAX_ANCESTORS>>,
    all: Arc<CachedBytes>,
}

/// The list of tools of a session, up to the record before `next`. `None` for all tools.
#[derive(Clone)]
pub(crate) struct ListedTools {
    pub(crate) tools: Option<Vec<Text>>,
    pub(crate) next: Seq,
}

impl ToolSets {
    pub(crate) fn new(all: &Arc<CachedBytes>) -> Self {
        Self {
            tool_sets: Mutex::new(BoundedCache::new(all)),
            templates: Mutex::new(BoundedCache::new(all)),
            ancestors: Mutex::new(BoundedCache::new(all)),
            listed_tools: Mutex::new(BoundedCache::new(all)),
            all: Arc::clone(all),
        }
    }

    /// Returns empty caches, for another environment of the runtime.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(&self.all)
    }
}

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
            let mut cache: BoundedCache<_, _> = BoundedCache::new(&Arc::default());
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

    /// Clients choose the directories of sessions, and each environment has caches. The control: a cache below the bounds.
    #[test]
    fn caches_of_all_environments_take_bounded_memory() {
        let all = Arc::default();
        let filled = |entries: usize| {
            let mut cache: BoundedCache<usize, usize> = BoundedCache::new(&all);
            (0..entries).for_each(|key| cache.insert(key, &Arc::new(key), 1 << 20));
            cache
        };
        let caches: Vec<_> = (0..50).map(|_| filled(4)).collect();
        let kept = |all: &CachedBytes| all.0.load(Ordering::Relaxed);
        let entries = |caches: &[BoundedCache<_, _>]| caches.iter().map(|cache| cache.entries.len()).sum::<usize>();
        assert_eq!((kept(&all), entries(&caches)), (MAX_ALL_BYTES, 16));
        drop(caches);
        let cache = filled(3);
        assert_eq!((kept(&all), entries(&[cache])), (3 << 20, 3));
        assert_eq!(kept(&all), 0);
    }

    #[test]
    fn replaced_entry_of_a_cache_counts_once() {
        let mut cache: BoundedCache<usize, usize> = BoundedCache::new(&Arc::default());
        [5, 7].into_iter().for_each(|bytes| cache.insert(0, &Arc::new(0), bytes));
        assert_eq!((cache.bytes, cache.all.0.load(Ordering::Relaxed)), (7, 7));
    }

    #[test]
    fn bytes_of_lists_count_in_a_cache() {
        let bytes = |only: Option<Vec<Text>>, above: &[Text]| {
            let key = ToolSetKey {
                generation: 0,
                agent: "".into(),
                ceiling: ids::Hash([0; 16]),
                imported: None,
                only,
                attended: false,
                dialects: Vec::new(),
                nested: false,
                returns: false,
                in_full: None,
                source: Source::default(),
                plans: None,
                above: above.into(),
                session: None,
            };
            key.bytes()
        };
        let names: Vec<Text> = vec!["1234567890".into(); 100];
        assert_eq!([bytes(None, &[]), bytes(Some(names.clone()), &[]), bytes(None, &names)], [0, 8_400, 4_200]);
    }
}
