//! Locks for repeatable commands, one per target: a repeated request waits for the result of the first.

use subtend_session::ids::SessionId;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::shared_by_key::SharedByKey;

/// What a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CommandTarget {
    Session(SessionId),
    /// The session that a command with an idempotency key creates, by the part of its id that is derived from the key.
    Key(u64),
}

#[derive(Debug, Default)]
pub(crate) struct CommandLocks(SharedByKey<CommandTarget, Mutex<()>>);

impl CommandLocks {
    /// Waits for other commands with the same target.
    pub(crate) async fn lock(&self, target: CommandTarget) -> OwnedMutexGuard<()> {
        self.0.get(target, Mutex::default).lock_owned().await
    }

    /// Returns `None` if another command with the same target runs.
    pub(crate) fn try_lock(&self, target: CommandTarget) -> Option<OwnedMutexGuard<()>> {
        self.0.get(target, Mutex::default).try_lock_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// The control: commands for one session wait for each other.
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
        timeout(Duration::from_secs(1), locks.lock(target(1))).await.expect("the lock was released");
    }
}
