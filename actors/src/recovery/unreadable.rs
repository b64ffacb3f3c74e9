//! Sessions that cannot be read any more: they stay as they are (J-8), and whoever waits for an end of theirs is told (S-6).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{SessionId, Text};
use subtend_session::index;
use subtend_session::record::Notice;
use subtend_session::state::State;

/// Which they are, and why each cannot be read.
///
/// No record says it, since the next host may find them mended. So it is kept for this one, and an owner hears it again from
/// each of its activations, until it has taken it.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<HashMap<SessionId, Text>>);

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Text>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers one.
    pub(crate) fn add(&self, session: SessionId, why: &str) {
        self.lock().insert(session, why.into());
    }

    /// What the session of `state` is owed of children that cannot be read: the ends that it waits for.
    pub(crate) fn owed(&self, state: &State) -> Vec<Notice> {
        let known = self.lock();
        if known.is_empty() {
            return Vec::new();
        }
        let owed = state.children.iter().filter_map(|(child, it)| Some((*child, it.key?, known.get(child)?)));
        owed.map(|(child, key, why)| index::unreadable_from(child, key, why)).collect()
    }
}
