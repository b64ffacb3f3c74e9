//! The environments of a runtime: agents, tools and models by workspace.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::FixedState;
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

/// The environments of a runtime, each loaded at its first use.
pub(crate) struct Environments {
    home: Arc<Agents>,
    /// Loads the others. Without it every session uses the runtime's own.
    load: Option<Box<Load>>,
    journal: Journal,
    loaded: Mutex<Loaded>,
}

#[derive(Default)]
struct Loaded {
    by_key: HashMap<EnvironmentKey, Arc<Agents>>,
    by_root: HashMap<SessionId, Arc<Agents>, FixedState>,
    /// Roots that this process opened in its own environment, or keeps there by an option: its options apply, whatever their first
    /// records say.
    at_home: HashSet<SessionId, FixedState>,
}

impl Environments {
    /// Returns the environments of a runtime whose own is `home`; the tree below `at_home` stays there.
    pub(crate) fn new(home: Agents, load: Option<Box<Load>>, at_home: Option<SessionId>) -> Self {
        let journal = home.journal.clone();
        let loaded = Loaded { at_home: at_home.into_iter().collect(), ..Loaded::default() };
        Self { home: Arc::new(home), load, journal, loaded: Mutex::new(loaded) }
    }

    pub(crate) fn home(&self) -> &Arc<Agents> {
        &self.home
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the environment of a session that is about to be opened, with its files as they are now.
    pub(crate) fn open(&self, key: &EnvironmentKey) -> Result<Arc<Agents>, String> {
        let Some(load) = &self.load else {
            return Err("this runtime has one workspace: leave `workspace` out".to_owned());
        };
        let agents = Arc::new(load(key)?);
        self.loaded().keep(key.clone(), &agents);
        Ok(agents)
    }

    pub(crate) fn opened(&self, root: SessionId, agents: &Arc<Agents>) {
        if self.load.is_none() {
            return;
        }
        if Arc::ptr_eq(agents, &self.home) {
            self.loaded().at_home.insert(root);
        } else {
            self.loaded().remember(root, agents);
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
        let Some(load) = &self.load else { return Arc::clone(&self.home) };
        let loaded = self.loaded();
        if loaded.at_home.contains(&root) {
            return Arc::clone(&self.home);
        }
        if let Some(agents) = loaded.by_root.get(&root) {
            return Arc::clone(agents);
        }
        drop(loaded);
        let Some(birth) = birth().or_else(|| self.birth(root)) else {
            return self.unusable("?".into(), "the birth of its root cannot be read".to_owned());
        };
        let key = EnvironmentKey::of(&birth);
        if self.is_home(&key) {
            return Arc::clone(&self.home);
        }
        if let Some(agents) = self.loaded().by_key.get(&key).cloned() {
            self.loaded().remember(root, &agents);
            return agents;
        }
        // Concurrent loads are harmless, and the later one applies: no lock is held while files are read.
        match load(&key) {
            Ok(agents) => {
                let agents = Arc::new(agents);
                let mut loaded = self.loaded();
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
        let home = &self.home;
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
        Arc::new(self.home.unusable(workspace, &why))
    }
}

impl Loaded {
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
