//! What all handles, passes, waiting calls and the timer share.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::desk::Desk;
use super::timer::{self, Alarm, Timer};

/// The desk behind its lock, and the timer's bell.
#[derive(Debug)]
pub(super) struct Shared {
    inner: Mutex<Inner>,
    bell: Notify,
}

#[derive(Debug)]
struct Inner {
    desk: Desk,
    timer: Timer,
}

impl Shared {
    pub(super) fn new(desk: Desk) -> Self {
        Self { inner: Mutex::new(Inner { desk, timer: Timer::default() }), bell: Notify::new() }
    }

    /// Does something at the desk; then, without the lock, wakes whom it called up and sees to the timer.
    ///
    /// What `act` takes out of the desk and may run foreign code when dropped (a waker) it must return.
    pub(super) fn at_desk<R>(self: &Arc<Self>, act: impl FnOnce(&mut Desk, Instant) -> R) -> R {
        self.locked(|inner| act(&mut inner.desk, Instant::now()))
    }

    /// The same for a call that may come to wait.
    pub(super) fn at_desk_to_wait<R>(self: &Arc<Self>, act: impl FnOnce(&mut Desk, Instant) -> R) -> R {
        self.locked(|inner| {
            inner.timer.settle_here();
            act(&mut inner.desk, Instant::now())
        })
    }

    fn locked<R>(self: &Arc<Self>, act: impl FnOnce(&mut Inner) -> R) -> R {
        // No code of others runs under the lock, so that a poisoned one still holds a whole desk.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut inner);
        let called = inner.desk.take_called();
        let due = inner.desk.first_due();
        let alarm = inner.timer.alarm(due);
        drop(inner);
        for waker in called {
            waker.wake();
        }
        match alarm {
            Alarm::None => {}
            // Keeps the word for a task that is not listening yet, or has just woken by itself: then it looks once more.
            Alarm::Call => self.bell.notify_one(),
            Alarm::Spawn(home) => {
                home.spawn(timer::task(Arc::clone(self)));
            }
        }
        result
    }

    /// Sends everybody away and ends the timer.
    pub(super) fn close(self: &Arc<Self>) {
        self.at_desk(Desk::close);
        self.bell.notify_one();
    }

    /// The timer looks at what is due. Nothing when the desk is closed; otherwise what to sleep for, if anything.
    pub(super) fn tick(self: &Arc<Self>) -> Option<Option<Instant>> {
        self.locked(|inner| {
            inner.desk.tick(Instant::now());
            let due = inner.desk.first_due();
            inner.timer.sleep(due);
            (!inner.desk.is_closed()).then_some(due)
        })
    }

    /// Returns when the timer must look again.
    pub(super) async fn called(&self) {
        self.bell.notified().await;
    }

    pub(super) fn timer_over(self: &Arc<Self>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).timer.stop();
    }
}
