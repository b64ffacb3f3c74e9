//! The memory that loaded environments take together.

use std::sync::{Arc, Weak};

use subtend_agents::catalog::Catalog;
use subtend_agents::instructions::Instructions;
use subtend_agents::manifest::Manifest;
use subtend_agents::skill::Skills;

use super::agents::Agents;

/// The environments in use, and their texts. Equal texts are kept once.
#[derive(Default)]
pub(crate) struct EnvironmentMemory {
    catalogs: InUse<Catalog>,
    /// Registered agents, also replaced ones. All catalogs have the same ones.
    registered: InUse<Manifest>,
    instructions: InUse<Instructions>,
    skills: InUse<Skills>,
    environments: InUse<Agents>,
}

impl EnvironmentMemory {
    /// Returns the environment with texts that others have too.
    pub(crate) fn keep(&mut self, mut agents: Agents) -> Arc<Agents> {
        let [catalog, instructions, skills, own] = self.sizes(&agents);
        self.catalogs.share(&mut agents.catalog, catalog);
        self.instructions.share(&mut agents.instructions, instructions);
        self.skills.share(&mut agents.skills, skills);
        let agents = Arc::new(agents);
        self.environments.add(&agents, own);
        agents
    }

    pub(crate) fn add_registered(&mut self, manifest: &Arc<Manifest>) {
        let mut only = Catalog::default();
        only.insert(Arc::clone(manifest));
        self.registered.add(manifest, only.bytes());
    }

    /// Returns the bytes of the agents, the instructions, the skills, and of all else, without registered agents.
    pub(crate) fn sizes(&self, agents: &Agents) -> [usize; 4] {
        let [catalog, instructions, skills, own] = agents.sizes();
        let registered = self
            .registered
            .bytes_if(|manifest| agents.catalog.get(&manifest.name).is_some_and(|agent| Arc::ptr_eq(agent, manifest)));
        [catalog.saturating_sub(registered), instructions, skills, own]
    }

    pub(crate) fn bytes(&self) -> usize {
        let texts = [self.catalogs.bytes(), self.registered.bytes(), self.instructions.bytes(), self.skills.bytes()];
        texts.into_iter().fold(self.environments.bytes(), usize::saturating_add)
    }
}

/// Values with their bytes, as long as they are used elsewhere.
struct InUse<T>(Vec<(Weak<T>, usize)>);

impl<T> Default for InUse<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> InUse<T> {
    fn add(&mut self, value: &Arc<T>, bytes: usize) {
        self.0.retain(|(other, _)| other.strong_count() > 0);
        self.0.push((Arc::downgrade(value), bytes));
    }

    fn bytes(&self) -> usize {
        self.bytes_if(|_| true)
    }

    fn bytes_if(&self, counts: impl Fn(&Arc<T>) -> bool) -> usize {
        let in_use = self.0.iter().filter(|(value, _)| value.upgrade().is_some_and(|value| counts(&value)));
        in_use.map(|(_, bytes)| bytes).sum()
    }
}

impl<T: PartialEq> InUse<T> {
    /// Replaces `value` by an equal one that is in use, or adds it.
    fn share(&mut self, value: &mut Arc<T>, bytes: usize) {
        let same_size = self.0.iter().filter(|(_, other)| *other == bytes);
        match same_size.filter_map(|(other, _)| other.upgrade()).find(|other| **other == **value) {
            Some(equal) => *value = equal,
            None => self.add(value, bytes),
        }
    }
}
