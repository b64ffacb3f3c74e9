//! The environments of a runtime: agents, tools and models by workspace.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use foldhash::fast::FixedState;
use subtend_agents::catalog::MAX_FILES;
use subtend_agents::manifest::Manifest;
use subtend_journal::Journal;
use subtend_session::ids::{SessionId, Text};
use subtend_session::record::Record;
use subtend_session::state::State;

use super::agents::Agents;
use super::caches::{BoundedCache, size_of_names};
use super::environment_memory::EnvironmentMemory;
use crate::values::environment_key::EnvironmentKey;

/// Maximum number of roots whose environment is cached; that of others is found by their first record.
const MAX_ROOTS: usize = 65_536;

/// Maximum number of keys whose environment is cached; others are reloaded.
const MAX_KEYS: usize = 4_096;

/// Maximum number of environments that are kept without an active session. Each has the texts of all its files.
const MAX_UNUSED: usize = 8;

/// Number of names after which those of unused environments are removed.
const FORGET_EVERY: usize = 256;

/// A function that loads the agents of an environment, or returns the reason why it cannot.
pub(crate) type Load = dyn Fn(&EnvironmentKey) -> Result<Agents, String> + Send + Sync;

/// A function that reloads the runtime's own environment if it changed.
pub(crate) type LoadHome = dyn Fn() -> Result<Option<Agents>, String> + Send + Sync;

/// Why a session gets no environment.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    #[error("{0}")]
    Load(String),
    /// Those in use leave no room.
    #[error("{0}")]
    Memory(String),
}

/// The environments of a runtime, each loaded at its first use.
pub(crate) struct Environments {
    /// Loads other environments. Without it every session uses the runtime's own.
    load: Option<Box<Load>>,
    /// Reloads the runtime's own environment. Without it only registrations change that.
    load_home: Option<Box<LoadHome>>,
    journal: Journal,
    /// The keys of roots, also of those whose environment cannot be loaded. A creation never changes, and ids are not reused.
    keys: Mutex<BoundedCache<SessionId, EnvironmentKey, MAX_ROOTS>>,
    /// Held while the creation of a root is read, whose frame may be large: all sessions of a tree may ask for it at once.
    reading: Mutex<()>,
    loaded: Mutex<Loaded>,
    /// A lock of each workspace whose files are being read, since concurrent loads would add up in memory. One that hangs
    /// does not delay others. The runtime's own has the empty name.
    loading: Mutex<HashMap<Text, Weak<Mutex<()>>>>,
    /// Maximum bytes of environments in use, besides the runtime's own.
    most: usize,
    /// Counts reloads. When it changes, an activation finds its agents again.
    reloads: AtomicU64,
}

struct Loaded {
    home: Arc<Agents>,
    /// The environments that are active sessions' or [recent](Loaded::recent), so that others use no memory.
    by_key: HashMap<EnvironmentKey, Weak<Agents>>,
    by_root: HashMap<SessionId, Weak<Agents>, FixedState>,
    /// The environments that were used last, oldest first.
    recent: VecDeque<Arc<Agents>>,
    /// Roots of this process's own environment, whose options replace their records'; each with its opening's agents, while
    /// these are in use or [recent](Loaded::recent). Then the current ones apply.
    home_root: HashMap<SessionId, Weak<Agents>, FixedState>,
    memory: EnvironmentMemory,
    /// Agents that the host registered, and names that it removed. They apply to every environment that is loaded later.
    registered: BTreeMap<Text, Option<Arc<Manifest>>>,
}

impl Environments {
    /// Returns the environments of a runtime whose own is `home`; the tree below `home_root` stays there.
    pub(crate) fn new(
        home: Agents,
        (load, load_home): (Option<Box<Load>>, Option<Box<LoadHome>>),
        home_root: Option<SessionId>,
    ) -> Self {
        let (journal, most, mut memory) =
            (home.journal.clone(), home.options.environments, EnvironmentMemory::default());
        let home = memory.keep(home);
        let loaded = Loaded {
            home_root: home_root.into_iter().map(|root| (root, Arc::downgrade(&home))).collect(),
            home,
            by_key: HashMap::new(),
            by_root: HashMap::default(),
            recent: VecDeque::new(),
            memory,
            registered: BTreeMap::new(),
        };
        let (loaded, loading, reading) = (Mutex::new(loaded), Mutex::default(), Mutex::default());
        // With bytes of its own: the caches of environments must not displace keys.
        let keys = Mutex::new(BoundedCache::new(&Arc::default()));
        Self { load, load_home, journal, keys, reading, loaded, loading, most, reloads: AtomicU64::new(0) }
    }

    pub(crate) fn home(&self) -> Arc<Agents> {
        Arc::clone(&self.lock_loaded().home)
    }

    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    /// Returns whether [`Environments::register`] keeps at most [`MAX_FILES`] names with this one. A removed name is kept too,
    /// since a file may define it.
    pub(crate) fn has_room_for(&self, name: &str) -> bool {
        let loaded = self.lock_loaded();
        loaded.registered.len() < MAX_FILES || loaded.registered.contains_key(name)
    }

    /// Registers an agent, or removes the name, in the runtime's own environment and in each that is loaded later. Returns the previous agent of that
    /// name in the runtime's own environment. Opened trees do not change.
    pub(crate) fn register(&self, name: Text, manifest: Option<Manifest>) -> Option<Arc<Manifest>> {
        let mut loaded = self.lock_loaded();
        let before = loaded.home.catalog.get(&name).cloned();
        let manifest = manifest.map(Arc::new);
        if let Some(manifest) = &manifest {
            loaded.memory.add_registered(manifest);
        }
        loaded.registered.insert(name, manifest);
        let home = loaded.home.with_changes(&loaded.registered);
        loaded.home = loaded.memory.keep(home);
        // Cleared, so that the next session reloads its environment with the registration.
        loaded.by_key.clear();
        before
    }

    /// Loads the environment of a session that is about to be opened without a workspace.
    pub(crate) fn open_home(&self) -> Result<Arc<Agents>, EnvironmentError> {
        let lock = self.load_home.as_ref().map(|load| (load, self.loading_of(&"".into())));
        let loading = lock.as_ref().map(|(load, lock)| (load, lock_of(lock)));
        let agents = loading.as_ref().map_or(Ok(None), |(load, _)| load()).map_err(EnvironmentError::Load)?;
        let mut loaded = self.lock_loaded();
        if let Some(agents) = agents {
            loaded.home = loaded.with_registered(agents);
        }
        // Sessions in use may have earlier ones.
        loaded.make_room(self.most).map_err(EnvironmentError::Memory)?;
        Ok(Arc::clone(&loaded.home))
    }

    /// Reloads the environment of an opened tree: its sessions use it from their next turn on. If it cannot be loaded, they keep the current one.
    pub(crate) fn reload(&self, root: SessionId) -> Result<(Arc<Agents>, Arc<Agents>), String> {
        let before = self.of_root(root);
        let (after, home_root) = match self.other_key(root)? {
            Some(key) => (self.open(&key).map_err(|error| error.to_string())?, false),
            None => (self.open_home().map_err(|error| error.to_string())?, true),
        };
        self.on_opened(root, &after, home_root);
        self.reloads.fetch_add(1, Ordering::AcqRel);
        Ok((before, after))
    }

    /// Returns the key of a tree that does not use the runtime's own environment.
    fn other_key(&self, root: SessionId) -> Result<Option<EnvironmentKey>, String> {
        if self.load.is_none() || self.lock_loaded().home_root.contains_key(&root) {
            return Ok(None);
        }
        let key = self.key_of(root, || None).ok_or("the first record of its root cannot be read")?;
        Ok(Some(EnvironmentKey::clone(&key)).filter(|key| !self.is_home(key)))
    }

    fn lock_loaded(&self) -> MutexGuard<'_, Loaded> {
        lock_of(&self.loaded)
    }

    fn loading_of(&self, workspace: &Text) -> Arc<Mutex<()>> {
        let mut loading = lock_of(&self.loading);
        loading.retain(|_, lock| lock.strong_count() > 0);
        let lock = loading.get(workspace).and_then(Weak::upgrade).unwrap_or_default();
        loading.insert(Arc::clone(workspace), Arc::downgrade(&lock));
        lock
    }

    /// Loads the environment of a session that is about to be opened, with the current files.
    pub(crate) fn open(&self, key: &EnvironmentKey) -> Result<Arc<Agents>, EnvironmentError> {
        let only_one = || "this runtime has only one workspace. Omit `workspace`".to_owned();
        let load = self.load.as_ref().ok_or_else(only_one).map_err(EnvironmentError::Load)?;
        let loading = self.loading_of(&key.workspace);
        let _loading = lock_of(&loading);
        let agents = load(key).map_err(EnvironmentError::Load)?;
        self.lock_loaded().add(key.clone(), agents, (self.most, false)).map_err(EnvironmentError::Memory)
    }

    /// Records the environment of a new root. When others change, its tree keeps it while it is active or among the last
    /// [`MAX_UNUSED`] environments.
    pub(crate) fn on_opened(&self, root: SessionId, agents: &Arc<Agents>, home_root: bool) {
        let mut loaded = self.lock_loaded();
        if home_root {
            // A root that is forgotten here is found by its record, as after a restart. Without a loader, each is found here.
            if loaded.home_root.len() >= MAX_ROOTS {
                forget_unused(&mut loaded.home_root, MAX_ROOTS);
            }
            loaded.home_root.insert(root, Arc::downgrade(agents));
            loaded.mark_used(agents);
        } else {
            loaded.remember(root, agents);
        }
    }

    /// Returns the environment of a session's root. One that cannot be loaded offers nothing and reports the reason.
    pub(crate) fn of(&self, state: &State) -> Arc<Agents> {
        let root = state.created.place.root(state.id);
        let known = || (root == state.id).then(|| EnvironmentKey::of(&state.created));
        // A run would end for good without room, and its inputs were accepted.
        self.found(root, known, state.run.is_some())
    }

    pub(crate) fn of_root(&self, root: SessionId) -> Arc<Agents> {
        self.found(root, || None, false)
    }

    fn found(&self, root: SessionId, known: impl FnOnce() -> Option<EnvironmentKey>, required: bool) -> Arc<Agents> {
        let mut loaded = self.lock_loaded();
        if let Some(opened) = loaded.home_root.get(&root) {
            let agents = opened.upgrade().unwrap_or_else(|| Arc::clone(&loaded.home));
            loaded.mark_used(&agents);
            return agents;
        }
        let Some(load) = &self.load else { return Arc::clone(&loaded.home) };
        if let Some(agents) = loaded.by_root.get(&root).and_then(Weak::upgrade) {
            loaded.mark_used(&agents);
            return agents;
        }
        drop(loaded);
        let Some(key) = self.key_of(root, known) else {
            return self.unusable("?".into(), "the first record of its root cannot be read".to_owned());
        };
        if self.is_home(&key) {
            return self.home();
        }
        let known = || self.lock_loaded().known(&key, root);
        if let Some(agents) = known() {
            return agents;
        }
        let loading = self.loading_of(&key.workspace);
        let _loading = lock_of(&loading);
        if let Some(agents) = known() {
            return agents;
        }
        let add = |agents| self.lock_loaded().add(EnvironmentKey::clone(&key), agents, (self.most, required));
        match load(&key).and_then(add) {
            Ok(agents) => {
                self.lock_loaded().remember(root, &agents);
                agents
            }
            // Not cached, since the directory may reappear.
            Err(why) => self.unusable(Arc::clone(&key.workspace), why),
        }
    }

    /// Returns whether an earlier process opened the root with the same options as this process's own environment.
    fn is_home(&self, key: &EnvironmentKey) -> bool {
        let home = self.home();
        !key.imported
            && key.workspace == home.workspace_name
            && key.servers == home.servers
            && key.model.as_ref() == Some(&home.default_model)
    }

    /// Returns the key of a root, which is `known` or read once: each session of its tree asks for it.
    fn key_of(&self, root: SessionId, known: impl FnOnce() -> Option<EnvironmentKey>) -> Option<Arc<EnvironmentKey>> {
        let cached = || lock_of(&self.keys).get(&root).cloned();
        if let Some(key) = cached() {
            return Some(key);
        }
        let known = known();
        // Not for a known one, so that no root waits for the reading of another.
        let _reading = known.is_none().then(|| lock_of(&self.reading));
        if let Some(key) = cached() {
            return Some(key);
        }
        let key = Arc::new(known.or_else(|| self.read_key(root))?);
        lock_of(&self.keys).insert(root, &key, bytes_of(&key));
        Some(key)
    }

    fn read_key(&self, root: SessionId) -> Option<EnvironmentKey> {
        let first = self.journal.without_bodies().first_record(root).ok()?;
        let Record::SessionCreated(created) = first.record else { return None };
        Some(EnvironmentKey::of(&created))
    }

    fn unusable(&self, workspace: Text, why: String) -> Arc<Agents> {
        tracing::warn!(%workspace, %why, "the environment cannot be used");
        Arc::new(self.home().unusable(workspace, &why))
    }
}

fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loaded {
    /// Returns the environment of `key` if it is in use or recent, from now on as that of `root`.
    fn known(&mut self, key: &EnvironmentKey, root: SessionId) -> Option<Arc<Agents>> {
        let agents = self.by_key.get(key).and_then(Weak::upgrade)?;
        self.remember(root, &agents);
        Some(agents)
    }

    fn with_registered(&mut self, agents: Agents) -> Arc<Agents> {
        self.memory.keep(match self.registered.is_empty() {
            true => agents,
            false => agents.with_changes(&self.registered),
        })
    }

    /// Forgets unused environments until all others than the runtime's own take at most that many bytes.
    fn make_room(&mut self, most: usize) -> Result<(), String> {
        if self.memory.bytes() <= most {
            return Ok(());
        }
        let own = self.memory.sizes(&self.home).into_iter().fold(0, usize::saturating_add);
        loop {
            let bytes = self.memory.bytes().saturating_sub(own);
            if bytes <= most {
                return Ok(());
            }
            if self.recent.pop_front().is_none() {
                let [bytes, most] = [bytes, most].map(|bytes| bytes.div_ceil(1 << 20));
                return Err(format!(
                    "agents, instructions and skills of the workspaces in use would take {bytes} MiB, and the limit is {most} MiB. Try \
                     again when sessions of other workspaces are done, or remove large files of agents and skills"
                ));
            }
        }
    }

    /// Returns the loaded environment of `key`, or the existing one if that is equal. Refuses one for which there is no
    /// room, unless it is required.
    fn add(
        &mut self,
        key: EnvironmentKey,
        agents: Agents,
        (most, required): (usize, bool),
    ) -> Result<Arc<Agents>, String> {
        let known = self.by_key.get(&key).and_then(Weak::upgrade);
        let agents = match known.filter(|known| known.version.is_some() && known.version == agents.version) {
            Some(known) => known,
            None => self.with_registered(agents),
        };
        self.make_room(most).or_else(|why| if required { Ok(()) } else { Err(why) })?;
        forget_unused(&mut self.by_key, MAX_KEYS);
        self.by_key.insert(key, Arc::downgrade(&agents));
        self.mark_used(&agents);
        Ok(agents)
    }

    fn remember(&mut self, root: SessionId, agents: &Arc<Agents>) {
        forget_unused(&mut self.by_root, MAX_ROOTS);
        self.by_root.insert(root, Arc::downgrade(agents));
        self.mark_used(agents);
    }

    fn mark_used(&mut self, agents: &Arc<Agents>) {
        self.recent.retain(|recent| !Arc::ptr_eq(recent, agents));
        self.recent.push_back(Arc::clone(agents));
        while self.recent.len() > MAX_UNUSED {
            self.recent.pop_front();
        }
    }
}

/// Returns the bytes of the texts of a key.
fn bytes_of(key: &EnvironmentKey) -> usize {
    let texts = key.workspace.len().saturating_add(key.model.as_ref().map_or(0, |model| model.len()));
    texts.saturating_add(size_of_names(&key.servers))
}

/// Removes the names of environments that no longer exist, and all if there are still `most`.
fn forget_unused<K: Eq + Hash, S: BuildHasher>(names: &mut HashMap<K, Weak<Agents>, S>, most: usize) {
    // Not at each call, since it takes time for all names.
    if names.len().is_multiple_of(FORGET_EVERY) {
        names.retain(|_, agents| agents.strong_count() > 0);
    }
    if names.len() >= most {
        names.clear();
    }
}

#[cfg(test)]
mod tests {
    use subtend_journal::faulty::Faulty;
    use subtend_journal::memory::Memory;
    use subtend_models::closure::fn_model;

    use super::*;
    use crate::{OpenOptions, Runtime};

    /// Attack: all sessions of a tree ask for the environment of its root at once, and the root has a large frame. The
    /// control: each asks for another root.
    #[tokio::test]
    async fn key_of_a_root_is_read_once() {
        let (engine, faults) = Faulty::new(Box::new(Memory::new()));
        let journal = Journal::open(Box::new(engine), subtend_journal::Options::default()).expect("a journal");
        let silent = fn_model("silent", |_, _| std::future::pending());
        let builder = Runtime::builder().journal(journal).model(Arc::new(silent));
        let runtime = builder.environments(|_| Err("not loaded".to_owned())).start().await.expect("a runtime");
        let mut roots = Vec::new();
        for _ in 0..2 {
            roots.push(runtime.open(OpenOptions::agent("general")).expect("a root").id());
        }
        let environments = &runtime.components.environments;
        // As after a restart.
        environments.lock_loaded().home_root.clear();
        let ask = |root| {
            let before = faults.ranges();
            std::thread::scope(|threads| {
                for _ in 0..8 {
                    threads.spawn(|| assert!(Arc::ptr_eq(&environments.of_root(root), &environments.home())));
                }
            });
            faults.ranges() - before
        };
        assert_eq!([roots[0], roots[0], roots[1], roots[0]].map(ask), [1, 0, 1, 0]);
        runtime.shutdown(std::time::Duration::ZERO).await;
    }

    /// Clients open sessions without end in the host's own directory, which has a loader for others too. The control: the
    /// last one is found.
    #[tokio::test]
    async fn endless_roots_of_the_own_environment_take_bounded_memory() {
        let silent = fn_model("silent", |_, _| std::future::pending());
        let load = |_: &EnvironmentKey| Err("not loaded".to_owned());
        let runtime = Runtime::builder().model(Arc::new(silent)).environments(load).start().await.expect("a runtime");
        let environments = &runtime.components.environments;
        let roots = (0..=MAX_ROOTS as u128).map(|root| SessionId(uuid::Uuid::from_u128(root)));
        let kept = roots.map(|root| {
            environments.on_opened(root, &environments.home(), true);
            let loaded = environments.lock_loaded();
            (loaded.home_root.len(), loaded.home_root.contains_key(&root))
        });
        assert_eq!(kept.max(), Some((MAX_ROOTS, true)));
        assert_eq!(environments.lock_loaded().home_root.len(), 1);
        runtime.shutdown(std::time::Duration::ZERO).await;
    }
}
