//! Background processes of each tree, from their admission to the end of their run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;

/// The sessions of processes that run or are about to start, each with its root.
#[derive(Clone, Default)]
pub(crate) struct LiveProcesses(Arc<Mutex<HashMap<SessionId, SessionId>>>);

/// Processes that one admission starts. On drop, those that were not created no longer count.
pub(crate) struct ProcessGrants {
    live: LiveProcesses,
    root: SessionId,
    granted: Vec<SessionId>,
}

impl LiveProcesses {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn grants(&self, root: SessionId) -> ProcessGrants {
        ProcessGrants { live: self.clone(), root, granted: Vec::new() }
    }

    /// Removes `session`, whose run has ended.
    pub(crate) fn end(&self, session: SessionId) {
        self.all().remove(&session);
    }
}

impl ProcessGrants {
    /// Returns whether the tree has fewer than `most` processes.
    pub(crate) fn fits(&self, most: u32) -> bool {
        below(&self.live.all(), self.root, most)
    }

    /// Counts `process`, unless the tree has `most` already. Sessions of one tree may start processes at the same time.
    pub(crate) fn take(&mut self, process: SessionId, most: u32) -> bool {
        let mut all = self.live.all();
        if !below(&all, self.root, most) {
            return false;
        }
        all.insert(process, self.root);
        self.granted.push(process);
        true
    }

    /// Keeps the processes that were created.
    pub(crate) fn commit(mut self, created: impl Fn(SessionId) -> bool) {
        self.granted.retain(|process| !created(*process));
    }
}

impl Drop for ProcessGrants {
    fn drop(&mut self) {
        self.granted.iter().for_each(|process| self.live.end(*process));
    }
}

fn below(all: &HashMap<SessionId, SessionId>, root: SessionId, most: u32) -> bool {
    all.values().filter(|of| **of == root).count() < usize::try_from(most).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(of: u128) -> SessionId {
        SessionId(Uuid::from_u128(of))
    }

    #[test]
    fn only_created_processes_count_until_they_end() {
        let live = LiveProcesses::default();
        let (mut first, mut other) = (live.grants(id(1)), live.grants(id(1)));
        assert_eq!((first.take(id(2), 2), other.take(id(3), 2), first.take(id(4), 2)), (true, true, false));
        assert!(live.grants(id(9)).take(id(8), 1), "another tree");
        first.commit(|process| process == id(2));
        drop(other);
        assert_eq!((live.grants(id(1)).fits(1), live.grants(id(1)).fits(2)), (false, true));
        live.end(id(2));
        assert!(live.all().is_empty());
    }
}
