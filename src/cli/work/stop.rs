//! Stop signals: the first requests a shutdown, the next one ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::super::fail::{Code, Fail};

/// Time to wait for an answer of another host after a stop was requested. The answer names the run to stop.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The signals of the process. Each clone receives every signal.
#[derive(Clone, Debug)]
pub(crate) struct StopSignal {
    received: watch::Receiver<SignalCount>,
    /// Number of signals that this value has handled.
    handled: u32,
    /// The signal that ends the process at once, counted from 1.
    ends_at: Arc<AtomicU32>,
}

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

    /// Resolves when there is a stop request that this value has not handled, even from before the call.
    pub(crate) async fn requested(&mut self) {
        let handled = self.handled;
        if self.received.wait_for(|received| received.count > handled).await.is_err() {
            // The listener ends only with the process.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for an answer of another host, but at most [`ANSWER_TIME`] after a stop was requested.
    ///
    /// # Errors
    /// [`Fail::Other`] after that time, and errors of `answer`.
    pub(crate) async fn limit<T>(&mut self, answer: impl Future<Output = Result<T, Fail>>) -> Result<T, Fail> {
        let late = async {
            self.requested().await;
            tokio::time::sleep(ANSWER_TIME).await;
        };
        tokio::select! {
            biased;
            answered = answer => answered,
            () = late => Err(Fail::Other(
                "stopped, and the host of the store did not answer for 10 s: it may have accepted the command. Check with `subtend sessions`"
                    .to_owned(),
            )),
        }
    }

    /// Marks the signals so far as handled: the next requests a stop again, the one after it ends the process at once.
    pub(crate) fn rearm(&mut self) {
        self.handled = self.received.borrow().count;
        self.ends_at.store(self.handled.saturating_add(2), Ordering::Relaxed);
    }

    /// Returns whether only this process is asked to end, not runs in another process.
    pub(crate) fn is_leave_requested(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// The control: without a signal, the wait for an answer is not limited.
    #[tokio::test(start_paused = true)]
    async fn stop_limits_the_wait_for_a_silent_host() {
        let (sender, received) = watch::channel(SignalCount { count: 0, last: StopRequest::Stop });
        let mut stop = StopSignal { received, handled: 0, ends_at: Arc::new(AtomicU32::new(2)) };
        let answer = |after| async move {
            sleep(after).await;
            Ok::<_, Fail>("answered")
        };
        assert_eq!(stop.limit(answer(HOUR)).await.ok(), Some("answered"));
        tokio::spawn(async move {
            sleep(Duration::from_secs(5)).await;
            sender.send_replace(SignalCount { count: 1, last: StopRequest::Leave });
            pending::<()>().await;
        });
        let start = Instant::now();
        assert_eq!(stop.clone().limit(answer(Duration::from_secs(14))).await.ok(), Some("answered"));
        let late = stop.limit(pending::<Result<(), Fail>>()).await.expect_err("no answer");
        let why = "stopped, and the host of the store did not answer for 10 s: it may have accepted the command. Check with `subtend sessions`";
        assert_eq!((late.to_string(), start.elapsed().as_secs()), (why.to_owned(), 24));
    }
}
