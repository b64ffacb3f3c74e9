//! Stop signals: the first requests a shutdown, the second ends the process at once.

use tokio::sync::watch;

use super::super::fail::{Code, Fail};

#[derive(Clone, Debug)]
pub(crate) struct StopSignal(watch::Receiver<StopRequest>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopRequest {
    Nothing,
    Stop,
    /// SIGTERM or SIGHUP: end this process only.
    Leave,
}

impl StopSignal {
    /// Starts listening. A second signal ends the process at once.
    pub(crate) fn listen() -> Result<Self, Fail> {
        let (sender, receiver) = watch::channel(StopRequest::Nothing);
        let mut signals = Signals::new().map_err(|error| Fail::Other(format!("cannot listen to signals: {error}")))?;
        tokio::spawn(async move {
            let first = signals.next().await;
            sender.send_replace(first);
            signals.next().await;
            std::process::exit(Code::Cancelled as i32);
        });
        Ok(Self(receiver))
    }

    /// Resolves once a stop is requested, before or after the call.
    pub(crate) async fn requested(&mut self) {
        if self.0.wait_for(|request| *request != StopRequest::Nothing).await.is_err() {
            // The listener ends only with the process.
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether only this process is asked to end, not runs in another process.
    pub(crate) fn is_leave(&self) -> bool {
        *self.0.borrow() == StopRequest::Leave
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
