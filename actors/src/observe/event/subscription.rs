//! Subscriptions: bounded, live views of events.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use futures_util::{FutureExt as _, Stream};
use subtend_session::ids::SessionId;
use tokio::sync::broadcast;

use crate::observe::event::channel::EventSlot;
use crate::observe::event::{Event, Next};
use crate::observe::polling::Polled;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionScope {
    All,
    Tree(SessionId),
    Session(SessionId),
}

impl SubscriptionScope {
    pub(crate) fn sees(self, root: SessionId, session: SessionId) -> bool {
        match self {
            Self::All => true,
            Self::Tree(of) => of == root,
            Self::Session(of) => of == session,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ListenerCount(Arc<AtomicUsize>);

impl ListenerCount {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for ListenerCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A bounded view of the events of one tree (or of all); also a [`Stream`] of them.
///
/// It starts with the text so far of every running stream. A slow reader never slows a session: it receives the number of missed events.
pub struct Subscription {
    view: Polled<ScopedView, Option<Next>>,
}

struct ScopedView {
    receiver: broadcast::Receiver<Arc<EventSlot>>,
    scope: SubscriptionScope,
    so_far: VecDeque<Event>,
    _listening: ListenerCount,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl Subscription {
    pub(crate) fn new(
        receiver: broadcast::Receiver<Arc<EventSlot>>,
        scope: SubscriptionScope,
        so_far: Vec<Event>,
        listening: ListenerCount,
    ) -> Self {
        Self { view: Polled::new(ScopedView { receiver, scope, so_far: so_far.into(), _listening: listening }) }
    }

    /// Returns the next event, or `None` after the runtime has stopped.
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Next> {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Returns an event that has already arrived, if any.
    pub fn try_next(&mut self) -> Option<Next> {
        match self.view.idle() {
            Some(view) => view.try_next(),
            None => match self.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(next) => next,
                Poll::Pending => None,
            },
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Next>> {
        if let Some(next) = self.view.idle().and_then(ScopedView::try_next) {
            return Poll::Ready(Some(next));
        }
        self.view.poll(cx, |mut view| {
            async move {
                let next = view.next().await;
                (view, next)
            }
            .boxed()
        })
    }
}

impl Stream for Subscription {
    type Item = Next;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Next>> {
        self.get_mut().poll(cx)
    }
}

impl ScopedView {
    async fn next(&mut self) -> Option<Next> {
        loop {
            match self.receiver.recv().await {
                Ok(slot) if self.scope.sees(slot.root, slot.session) => return Some(next_of_slot(&slot)),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Next::Missed(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn try_next(&mut self) -> Option<Next> {
        if let Some(event) = self.so_far.pop_front() {
            return Some(Next::Event(event));
        }
        loop {
            match self.receiver.try_recv() {
                Ok(slot) if self.scope.sees(slot.root, slot.session) => return Some(next_of_slot(&slot)),
                Ok(_) => {}
                Err(broadcast::error::TryRecvError::Lagged(missed)) => return Some(Next::Missed(missed)),
                Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => return None,
            }
        }
    }
}

fn next_of_slot(slot: &EventSlot) -> Next {
    slot.event().map_or(Next::Missed(1), Next::Event)
}
