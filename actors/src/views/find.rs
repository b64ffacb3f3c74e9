//! Finds a session by a name that a person gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use subtend_journal::ReadError;
use subtend_session::ids::SessionId;
use subtend_session::index::Head;

use crate::handle::SessionHandle;
use crate::runtime::Runtime;

#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("{name:?} matches {} sessions. Give more of the id, or a path", among.len())]
    Ambiguous { name: String, among: Vec<SessionId> },
    #[error(transparent)]
    Read(#[from] ReadError),
}

pub type Heads = BTreeMap<SessionId, Head>;

/// Minimum number of digits in a prefix of an id.
const MIN_PREFIX_DIGITS: usize = 4;

impl Runtime {
    /// Returns the session with the name `name`, by the rules of [`named`]; `None` if no session matches.
    pub async fn find(&self, name: &str) -> Result<Option<SessionHandle>, FindError> {
        // A poisoned journal can still be read.
        drop(self.components.log.journal.settled().await);
        let name = name.trim();
        if let Ok(id) = name.parse::<SessionId>() {
            return Ok(self.session(id)?);
        }
        let wanted = name.to_owned();
        let among = self.components.log.read_whole(move |journal| {
            let heads: Heads = journal.heads_without_titles()?.into_iter().filter(|(_, head)| !head.deleted).collect();
            let root = |id| heads.get(&id).map_or(id, |head| head.root);
            Ok::<_, ReadError>(named(&heads, &wanted).into_iter().map(|id| (id, root(id))).collect::<Vec<_>>())
        });
        match among.await?.as_slice() {
            [] => Ok(None),
            [(id, root)] => {
                Ok(Some(SessionHandle { sessions: Arc::clone(&self.components.sessions), id: *id, root: *root }))
            }
            among => {
                let among = among.iter().map(|(id, _)| *id).collect();
                Err(FindError::Ambiguous { name: name.to_owned(), among })
            }
        }
    }
}

/// Returns the sessions of `heads` that match `name`. A name is one of:
/// - a full id, or the `task_…` id of a task
/// - a prefix of an id with at least four digits
/// - a short name
/// - a path of short names such as `root/a3f9c1`, in which `root` means any root
pub fn named(heads: &Heads, name: &str) -> BTreeSet<SessionId> {
    let name = name.trim();
    // A task's id is its session's id with a prefix.
    let name = name.strip_prefix("task_").unwrap_or(name);
    match name.split_once('/') {
        _ if name.is_empty() => BTreeSet::new(),
        Some((_, rest)) if rest.split('/').any(str::is_empty) => BTreeSet::new(),
        Some((first, rest)) => by_path(heads, first, rest),
        None if name == "root" => by_path(heads, name, ""),
        None => by_name_or_prefix(heads, name, heads.keys().copied().collect()),
    }
}

/// Resolves a path: a root (any, for the word `root`), then names downwards.
fn by_path(heads: &Heads, first: &str, rest: &str) -> BTreeSet<SessionId> {
    let roots: BTreeSet<_> = heads.iter().filter(|(_, head)| head.parent.is_none()).map(|(id, _)| *id).collect();
    let start = match first {
        "root" | "" => roots,
        word => by_name_or_prefix(heads, word, roots),
    };
    let mut above = start;
    for part in rest.split('/').filter(|part| !part.is_empty()) {
        // Each part reads all heads, and a name may have a million parts.
        if above.is_empty() {
            break;
        }
        let below = heads.iter().filter(|(_, head)| head.parent.is_some_and(|parent| above.contains(&parent)));
        above = by_name_or_prefix(heads, part, below.map(|(id, _)| *id).collect());
    }
    above
}

/// Returns the sessions of `among` with the short name `word`, or else those whose id starts with it.
fn by_name_or_prefix(heads: &Heads, word: &str, among: BTreeSet<SessionId>) -> BTreeSet<SessionId> {
    let word = word.to_ascii_lowercase();
    let short = |id: &SessionId| heads.get(id).is_some_and(|head| *head.short.0 == *word);
    let named: BTreeSet<_> = among.iter().copied().filter(short).collect();
    if !named.is_empty() {
        return named;
    }
    let prefix: String = word.chars().filter(|c| *c != '-').collect();
    let begins = |id: &SessionId| id.0.simple().to_string().starts_with(&prefix);
    among.into_iter().filter(|id| prefix.len() >= MIN_PREFIX_DIGITS && begins(id)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;
    use crate::handle::BranchOptions;
    use crate::runtime::OpenOptions;

    fn id(n: u128) -> SessionId {
        SessionId(uuid::Uuid::from_u128(n))
    }

    fn head(n: u128, parent: Option<u128>) -> (SessionId, Head) {
        let head = json!({
            "parent": parent.map(id), "root": id(1), "short": format!("{n:06x}"), "agent": "a", "depth": 0, "inspectable": true, "last_seq": 1,
            "epoch": 1, "state": "quiet", "last_outcome": null, "title": "", "created_ms": 0, "updated_ms": 0,
        });
        (id(n), serde_json::from_value(head).expect("a head"))
    }

    /// Many commands at a time read a session of megabytes. The control: a merge of metadata reads no records.
    #[tokio::test]
    async fn commands_that_read_a_whole_session_need_a_permit() {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(Arc::new(model)).start().await.expect("a runtime");
        let session = runtime.open(OpenOptions::agent("general")).expect("a session");
        session.merge_metadata(json!({ "a": 1 })).await.expect("merged");
        tokio::time::pause();
        let all = runtime.components.log.reads.acquire_many(4).await.expect("all permits");
        // First, because an idle session ends its actor in virtual time.
        let merged = session.merge_metadata(json!({ "b": 2 })).await.expect("merged");
        assert_eq!(Value::from(merged), json!({ "a": 1, "b": 2 }));
        let limit = Duration::from_millis(1);
        assert!(timeout(limit, runtime.find("root")).await.is_err());
        assert!(timeout(limit, session.metadata()).await.is_err());
        assert!(timeout(limit, session.branch(BranchOptions::default())).await.is_err());
        assert!(timeout(limit, session.regenerate(None)).await.is_err());
        drop(all);
        assert_eq!(runtime.find("root").await.expect("found").map(|found| found.id()), Some(session.id()));
        assert!(session.metadata().await.is_ok());
    }

    /// Reading each head for each part of a path of megabytes would take minutes. The control: three levels.
    #[test]
    fn path_of_many_parts_takes_bounded_time() {
        let children = (4..10_000).map(|n| head(n, Some(1)));
        let heads: Heads = [head(1, None), head(2, Some(1)), head(3, Some(2))].into_iter().chain(children).collect();
        assert_eq!(named(&heads, "root/000002/000003"), BTreeSet::from([id(3)]));
        assert_eq!(named(&heads, &format!("root{}", "/000002".repeat(500_000))), BTreeSet::new());
    }
}
