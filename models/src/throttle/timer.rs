//! The one task that looks at the quotas when their time has come.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use super::shared::Shared;

/// The longest single sleep: keeps far times inside what the clock can express.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 60 * 60);

/// What is known of the task.
#[derive(Debug, Default)]
pub(super) struct Timer {
    on: bool,
    /// What it sleeps for; without, until it is called.
    asleep_until: Option<Instant>,
    /// Where the last call that waits was polled: a place may be given back, and a time be due, outside of tokio.
    home: Option<Handle>,
}

/// What is to be done for the task once the lock is released.
#[derive(Debug)]
pub(super) enum Alarm {
    /// Nothing.
    None,
    /// It must look again.
    Call,
    /// There is none yet.
    Spawn(Handle),
}

impl Timer {
    /// A call waits: should the task be needed, it can be spawned here.
    pub(super) fn settle_here(&mut self) {
        if !self.on {
            self.home = Handle::try_current().ok();
        }
    }

    /// The task looks at what is due first and goes to sleep.
    pub(super) fn sleep(&mut self, until: Option<Instant>) {
        self.asleep_until = until;
    }

    /// The task is over.
    pub(super) fn stop(&mut self) {
        *self = Self { on: false, asleep_until: None, home: None };
    }

    /// What is to be done, now that this is due first.
    pub(super) fn alarm(&mut self, due: Option<Instant>) -> Alarm {
        let Some(due) = due else { return Alarm::None };
        if self.on {
            // Asleep for something earlier it looks again by itself.
            if self.asleep_until.is_some_and(|until| until <= due) {
                return Alarm::None;
            }
            self.asleep_until = Some(due);
            return Alarm::Call;
        }
        let Some(home) = Handle::try_current().ok().or_else(|| self.home.clone()) else { return Alarm::None };
        self.on = true;
        self.asleep_until = Some(due);
        Alarm::Spawn(home)
    }
}

/// Says that the task is over when it is dropped, which the end of its runtime does too: the next call that needs it spawns
/// another one.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.timer_over();
    }
}

/// Looks at the quotas when they are due, until the desk is closed.
pub(super) fn task(shared: Arc<Shared>) -> impl Future<Output = ()> + Send + 'static {
    // Before the first poll: a runtime that is shutting down drops what it is given unpolled.
    let over = Over(shared);
    async move {
        while let Some(due) = over.0.tick() {
            match due {
                Some(due) => {
                    let soon = due.min(Instant::now() + LONGEST_SLEEP);
                    tokio::select! {
                        () = sleep_until(soon) => {}
                        () = over.0.called() => {}
                    }
                }
                None => over.0.called().await,
            }
        }
    }
}
