//! Services that are running, by the session that they work for.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::SessionId;
use subtend_session::place::Service;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// What a service is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Title,
    Summary,
}

impl For {
    /// The agent that answers.
    pub(crate) fn agent(self) -> &'static str {
        match self {
            Self::Title => "title",
            Self::Summary => "summary",
        }
    }

    pub(crate) fn service(self) -> Service {
        match self {
            Self::Title => Service::Title,
            Self::Summary => Service::Summary,
        }
    }

    /// Wall-clock time of its run: nobody waits for a title long, and one who waits for a summary is not to wait for ever.
    pub(crate) fn cap_ms(self) -> u64 {
        match self {
            Self::Title => 15_000,
            Self::Summary => 300_000,
        }
    }
}

/// Services at work, by the session that they work for.
#[derive(Default)]
pub(crate) struct Services {
    pub(crate) at_work: Mutex<BTreeMap<SessionId, Vec<AtWork>>>,
    pub(crate) numbers: AtomicU64,
    pub(crate) ended: Notify,
}

pub(crate) struct AtWork {
    pub(crate) no: u64,
    pub(crate) what: For,
    pub(crate) stop: CancellationToken,
}

impl Services {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Vec<AtWork>>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the services of one session, or all.
    pub(crate) fn stop(&self, session: Option<SessionId>) {
        let at_work = self.lock();
        let mine = at_work.iter().filter(|(of, _)| session.is_none_or(|session| session == **of));
        mine.flat_map(|(_, all)| all).for_each(|one| one.stop.cancel());
    }

    /// Waits until none works for `session`, or for any.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn done(&self, session: Option<SessionId>) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Before the look: an end between the two is seen by one of them.
            ended.as_mut().enable();
            let over = session.map_or_else(|| self.lock().is_empty(), |session| !self.lock().contains_key(&session));
            if over {
                return;
            }
            ended.await;
        }
    }
}
