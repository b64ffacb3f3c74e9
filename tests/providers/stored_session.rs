//! The contents of the store after the command has ended.

use serde_json::Value;
use subtend::journal::{StoreSpec, open_store};

use super::call::{User, no_forks};

#[derive(Clone, Debug)]
pub(crate) struct StoredSession {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) records: Vec<Value>,
    /// Unix times in milliseconds at which the records were written.
    pub(crate) at_ms: Vec<i64>,
}

impl StoredSession {
    pub(crate) fn of(&self, kind: &str) -> Vec<&Value> {
        self.records.iter().filter_map(|record| record.get(kind)).collect()
    }

    pub(crate) fn times(&self, kind: &str) -> Vec<i64> {
        let of = self.records.iter().zip(&self.at_ms).filter(|(record, _)| record.get(kind).is_some());
        of.map(|(_, at)| *at).collect()
    }
}

/// Returns all sessions: a parent before its children, children in the order of their creation.
pub(crate) fn stored_sessions(user: &User) -> Vec<StoredSession> {
    let verified = user.call(&["verify"]);
    assert_eq!((verified.code, verified.err.as_str()), (Some(0), ""), "{verified:?}");
    let _alone = no_forks();
    let journal = open_store(&StoreSpec::Redb(user.data().join("redb"))).expect("the store opens");
    let mut heads = journal.heads().expect("heads");
    heads.sort_by_key(|(id, head)| (head.depth, *id));
    let session = |(id, head): &(_, subtend::format::Head)| {
        let stored = journal.records(*id).expect("records");
        StoredSession {
            id: id.to_string(),
            short: head.short.to_string(),
            records: stored.iter().map(|stored| serde_json::to_value(&stored.record).expect("json")).collect(),
            at_ms: stored.iter().map(|stored| stored.at_ms).collect(),
        }
    };
    let all = heads.iter().map(session).collect();
    // The store is closed before this returns.
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(journal.close()).expect("nothing was written");
    all
}

pub(crate) fn only(user: &User) -> StoredSession {
    let mut all = stored_sessions(user);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}
