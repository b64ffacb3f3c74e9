//! The jobs that a call of `spawn_await` names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use crate::dialect::Dialect;
use crate::ids::{CallId, SessionId};
use crate::state::{Child, State};

pub const AWAIT: &str = "spawn_await";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jobs {
    /// All jobs of the caller.
    All,
    /// These, in this order, as the model wrote them, without duplicates.
    Named(Vec<String>),
}

impl Jobs {
    /// Reads `job_ids` or `jobIds`: ids separated by commas, or `*`. `None` without such a text.
    pub fn asked(args: &str) -> Option<Self> {
        let args: Value = serde_json::from_str(args).ok()?;
        let ids = args.get("job_ids").or_else(|| args.get("jobIds"))?.as_str()?;
        if ids.trim() == "*" {
            return Some(Self::All);
        }
        let mut seen = BTreeSet::new();
        let named = ids.split(',').map(str::trim).filter(|id| !id.is_empty() && seen.insert(*id));
        Some(Self::Named(named.map(str::to_owned).collect()))
    }

    /// Returns those of `state`'s session that are meant, in the order in which the call tells of them.
    pub fn meant(&self, state: &State) -> Vec<SessionId> {
        match self {
            Self::Named(named) => {
                let own = Own::of(state);
                named.iter().filter_map(|name| own.named(name)).map(|(id, _)| id).collect()
            }
            Self::All => {
                let mut all: Vec<_> = state.children.iter().filter(|(_, child)| is_job(child)).collect();
                all.sort_by_key(|(_, child)| child.call);
                all.into_iter().map(|(id, _)| *id).collect()
            }
        }
    }
}

/// The jobs of a session by their names for its model. Built once for a call, which may name very many.
pub struct Own<'a> {
    state: &'a State,
    shorts: BTreeMap<&'a str, SessionId>,
}

impl<'a> Own<'a> {
    pub fn of(state: &'a State) -> Self {
        let jobs = state.children.iter().filter(|(_, child)| is_job(child));
        Self { state, shorts: jobs.map(|(id, child)| (&*child.short.0, *id)).collect() }
    }

    /// Returns the job with this short or full id.
    pub fn named(&self, name: &str) -> Option<(SessionId, &'a Child)> {
        let full = || Uuid::try_parse(name).ok().map(SessionId);
        let id = self.shorts.get(name).copied().or_else(full)?;
        self.state.children.get(&id).filter(|child| is_job(child)).map(|child| (id, child))
    }
}

/// Returns the session's jobs in flight as far as it knows, each with its key, including those of an earlier run.
pub fn in_flight(state: &State) -> impl Iterator<Item = (SessionId, CallId)> {
    let owned = state.run.iter().flat_map(|run| run.owned.iter().map(|(key, owned)| (owned.child, *key)));
    let owed = state.owed.iter().map(|(key, child)| (*child, *key));
    owned.chain(owed).filter(|(child, _)| is_one(state, *child))
}

/// Returns whether `child` is a job of this session.
pub fn is_one(state: &State, child: SessionId) -> bool {
    state.children.get(&child).is_some_and(is_job)
}

fn is_job(child: &Child) -> bool {
    child.call.is_some() && child.dialect == Dialect::Spawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parted_by_commas_and_a_star_is_all() {
        let named = |ids: &[&str]| Some(Jobs::Named(ids.iter().map(|id| (*id).to_owned()).collect()));
        assert_eq!(Jobs::asked(r#"{"job_ids":"a3f9c1, b7d2e4 ,,"}"#), named(&["a3f9c1", "b7d2e4"]));
        assert_eq!(Jobs::asked(r#"{"job_ids":"b, a,b,a"}"#), named(&["b", "a"]));
        assert_eq!(Jobs::asked(r#"{"job_ids":" * "}"#), Some(Jobs::All));
        assert_eq!(Jobs::asked(r#"{"job_ids":"*,a3f9c1"}"#), named(&["*", "a3f9c1"]));
        assert_eq!(Jobs::asked(r#"{"job_ids":""}"#), named(&[]));
        for none in ["", "[]", r#"{"job_ids":7}"#, r#"{"jobs":"*"}"#] {
            assert_eq!(Jobs::asked(none), None, "{none}");
        }
    }
}
