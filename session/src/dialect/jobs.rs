//! The jobs that a call of `spawn_await` waits for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use crate::dialect::Dialect;
use crate::ids::{CallId, SessionId};
use crate::state::{Child, State};
use crate::values::parse_recorded;

pub const AWAIT: &str = "spawn_await";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Jobs {
    All,
    /// The ids in the order in which the model wrote them, without duplicates.
    Named(Vec<String>),
}

impl Jobs {
    /// Parses `job_ids` or `jobIds`: ids separated by commas, or `*`. `None` if the text is missing.
    pub fn parse(args: &str) -> Option<Self> {
        let args: Value = parse_recorded(args).ok()?;
        let ids = args.get("job_ids").or_else(|| args.get("jobIds"))?.as_str()?;
        if ids.trim() == "*" {
            return Some(Self::All);
        }
        let mut seen = BTreeSet::new();
        let named = ids.split(',').map(str::trim).filter(|id| !id.is_empty() && seen.insert(*id));
        Some(Self::Named(named.map(str::to_owned).collect()))
    }

    /// Returns the requested jobs of the session, in the order in which the call's result lists them.
    pub fn resolve(&self, state: &State) -> Vec<SessionId> {
        match self {
            Self::Named(named) => {
                let index = JobIndex::of(state);
                named.iter().filter_map(|name| index.find(name)).map(|(id, _)| id).collect()
            }
            Self::All => {
                let mut all: Vec<_> = state.children.iter().filter(|(_, child)| is_job(child)).collect();
                all.sort_by_key(|(_, child)| child.call);
                all.into_iter().map(|(id, _)| *id).collect()
            }
        }
    }
}

/// The jobs of a session by short id. Built once for each call, which may name thousands.
pub struct JobIndex<'a> {
    state: &'a State,
    shorts: BTreeMap<&'a str, SessionId>,
}

impl<'a> JobIndex<'a> {
    pub fn of(state: &'a State) -> Self {
        let jobs = state.children.iter().filter(|(_, child)| is_job(child));
        Self { state, shorts: jobs.map(|(id, child)| (&*child.short.0, *id)).collect() }
    }

    /// Returns the job with this short or full id.
    pub fn find(&self, name: &str) -> Option<(SessionId, &'a Child)> {
        let full = || Uuid::try_parse(name).ok().map(SessionId);
        let id = self.shorts.get(name).copied().or_else(full)?;
        self.state.children.get(&id).filter(|child| is_job(child)).map(|child| (id, child))
    }
}

/// Returns the session's jobs in flight, each with its key, including jobs of earlier runs.
pub fn in_flight(state: &State) -> impl Iterator<Item = (SessionId, CallId)> {
    let owned = state.run.iter().flat_map(|run| run.owned.iter().map(|(key, owned)| (owned.child, *key)));
    let owed = state.owed.iter().map(|(key, child)| (*child, *key));
    owned.chain(owed).filter(|(child, _)| is_job_of(state, *child))
}

pub fn is_job_of(state: &State, child: SessionId) -> bool {
    state.children.get(&child).is_some_and(is_job)
}

fn is_job(child: &Child) -> bool {
    child.call.is_some() && child.dialect == Dialect::Spawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_comma_separated_and_star_means_all() {
        let named = |ids: &[&str]| Some(Jobs::Named(ids.iter().map(|id| (*id).to_owned()).collect()));
        assert_eq!(Jobs::parse(r#"{"job_ids":"a3f9c1, b7d2e4 ,,"}"#), named(&["a3f9c1", "b7d2e4"]));
        assert_eq!(Jobs::parse(r#"{"job_ids":"b, a,b,a"}"#), named(&["b", "a"]));
        assert_eq!(Jobs::parse(r#"{"job_ids":" * "}"#), Some(Jobs::All));
        assert_eq!(Jobs::parse(r#"{"job_ids":"*,a3f9c1"}"#), named(&["*", "a3f9c1"]));
        assert_eq!(Jobs::parse(r#"{"job_ids":""}"#), named(&[]));
        for invalid in ["", "[]", r#"{"job_ids":7}"#, r#"{"jobs":"*"}"#] {
            assert_eq!(Jobs::parse(invalid), None, "{invalid}");
        }
    }
}
