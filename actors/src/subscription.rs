//! Subscriptions: a bounded, live view of events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use subtend_session::ids::SessionId;
use tokio::sync::broadcast;

use crate::event::{Event, Next};

/// Which events are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of the runtime.
    All,
    /// Those of one tree.
    Tree(SessionId),
    /// Those of one session.
    Session(SessionId),
}

impl Scope {
    pub(crate) fn sees(self, root: SessionId, session: SessionId) -> bool {
        match self {
            Self::All => true,
            Self::Tree(of) => of == root,
            Self::Session(of) => of == session,
        }
    }
}

/// Counts a subscription for as long as it lives.
#[derive(Debug)]
pub(crate) struct Listening(Arc<AtomicUsize>);

impl Listening {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A bounded view of the events of one tree (or of all).
///
/// It begins with the text so far of every answer that is on its way. A slow reader never slows a session: it learns how
/// many events it missed.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
    scope: Scope,
    so_far: VecDeque<Event>,
    _listening: Listening,
}

impl Subscription {
    pub(crate) fn new(
        receiver: broadcast::Receiver<Arc<Event>>,
        scope: Scope,
        so_far: Vec<Event>,
        listening: Listening,
    ) -> Self {
        Self { receiver, scope, so_far: so_far.into(), _listening: listening }
    }

    /// The next event, or `None` when the runtime is over.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Next> {
        if let Some(event) = self.so_far.pop_front() {
            return Some(Next::Event(event));
        }
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.scope.sees(event.root, event.session) => {
                    return Some(Next::Event((*event).clone()));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Next::Missed(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// An event that has already arrived, if there is one.
    pub fn try_next(&mut self) -> Option<Next> {
        if let Some(event) = self.so_far.pop_front() {
            return Some(Next::Event(event));
        }
        loop {
            match self.receiver.try_recv() {
                Ok(event) if self.scope.sees(event.root, event.session) => {
                    return Some(Next::Event((*event).clone()));
                }
                Ok(_) => {}
                Err(broadcast::error::TryRecvError::Lagged(missed)) => return Some(Next::Missed(missed)),
                Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => return None,
            }
        }
    }
}
