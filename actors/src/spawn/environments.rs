//! The environments of a runtime: agents, tools and models by workspace.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
use subtend_agents::manifest::Manifest;
use subtend_journal::Journal;
use subtend_session::ids::{Seq, SessionId, Text};
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::State;

use super::agents::Agents;
use crate::values::environment_key::EnvironmentKey;

/// Roots whose environment is cached; for others it is found by their first record.
const REMEMBERED: usize = 65_536;

/// Environments that are cached; others are loaded again.
const KEPT: usize = 256;

/// Loads the agents of an environment; the error says why it cannot.
pub(crate) type Load = dyn Fn(&EnvironmentKey) -> Result<Agents, String> + Send + Sync;

/// Loads the runtime's own environment again, if it changed.
pub(crate) type LoadHome = dyn Fn() -> Result<Option<Agents>, String> + Send + Sync;

/// The environments of a runtime, each loaded at its first use.
pub(crate) struct Environments {
    /// Loads the others. Without it every session uses the runtime's own.
    load: Option<Box<Load>>,
    /// Without it the runtime's own environment changes by registrations only.
    load_home: Option<Box<LoadHome>>,
    journal: Journal,
    loaded: Mutex<Loaded>,
    /// Counts reloads: an activation finds its agents again when it changes.
    reloads: AtomicU64,
}

struct Loaded {
    home: Arc<Agents>,
    by_key: HashMap<EnvironmentKey, Arc<Agents>>,
    by_root: HashMap<SessionId, Arc<Agents>, FixedState>,
    /// Roots that this process opened in its own environment, or keeps there by an option: its options apply, whatever their first
    /// records say. Each has the agents of its opening.
    at_home: HashMap<SessionId, Arc<Agents>, FixedState>,
    /// Agents that the host registered, and names that it removed: they apply to every environment that is loaded later.
    registered: BTreeMap<Text, Option<Arc<Manifest>>>,
}

impl Environments {
    /// Returns the environments of a runtime whose own is `home`; the tree below `at_home` stays there.
    pub(crate) fn new(
        home: Agents,
        (load, load_home): (Option<Box<Load>>, Option<Box<LoadHome>>),
        at_home: Option<SessionId>,
    ) -> Self {
        let journal = home.journal.clone();
        let home = Arc::new(home);
        let loaded = Loaded {
            at_home: at_home.into_iter().map(|root| (root, Arc::clone(&home))).collect(),
            home,
            by_key: HashMap::new(),
            by_root: HashMap::default(),
            registered: BTreeMap::new(),
        };
        Self { load, load_home, journal, loaded: Mutex::new(loaded), reloads: AtomicU64::new(0) }
    }

    pub(crate) fn home(&self) -> Arc<Agents> {
        Arc::clone(&self.loaded().home)
    }

    /// Returns the number of reloads.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads.load(Ordering::Acquire)
    }

    /// Registers an agent, or removes the name, in the runtime's own environment and in each that is loaded later. Returns the agent
    /// of that name in the runtime's own environment until now. Opened trees keep what they have.
    pub(crate) fn register(&self, name: Text, manifest: Option<Manifest>) -> Option<Arc<Manifest>> {
        let mut loaded = self.loaded();
        let before = loaded.home.catalog.get(&name).cloned();
        loaded.registered.insert(name, manifest.map(Arc::new));
        loaded.home = Arc::new(loaded.home.changed(&loaded.registered));
        // Loaded again for the next session, with the registration.
        loaded.by_key.clear();
        before
    }

    /// Loads the environment of a session that is about to be opened without a workspace.
    pub(crate) fn open_home(&self) -> Result<Arc<Agents>, String> {
        let Some(load) = &self.load_home else { return Ok(self.home()) };
        let agents = load()?;
        let mut loaded = self.loaded();
        if let Some(agents) = agents {
            loaded.home = loaded.with_registered(agents);
        }
        Ok(Arc::clone(&loaded.home))
    }

    /// Loads the environment of an opened tree again: its sessions use it from their next turn on. If it cannot be loaded, they keep what they
    /// have.
    pub(crate) fn reload(&self, root: SessionId) -> Result<(Arc<Agents>, Arc<Agents>), String> {
        let before = self.of_root(root);
        let (after, at_home) = match self.key_abroad(root)? {
            Some(key) => (self.open(&key)?, false),
            None => (self.open_home()?, true),
        };
        self.opened(root, &after, at_home);
        self.reloads.fetch_add(1, Ordering::AcqRel);
        Ok((before, after))
    }

    /// Returns the key of a tree that does not work in the runtime's own environment.
    fn key_abroad(&self, root: SessionId) -> Result<Option<EnvironmentKey>, String> {
        if self.load.is_none() || self.loaded().at_home.contains_key(&root) {
            return Ok(None);
        }
        let birth = self.birth(root).ok_or("the birth of its root cannot be read")?;
        Ok(Some(EnvironmentKey::of(&birth)).filter(|key| !self.is_home(key)))
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the environment of a session that is about to be opened, with its files as they are now.
    pub(crate) fn open(&self, key: &EnvironmentKey) -> Result<Arc<Agents>, String> {
        let Some(load) = &self.load else {
            return Err("this runtime has one workspace: leave `workspace` out".to_owned());
        };
        let agents = load(key)?;
        let mut loaded = self.loaded();
        let agents = loaded.with_registered(agents);
        loaded.keep(key.clone(), &agents);
        Ok(agents)
    }

    /// Notes what a root was opened with. Its tree keeps that, whatever changes later.
    pub(crate) fn opened(&self, root: SessionId, agents: &Arc<Agents>, at_home: bool) {
        let mut loaded = self.loaded();
        if at_home {
            // Without a loader the runtime's own environment is the only one, so that a forgotten root has the present one.
            if self.load.is_none() && loaded.at_home.len() >= REMEMBERED {
                loaded.at_home.clear();
            }
            loaded.at_home.insert(root, Arc::clone(agents));
        } else {
            loaded.remember(root, agents);
        }
    }

    /// Returns the environment of a session's root. One that cannot be loaded offers nothing and reports why.
    pub(crate) fn of(&self, state: &State) -> Arc<Agents> {
        let root = state.created.place.root(state.id);
        self.found(root, || (root == state.id).then(|| SessionCreated::clone(&state.created)))
    }

    pub(crate) fn of_root(&self, root: SessionId) -> Arc<Agents> {
        self.found(root, || None)
    }

    fn found(&self, root: SessionId, birth: impl FnOnce() -> Option<SessionCreated>) -> Arc<Agents> {
        let loaded = self.loaded();
        if let Some(agents) = loaded.at_home.get(&root) {
            return Arc::clone(agents);
        }
        let Some(load) = &self.load else { return Arc::clone(&loaded.home) };
        if let Some(agents) = loaded.by_root.get(&root) {
            return Arc::clone(agents);
        }
        drop(loaded);
        let Some(birth) = birth().or_else(|| self.birth(root)) else {
            return self.unusable("?".into(), "the birth of its root cannot be read".to_owned());
        };
        let key = EnvironmentKey::of(&birth);
        if self.is_home(&key) {
            return self.home();
        }
        if let Some(agents) = self.loaded().by_key.get(&key).cloned() {
            self.loaded().remember(root, &agents);
            return agents;
        }
        // Concurrent loads are harmless, and the later one applies: no lock is held while files are read.
        match load(&key) {
            Ok(agents) => {
                let mut loaded = self.loaded();
                let agents = loaded.with_registered(agents);
                loaded.keep(key, &agents);
                loaded.remember(root, &agents);
                agents
            }
            // Not cached: a directory may reappear.
            Err(why) => self.unusable(key.workspace, why),
        }
    }

    /// Returns whether an earlier process opened the root as this one would in its own environment.
    fn is_home(&self, key: &EnvironmentKey) -> bool {
        let home = self.home();
        !key.imported
            && key.workspace == home.workspace_name
            && key.servers == home.servers
            && key.model.as_ref() == Some(&home.default_model)
    }

    fn birth(&self, root: SessionId) -> Option<SessionCreated> {
        let first = self.journal.records_from(root, Seq(1), 1).ok()?;
        first.into_iter().find_map(|stored| {
            let Record::SessionCreated(created) = stored.record else { return None };
            Some(*created)
        })
    }

    fn unusable(&self, workspace: Text, why: String) -> Arc<Agents> {
        tracing::warn!(%workspace, %why, "the environment cannot be used");
        Arc::new(self.home().unusable(workspace, &why))
    }
}

impl Loaded {
    fn with_registered(&self, agents: Agents) -> Arc<Agents> {
        Arc::new(match self.registered.is_empty() {
            true => agents,
            false => agents.changed(&self.registered),
        })
    }

    fn keep(&mut self, key: EnvironmentKey, agents: &Arc<Agents>) {
        if self.by_key.len() >= KEPT {
            self.by_key.clear();
        }
        self.by_key.insert(key, Arc::clone(agents));
    }

    fn remember(&mut self, root: SessionId, agents: &Arc<Agents>) {
        if self.by_root.len() >= REMEMBERED {
            self.by_root.clear();
        }
        self.by_root.insert(root, Arc::clone(agents));
    }
}
