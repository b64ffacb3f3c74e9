//! Resolves model names to a pool, a named model, a model created on demand, or the fallback.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;

use crate::model::Model;

use health::Health;

mod health;

/// Creates the model with a name. Returns `None` for an unknown name.
pub type ModelSource = dyn Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync;

/// Maximum number of members of a pool: a turn may call each of them once.
pub const MAX_MEMBERS: usize = 16;

/// Maximum number of unused models that are kept after they were created by name. A client may name any number of models.
const MAX_CREATED: usize = 64;

/// The models of a runtime. A name resolves, in this order, to a pool, a named model, a model that the source creates, or the fallback.
pub struct Models {
    named: HashMap<Text, Arc<dyn Model>>,
    pools: HashMap<Text, Arc<[Member]>>,
    source: Option<Arc<ModelSource>>,
    /// Models that the source has created. At most [`MAX_CREATED`] of them are unused elsewhere.
    created: Mutex<HashMap<Text, Arc<dyn Model>>>,
    fallback: Arc<dyn Model>,
    health: Health,
}

#[derive(Clone)]
pub struct Member {
    pub name: Text,
    pub model: Arc<dyn Model>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Member").field(&self.name).finish()
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models")
            .field("named", &self.named.keys())
            .field("pools", &self.pools)
            .field("fallback", &self.fallback.name())
            .finish_non_exhaustive()
    }
}

/// The model or pool that a name resolves to.
#[derive(Clone, Debug)]
pub enum Route {
    One(Member),
    /// The members of a pool, in the order in which they are tried.
    Pool(Arc<[Member]>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPool {
    #[error("the pool {0:?} has no models: name at least one")]
    Empty(Text),
    #[error("the pool {0:?} has {1} models; the limit is {MAX_MEMBERS}")]
    TooMany(Text, usize),
    #[error("the pool {0:?} names the model {1:?} twice")]
    Twice(Text, Text),
    #[error(
        "the pool {0:?} names the unknown model {1:?}: name one of the host's own, or a provider's as PROVIDER/MODEL"
    )]
    Unknown(Text, Text),
}

impl Models {
    /// Creates a set of models: named models, a source of models on demand, and a fallback for other names.
    pub fn new(
        named: HashMap<Text, Arc<dyn Model>>,
        source: Option<Arc<ModelSource>>,
        fallback: Arc<dyn Model>,
    ) -> Self {
        let (pools, created) = (HashMap::new(), Mutex::default());
        Self { named, pools, source, created, fallback, health: Health::default() }
    }

    /// Adds a pool: a name for several models, which are tried in this order.
    /// # Errors
    /// [`BadPool`], if the pool is unusable. Then it is not added.
    pub fn add_pool(&mut self, name: &Text, members: &[Text]) -> Result<(), BadPool> {
        if members.is_empty() {
            return Err(BadPool::Empty(name.clone()));
        }
        if members.len() > MAX_MEMBERS {
            return Err(BadPool::TooMany(name.clone(), members.len()));
        }
        let mut found: Vec<Member> = Vec::with_capacity(members.len());
        for member in members {
            if found.iter().any(|before| before.name == *member) {
                return Err(BadPool::Twice(name.clone(), member.clone()));
            }
            let model = self.find(member).ok_or_else(|| BadPool::Unknown(name.clone(), member.clone()))?;
            found.push(Member { name: member.clone(), model });
        }
        self.pools.insert(name.clone(), found.into());
        Ok(())
    }

    /// Returns the model of sessions without a model name.
    pub fn fallback(&self) -> &Arc<dyn Model> {
        &self.fallback
    }

    /// Returns the reason why the model `name`, which the source creates on demand, cannot answer. Either the source
    /// does not know the name, so that the fallback would be called, or the model is [unusable](Model::unusable).
    ///
    /// Blocks while the source creates the model. The model is not kept.
    pub fn unusable(&self, name: &Text) -> Option<String> {
        let source = self.source.as_ref()?;
        if **name == *self.fallback.name() || self.pools.contains_key(name) || self.named.contains_key(name) {
            return None;
        }
        let created = self.lock().get(name).cloned();
        match created.or_else(|| source(name)) {
            Some(model) => model.unusable().map(str::to_owned),
            None => Some(format!(
                "unknown model {name:?}, or its provider's key is missing: name one of the host's own, or a provider's as \
                 PROVIDER/MODEL"
            )),
        }
    }

    pub fn has_pool(&self, name: &str) -> bool {
        self.pools.contains_key(name)
    }

    pub fn route(&self, name: &Text) -> Route {
        if let Some(members) = self.pools.get(name) {
            return Route::Pool(Arc::clone(members));
        }
        let model = self.find(name).unwrap_or_else(|| Arc::clone(&self.fallback));
        Route::One(Member { name: Arc::clone(name), model })
    }

    /// Returns whether a call for `name` may leave the process. Such a call waits for its intent record.
    pub fn leaves_process(&self, name: &Text) -> bool {
        match self.route(name) {
            Route::One(member) => member.model.leaves_process(),
            Route::Pool(members) => members.iter().any(|member| member.model.leaves_process()),
        }
    }

    /// Picks the model to call for `name`. In a pool, this is the first healthy member. If none is healthy, it is the member that recovers first,
    /// because a short outage must not select a member whose key is refused.
    pub fn pick(&self, name: &Text) -> PickedModel {
        match self.route(name) {
            Route::One(member) => {
                let is_fallback = Arc::ptr_eq(&member.model, &self.fallback) && *member.name != *self.fallback.name();
                PickedModel { member, pool: false, is_fallback }
            }
            Route::Pool(members) => {
                let healthy = members.iter().find(|member| self.health.is_healthy(&member.name));
                let first_to_recover = || members.iter().min_by_key(|member| self.health.healthy_from(&member.name));
                // A pool has at least one member.
                let member = healthy.or_else(first_to_recover).cloned();
                let fallback = || Member { name: self.fallback.name().into(), model: Arc::clone(&self.fallback) };
                PickedModel { member: member.unwrap_or_else(fallback), pool: true, is_fallback: false }
            }
        }
    }

    /// Returns the next healthy member of the pool `name` after `failed`. Returns `None` at the end of the pool: then the last member is retried.
    pub fn after(&self, name: &Text, failed: &Text) -> Option<Text> {
        let members = self.pools.get(name)?;
        let mut later = members.iter().skip_while(|member| member.name != *failed).skip(1);
        later.find(|member| self.health.is_healthy(&member.name)).map(|member| Arc::clone(&member.name))
    }

    /// Returns the members of the pool `name` that wait for a reset, in the order of the pool. Each has the milliseconds until its reset.
    pub fn resets(&self, name: &Text) -> Vec<(Member, u64)> {
        let members = self.pools.get(name).map_or(&[][..], |members| members);
        let waits = |member: &Member| Some((member.clone(), self.health.reset_ms(&member.name)?));
        members.iter().filter_map(waits).collect()
    }

    /// Records a failure: pools skip the model for a while.
    pub fn failed(&self, member: &Text, error: ModelFail, retry_after_ms: Option<u64>) {
        self.health.record_failure(member, error, retry_after_ms);
    }

    /// Records an answer: pools use the model again.
    pub fn answered(&self, member: &Text) {
        self.health.record_answer(member);
    }

    fn find(&self, name: &Text) -> Option<Arc<dyn Model>> {
        if let Some(model) = self.named.get(name) {
            return Some(Arc::clone(model));
        }
        let source = self.source.as_ref()?;
        if let Some(created) = self.lock().get(name) {
            return Some(Arc::clone(created));
        }
        // Create the model without the lock, because a source may be slow. If two callers create it, the first model is kept.
        let model = source(name)?;
        let mut created = self.lock();
        if created.len() >= MAX_CREATED && !created.contains_key(name) {
            created.retain(|_, model| Arc::strong_count(model) > 1);
        }
        Some(Arc::clone(created.entry(Arc::clone(name)).or_insert(model)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Text, Arc<dyn Model>>> {
        self.created.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Debug)]
pub struct PickedModel {
    pub member: Member,
    /// True if the requested name is a pool. Then records must contain the name of the member.
    pub pool: bool,
    /// True if the fallback is called, because the name is unknown.
    pub is_fallback: bool,
}

#[cfg(test)]
mod tests;
