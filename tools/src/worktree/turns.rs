//! Turns of git commands, which bound the memory that they take together.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of threads, which wait for them without a runtime. A repository has one at a time, so that one in which git takes minutes leaves
/// turns for others.
pub(super) struct GitTurns {
    count: usize,
    /// The repositories of the turns that are taken.
    taken: Mutex<Vec<PathBuf>>,
    freed: Condvar,
}

/// A turn, which ends when it is dropped.
pub(super) struct GitTurn<'a> {
    turns: &'a GitTurns,
    of: PathBuf,
}

impl GitTurns {
    pub(super) const fn new(count: usize) -> Self {
        Self { count, taken: Mutex::new(Vec::new()), freed: Condvar::new() }
    }

    /// Waits for a turn. Blocks.
    pub(super) fn take(&self, repository: Option<&PathBuf>) -> GitTurn<'_> {
        let of = repository.cloned().unwrap_or_default();
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let must_wait = |taken: &mut Vec<PathBuf>| taken.len() >= self.count || taken.contains(&of);
        let mut taken = self.freed.wait_while(taken, must_wait).unwrap_or_else(PoisonError::into_inner);
        taken.push(of.clone());
        GitTurn { turns: self, of }
    }
}

impl Drop for GitTurn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = taken.iter().position(|of| *of == self.of) {
            taken.swap_remove(at);
        }
        // All of them, because the first may wait for another repository.
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(turns: &GitTurns) -> Vec<PathBuf> {
        turns.taken.lock().unwrap().clone()
    }

    #[test]
    fn third_command_waits_for_a_turn() {
        static TURNS: GitTurns = GitTurns::new(2);
        let [a, b, c] = ["a", "b", "c"].map(PathBuf::from);
        let (first, second) = (TURNS.take(Some(&a)), TURNS.take(Some(&b)));
        let third = std::thread::spawn(move || {
            let _turn = TURNS.take(Some(&c));
            taken(&TURNS)
        });
        assert_eq!(taken(&TURNS), [a, b.clone()]);
        drop(first);
        assert_eq!(third.join().unwrap(), [b, "c".into()], "expected a turn only after another one ended");
        drop(second);
        assert!(taken(&TURNS).is_empty());
    }

    /// Attack: git takes minutes in one repository. The control: its second command waits.
    #[test]
    fn repository_has_one_turn_at_a_time() {
        static TURNS: GitTurns = GitTurns::new(2);
        let [slow, other] = ["slow", "other"].map(PathBuf::from);
        let first = TURNS.take(Some(&slow));
        let second = std::thread::spawn({
            let slow = slow.clone();
            move || {
                let _turn = TURNS.take(Some(&slow));
                taken(&TURNS)
            }
        });
        drop(TURNS.take(Some(&other)));
        assert_eq!(taken(&TURNS), std::slice::from_ref(&slow));
        drop(first);
        assert_eq!(second.join().unwrap(), [slow]);
    }
}
