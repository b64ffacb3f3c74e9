//! Locks of repeatable commands: a repetition sees the result of the first request, and a slow command delays no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use subtend_session::ids::SessionId;
use tokio::sync::OwnedMutexGuard;

/// Number of locks above which unused ones are removed.
const MAX_KEPT: usize = 64;

/// What a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CommandTarget {
    Session(SessionId),
    /// The session that a command with an idempotency key creates, by the part of its id that comes from the key.
    Key(u64),
}

/// The locks of a host.
#[derive(Debug, Default)]
pub(crate) struct CommandLocks(Mutex<HashMap<CommandTarget, Weak<tokio::sync::Mutex<()>>>>);

impl CommandLocks {
    /// Waits for other commands with the same target.
    pub(crate) async fn lock(&self, target: CommandTarget) -> OwnedMutexGuard<()> {
        self.of(target).lock_owned().await
    }

    fn of(&self, target: CommandTarget) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&target).and_then(Weak::upgrade) {
            return lock;
        }
        if locks.len() >= MAX_KEPT {
            locks.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::default();
        locks.insert(target, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// A client has commands for one session wait. The control: they wait for each other.
    #[tokio::test(start_paused = true)]
    async fn command_for_one_session_delays_no_other() {
        let locks = CommandLocks::default();
        let target = |n: u128| CommandTarget::Session(SessionId(uuid::Uuid::from_u128(n)));
        let slow = locks.lock(target(1)).await;
        for other in [target(2), CommandTarget::Key(1)] {
            timeout(Duration::from_secs(1), locks.lock(other)).await.expect("another target");
        }
        timeout(Duration::from_secs(60), locks.lock(target(1))).await.expect_err("the same target");
        drop(slow);
        timeout(Duration::from_secs(1), locks.lock(target(1))).await.expect("no other command");
    }

    /// A client may name any number of keys. The control: a lock that is held is kept.
    #[tokio::test]
    async fn unused_locks_are_removed() {
        let locks = CommandLocks::default();
        let _held = locks.lock(CommandTarget::Key(0)).await;
        for key in 1..1_000 {
            drop(locks.lock(CommandTarget::Key(key)).await);
        }
        assert!(locks.0.lock().expect("not poisoned").len() <= MAX_KEPT);
        assert!(locks.of(CommandTarget::Key(0)).try_lock().is_err());
    }
}
