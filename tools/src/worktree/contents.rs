//! Contents of large files in memory. A merge holds up to three of 64 MiB, and merges and patches run at the same time: the process holds
//! those of one file at a time.

use std::ffi::OsStr;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::git::GitPlace;
use super::{WorktreeError, Worktrees};
use crate::workspace::Workspace;
use crate::workspace::state::{PathState, read_entry};

/// Maximum size of a merged file.
const MAX_FILE: u64 = 64 << 20;
/// Maximum bytes of a content that needs no turn.
const MAX_SMALL: u64 = 1 << 20;

static TURN: Mutex<()> = Mutex::new(());

/// The turn of a thread to hold the contents of one file, taken for the first large one. While it is held, the thread takes no other lock or
/// permit, so that no two threads wait for each other.
#[derive(Default)]
pub(super) struct ContentsTurn(Option<MutexGuard<'static, ()>>);

impl ContentsTurn {
    /// Waits for the turn, if a content of this size needs it. Blocks.
    pub(super) fn take_for(&mut self, bytes: u64) {
        if self.0.is_none() && bytes > MAX_SMALL {
            #[cfg(test)]
            WATCH.with_borrow_mut(|watch| watch(true));
            self.0 = Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Gives the turn up. Call it while no large content is in memory.
    pub(super) fn release(&mut self) {
        self.0 = None;
        #[cfg(test)]
        WATCH.with_borrow_mut(|watch| watch(false));
    }

    /// Reads the entry at `path` without following links.
    pub(super) fn read_entry(&mut self, target: &Workspace, path: &str) -> io::Result<PathState> {
        if self.0.is_none() {
            match read_entry(target, path, MAX_SMALL) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => self.take_for(MAX_FILE),
                read => return read,
            }
        }
        read_entry(target, path, MAX_FILE)
    }
}

impl Worktrees {
    /// Returns the output of a command that prints an object. Its size is not known before, so that a large one is printed twice.
    pub(super) fn content<A: AsRef<OsStr>>(
        &self,
        at: &GitPlace,
        args: &[A],
        turn: &mut ContentsTurn,
    ) -> Result<Vec<u8>, WorktreeError> {
        if turn.0.is_none() {
            let start = self.git.run_for_start(at, args, MAX_SMALL.saturating_add(1))?;
            let length = u64::try_from(start.len()).unwrap_or(u64::MAX);
            if length <= MAX_SMALL {
                return Ok(start);
            }
            drop(start);
            turn.take_for(length);
        }
        self.git.run(at, args)
    }
}

#[cfg(test)]
thread_local! {
    /// Called before this thread waits for the turn (true), and when it has given it up (false).
    pub(super) static WATCH: std::cell::RefCell<Box<dyn FnMut(bool)>> = std::cell::RefCell::new(Box::new(|_| {}));
}

#[cfg(test)]
impl ContentsTurn {
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}
