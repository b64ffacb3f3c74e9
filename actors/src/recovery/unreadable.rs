//! Unreadable sessions remain as they are, and their waiting owners are notified.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{SessionId, Text};
use subtend_session::index;
use subtend_session::record::Notice;
use subtend_session::state::State;

/// The unreadable sessions, each with its reason.
/// They are not recorded, since the next host may find them repaired: each activation of an owner gets the notice until it has handled it.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<HashMap<SessionId, Text>>);

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Text>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, session: SessionId, why: &str) {
        self.lock().insert(session, why.into());
    }

    /// Returns the ends that the session of `state` expects from unreadable children.
    pub(crate) fn owed_notices(&self, state: &State) -> Vec<Notice> {
        let known = self.lock();
        if known.is_empty() {
            return Vec::new();
        }
        let owed = state.children.iter().filter_map(|(child, it)| Some((*child, it.key?, known.get(child)?)));
        owed.map(|(child, key, why)| index::unreadable_from(child, key, why)).collect()
    }
}
