//! Which model answers for a name: its own, a pool's, one that is made on demand, or the one that answers for all.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;

use crate::model::Model;

use health::Health;

mod health;

/// Makes the model of a name, where it knows the name.
pub type Source = dyn Fn(&str) -> Option<Arc<dyn Model>> + Send + Sync;

/// Members of one pool at most: each may be asked once in a turn.
pub const MAX_MEMBERS: usize = 16;

/// The models of a runtime.
///
/// A name stands for, in this order: a pool of that name, a model of that name, the model that the source makes of it, the
/// model that answers for all.
pub struct Models {
    named: HashMap<Text, Arc<dyn Model>>,
    pools: HashMap<Text, Arc<[Member]>>,
    source: Option<Arc<Source>>,
    /// What the source made of each name it was asked for.
    made: Mutex<HashMap<Text, Arc<dyn Model>>>,
    fallback: Arc<dyn Model>,
    health: Health,
}

/// A model of a pool.
#[derive(Clone)]
pub struct Member {
    /// Its name.
    pub name: Text,
    /// The model.
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

/// What a name stands for.
#[derive(Clone, Debug)]
pub enum Route {
    /// One model.
    One(Member),
    /// Several, in the order in which they are asked.
    Pool(Arc<[Member]>),
}

/// A pool that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPool {
    /// It has no members.
    #[error("the pool {0:?} has no models: name at least one")]
    Empty(Text),
    /// It has too many.
    #[error("the pool {0:?} has {1} models; {MAX_MEMBERS} are the most that a turn tries")]
    TooMany(Text, usize),
    /// A member is named twice: in one turn each is asked once.
    #[error("the pool {0:?} names the model {1:?} twice")]
    Twice(Text, Text),
    /// A member is no model.
    #[error(
        "the pool {0:?} names {1:?}, and there is no such model: name one of the host's own, or a provider's as PROVIDER/MODEL"
    )]
    Unknown(Text, Text),
}

impl Models {
    /// Models by name, with the one that answers for every other name, and the source of those that are made on demand.
    pub fn new(named: HashMap<Text, Arc<dyn Model>>, source: Option<Arc<Source>>, fallback: Arc<dyn Model>) -> Self {
        let (pools, made) = (HashMap::new(), Mutex::default());
        Self { named, pools, source, made, fallback, health: Health::default() }
    }

    /// Adds a pool: a name that stands for several models, which are asked in this order.
    ///
    /// # Errors
    /// [`BadPool`]; then the pool is not added.
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
            let model = self.known(member).ok_or_else(|| BadPool::Unknown(name.clone(), member.clone()))?;
            found.push(Member { name: member.clone(), model });
        }
        self.pools.insert(name.clone(), found.into());
        Ok(())
    }

    /// The name that sessions without one of their own are opened with.
    pub fn fallback(&self) -> &Arc<dyn Model> {
        &self.fallback
    }

    /// Whether there is a pool of that name.
    pub fn has_pool(&self, name: &str) -> bool {
        self.pools.contains_key(name)
    }

    /// What `name` stands for.
    pub fn route(&self, name: &Text) -> Route {
        if let Some(members) = self.pools.get(name) {
            return Route::Pool(Arc::clone(members));
        }
        let model = self.known(name).unwrap_or_else(|| Arc::clone(&self.fallback));
        Route::One(Member { name: Arc::clone(name), model })
    }

    /// Whether a call for `name` may leave the process: then it waits for its intent record (J-5).
    pub fn leaves_process(&self, name: &Text) -> bool {
        match self.route(name) {
            Route::One(member) => member.model.leaves_process(),
            Route::Pool(members) => members.iter().any(|member| member.model.leaves_process()),
        }
    }

    /// The model to call for `name`: of a pool the first that is not known to be unwell. Where all are, the one that is to be
    /// well first: one whose key is refused must not be asked because another one had a hiccup.
    pub fn pick(&self, name: &Text) -> Picked {
        match self.route(name) {
            Route::One(member) => {
                let stands_in = Arc::ptr_eq(&member.model, &self.fallback) && *member.name != *self.fallback.name();
                Picked { member, pool: false, stands_in }
            }
            Route::Pool(members) => {
                let well = members.iter().find(|member| self.health.is_well(&member.name));
                let soonest = || members.iter().min_by_key(|member| self.health.well_from(&member.name));
                // A pool has at least one member.
                let member = well.or_else(soonest).cloned();
                let fallback = || Member { name: self.fallback.name().into(), model: Arc::clone(&self.fallback) };
                Picked { member: member.unwrap_or_else(fallback), pool: true, stands_in: false }
            }
        }
    }

    /// The model to ask after `failed`, in a turn of a session whose model is called `name`: the next of its pool that is not
    /// known to be unwell. None at the pool's end: whoever failed last is asked again, in time.
    pub fn after(&self, name: &Text, failed: &Text) -> Option<Text> {
        let members = self.pools.get(name)?;
        let mut later = members.iter().skip_while(|member| member.name != *failed).skip(1);
        later.find(|member| self.health.is_well(&member.name)).map(|member| Arc::clone(&member.name))
    }

    /// A model failed: pools pass it over for a while.
    pub fn failed(&self, member: &Text, error: ModelFail, retry_after_ms: Option<u64>) {
        self.health.failed(member, error, retry_after_ms);
    }

    /// A model answered: pools ask it again.
    pub fn answered(&self, member: &Text) {
        self.health.answered(member);
    }

    fn known(&self, name: &Text) -> Option<Arc<dyn Model>> {
        if let Some(model) = self.named.get(name) {
            return Some(Arc::clone(model));
        }
        let source = self.source.as_ref()?;
        if let Some(made) = self.lock().get(name) {
            return Some(Arc::clone(made));
        }
        // Made without the lock: a source may take its time. Of two at once, the first stays.
        let model = source(name)?;
        Some(Arc::clone(self.lock().entry(Arc::clone(name)).or_insert(model)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Text, Arc<dyn Model>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The model that is called.
#[derive(Clone, Debug)]
pub struct Picked {
    /// Which.
    pub member: Member,
    /// Whether the session's name for it stands for several, so that records have to say which one it was.
    pub pool: bool,
    /// Whether the name has no model of its own, and the one that answers for all is called.
    pub stands_in: bool,
}

#[cfg(test)]
mod tests;
