//! Callers that wait for runs to end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{RunNo, SessionId};
use tokio::sync::oneshot;

use crate::values::ended::Ended;

type WaitersOf = Vec<(RunNo, oneshot::Sender<Ended>)>;

pub(crate) struct Wait<'a> {
    waiters: &'a Waiters,
    session: SessionId,
    receiver: oneshot::Receiver<Ended>,
}

impl Wait<'_> {
    /// Resolves when the end can no longer be reported. Cancel safe.
    pub(crate) async fn gone(&mut self) {
        // Run 0 does not exist, so no end is reported.
        drop((&mut self.receiver).await);
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        self.waiters.sweep(self.session);
    }
}

#[derive(Default)]
pub(crate) struct Waiters {
    /// `None` after the runtime has stopped: a later wait ends at once, even if the last actor may still reply to a probe.
    by_session: Mutex<OpenWaits>,
}

struct OpenWaits(Option<BTreeMap<SessionId, WaitersOf>>);

impl Default for OpenWaits {
    fn default() -> Self {
        Self(Some(BTreeMap::new()))
    }
}

impl Waiters {
    pub(crate) fn register(&self, session: SessionId, run: RunNo) -> oneshot::Receiver<Ended> {
        let (sender, receiver) = oneshot::channel();
        let mut waiters = self.lock();
        let Some(waiters) = &mut waiters.0 else { return receiver };
        let waiting = waiters.entry(session).or_default();
        // Abandoned waits are removed by the next registration.
        waiting.retain(|(_, sender)| !sender.is_closed());
        waiting.push((run, sender));
        receiver
    }

    /// Registers as [`Waiters::register`] does, for a wait that is often abandoned.
    pub(crate) fn wait(&self, session: SessionId, run: RunNo) -> Wait<'_> {
        Wait { waiters: self, session, receiver: self.register(session, run) }
    }

    fn sweep(&self, session: SessionId) {
        let mut waiters = self.lock();
        let Some(waiters) = &mut waiters.0 else { return };
        let Some(waiting) = waiters.get_mut(&session) else { return };
        waiting.retain(|(_, sender)| !sender.is_closed());
        if waiting.is_empty() {
            waiters.remove(&session);
        }
    }

    pub(crate) fn any(&self, session: SessionId) -> bool {
        self.lock().0.as_ref().is_some_and(|waiters| !waiters.is_empty() && waiters.contains_key(&session))
    }

    /// Notifies the callers that wait for the ended run. Call it once the end is durable.
    pub(crate) fn notify(&self, session: SessionId, ended: &Ended) {
        let mut waiters = self.lock();
        let Some(waiters) = &mut waiters.0 else { return };
        let Some(waiting) = waiters.get_mut(&session) else { return };
        let (ended_waiters, still): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|(run, _)| *run == ended.run);
        *waiting = still;
        if waiting.is_empty() {
            waiters.remove(&session);
        }
        for (_, sender) in ended_waiters {
            drop(sender.send(ended.clone()));
        }
    }

    /// Drops the waits for a session that could not be activated.
    pub(crate) fn forget(&self, session: SessionId) {
        if let Some(waiters) = &mut self.lock().0 {
            waiters.remove(&session);
        }
    }

    /// Ends every current and later wait with an error, when the runtime stops.
    pub(crate) fn close(&self) {
        self.lock().0 = None;
    }

    fn lock(&self) -> MutexGuard<'_, OpenWaits> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
