//! Signals that ask us to stop: the first in order, the second at once.

use tokio::sync::watch;

use super::super::fail::{Code, Fail};

#[derive(Clone, Debug)]
pub(crate) struct StopSignal(watch::Receiver<Asked>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Stop,
    /// This process is to end, or its terminal is gone.
    Leave,
}

impl StopSignal {
    /// Listens from here on. A second signal ends the process wherever it is.
    pub(crate) fn listen() -> Result<Self, Fail> {
        let (tell, receiver) = watch::channel(Asked::Nothing);
        let mut signals = Signals::new()
            .map_err(|error| Fail::Other(format!("the system does not let us listen to signals: {error}")))?;
        tokio::spawn(async move {
            let first = signals.next().await;
            tell.send_replace(first);
            signals.next().await;
            std::process::exit(Code::Cancelled as i32);
        });
        Ok(Self(receiver))
    }

    /// Resolves once we were asked to stop, at any time before or after the call.
    pub(crate) async fn requested(&mut self) {
        if self.0.wait_for(|request| *request != Asked::Nothing).await.is_err() {
            // The listener is gone at the end of the process.
            std::future::pending::<()>().await;
        }
    }

    /// Returns whether this process alone is to end: nothing that runs in another one.
    pub(crate) fn leaves(&self) -> bool {
        *self.0.borrow() == Asked::Leave
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

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Leave,
            _ = self.hangup.recv() => Asked::Leave,
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

    async fn next(&mut self) -> Asked {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Asked::Stop
    }
}
