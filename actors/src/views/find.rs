//! Finding a session by what a person calls it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use subtend_journal::ReadError;
use subtend_session::ids::SessionId;
use subtend_session::index::Head;

use crate::handle::SessionHandle;
use crate::runtime::Runtime;

/// Why no session was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Several are called so.
    #[error("{name:?} may be any of {} sessions: give more of the id, or a path", among.len())]
    Ambiguous {
        /// What was given.
        name: String,
        /// Which they are.
        among: Vec<SessionId>,
    },
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The heads of sessions that can be found.
pub type Heads = BTreeMap<SessionId, Head>;

/// Digits of the shortest prefix of an id that means a session.
const PREFIX: usize = 4;

impl Runtime {
    /// The session that a person calls `name`: as [`named`] says, where it is the only one.
    ///
    /// # Errors
    /// [`FindError`]; where there is none the answer is `None`.
    ///
    /// # Cancel safety
    /// Safe: dropping the future changes nothing.
    pub async fn find(&self, name: &str) -> Result<Option<SessionHandle>, FindError> {
        // A journal that failed still says what it has.
        drop(self.rooms.log.journal.settled().await);
        let name = name.trim();
        if let Ok(id) = name.parse::<SessionId>() {
            return Ok(self.session(id)?);
        }
        let heads: Heads = self.rooms.log.journal.heads()?.into_iter().filter(|(_, head)| !head.deleted).collect();
        let mut among = named(&heads, name).into_iter();
        let (Some(id), second) = (among.next(), among.next()) else { return Ok(None) };
        if let Some(second) = second {
            let among = [id, second].into_iter().chain(among).collect();
            return Err(FindError::Ambiguous { name: name.to_owned(), among });
        }
        let root = heads.get(&id).map_or(id, |head| head.root);
        Ok(Some(SessionHandle { sessions: Arc::clone(&self.rooms.sessions), id, root }))
    }
}

/// The sessions of `heads` that `name` may mean: by a whole id, the `task_…` id of a task, a prefix of four digits or more, a short name, or a path of
/// those from a root down, such as `root/a3f9c1`, where the word `root` stands for any root. The middle of an id means none.
pub fn named(heads: &Heads, name: &str) -> BTreeSet<SessionId> {
    let name = name.trim();
    // A task's id is that of its session, with a prefix.
    let name = name.strip_prefix("task_").unwrap_or(name);
    match name.split_once('/') {
        _ if name.is_empty() => BTreeSet::new(),
        Some((first, rest)) => by_path(heads, first, rest),
        None if name == "root" => by_path(heads, name, ""),
        None => by_word(heads, name, heads.keys().copied().collect()),
    }
}

/// A path: the root (any, where the word is `root`), then names downwards.
fn by_path(heads: &Heads, first: &str, rest: &str) -> BTreeSet<SessionId> {
    let roots: BTreeSet<_> = heads.iter().filter(|(_, head)| head.parent.is_none()).map(|(id, _)| *id).collect();
    let start = match first {
        "root" | "" => roots,
        word => by_word(heads, word, roots),
    };
    rest.split('/').filter(|part| !part.is_empty()).fold(start, |above, part| {
        let below = heads.iter().filter(|(_, head)| head.parent.is_some_and(|parent| above.contains(&parent)));
        by_word(heads, part, below.map(|(id, _)| *id).collect())
    })
}

/// Of `among`, the sessions with that short name; without any, those whose id begins with the word.
fn by_word(heads: &Heads, word: &str, among: BTreeSet<SessionId>) -> BTreeSet<SessionId> {
    let word = word.to_ascii_lowercase();
    let short = |id: &SessionId| heads.get(id).is_some_and(|head| *head.short.0 == *word);
    let named: BTreeSet<_> = among.iter().copied().filter(short).collect();
    if !named.is_empty() {
        return named;
    }
    let prefix: String = word.chars().filter(|c| *c != '-').collect();
    let begins = |id: &SessionId| id.0.simple().to_string().starts_with(&prefix);
    among.into_iter().filter(|id| prefix.len() >= PREFIX && begins(id)).collect()
}
