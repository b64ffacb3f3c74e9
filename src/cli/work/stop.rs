//! Stop signals: the first requests a shutdown, the next one ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::watch;

use super::super::fail::{Code, Fail};

/// The signals of the process. Each clone handles every signal itself.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal {
    received: watch::Receiver<SignalCount>,
    /// Number of signals that this value has handled.
    handled: u32,
    /// The signal that ends the process at once, counted from 1.
    ends_at: Arc<AtomicU32>,
}

/// The signals so far.
#[derive(Clone, Copy, Debug)]
struct SignalCount {
    count: u32,
    last: StopRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopRequest {
    Stop,
    /// SIGTERM or SIGHUP: end this process only.
    Leave,
}

impl StopSignal {
    /// Starts listening. A second signal ends the process at once.
    pub(crate) fn listen() -> Result<Self, Fail> {
        let (sender, received) = watch::channel(SignalCount { count: 0, last: StopRequest::Stop });
        let mut signals = Signals::new().map_err(|error| Fail::Other(format!("cannot listen to signals: {error}")))?;
        let ends_at = Arc::new(AtomicU32::new(2));
        let end = Arc::clone(&ends_at);
        tokio::spawn(async move {
            for count in 1.. {
                let last = signals.next().await;
                if count >= end.load(Ordering::Relaxed) {
                    std::process::exit(Code::Cancelled as i32);
                }
                sender.send_replace(SignalCount { count, last });
            }
        });
        Ok(Self { received, handled: 0, ends_at })
    }

    /// Resolves when there is a stop request that this value has not handled. It may have come before the call.
    pub(crate) async fn requested(&mut self) {
        let handled = self.handled;
        if self.received.wait_for(|received| received.count > handled).await.is_err() {
            // The listener ends only with the process.
            std::future::pending::<()>().await;
        }
    }

    /// Regards the signals so far as handled. The next one requests a stop again, and the one after it ends the process at once.
    pub(crate) fn rearm(&mut self) {
        self.handled = self.received.borrow().count;
        self.ends_at.store(self.handled.saturating_add(2), Ordering::Relaxed);
    }

    /// Returns whether only this process is asked to end, not runs in another process.
    pub(crate) fn asks_to_leave(&self) -> bool {
        let received = *self.received.borrow();
        received.count > 0 && received.last == StopRequest::Leave
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> StopRequest {
        tokio::select! {
            _ = self.interrupt.recv() => StopRequest::Stop,
            _ = self.terminate.recv() => StopRequest::Leave,
            _ = self.hangup.recv() => StopRequest::Leave,
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    #[expect(clippy::unnecessary_wraps, reason = "the same shape as elsewhere")]
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> StopRequest {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        StopRequest::Stop
    }
}
