//! Activity: the events of a session and of all sessions working below it, each with the call that started the work.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use subtend_session::ids::{CallId, SessionId};
use subtend_session::place::{BranchKind, Place};
use subtend_session::record::Record;

use crate::handle::SessionHandle;
use crate::log::Log;
use crate::observe::event::{Event, EventKind, Next, Subscription};

/// Maximum number of ancestors to follow: a damaged store may hold a cycle.
const MAX_PATH: usize = 256;

/// One event of a session or of a session below it.
#[derive(Clone, Debug)]
pub struct NestedEvent {
    pub event: Event,
    /// The call of the watched session that started this work; `None` for the session's own events, and for branches of people and the host.
    pub under: Option<CallId>,
    /// Distance from the watched session: 0 for its own events.
    pub depth: u32,
}

#[derive(Clone, Debug)]
pub enum ActivityItem {
    Event(Box<NestedEvent>),
    Missed(u64),
}

/// A live view of a session and of all sessions working below it; also a [`Stream`]. See [`SessionHandle::activity`].
pub struct Activity {
    session: SessionId,
    log: Arc<Log>,
    events: Subscription,
    /// Known sessions, with their position below the watched one, if any.
    known: HashMap<SessionId, Option<(Option<CallId>, u32)>>,
}

impl std::fmt::Debug for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activity").field("session", &self.session).finish_non_exhaustive()
    }
}

impl SessionHandle {
    /// Returns the live events of the session and of all sessions working below it, starting with the text of running streams. Other sessions of the
    /// tree are excluded.
    ///
    /// ```
    /// # async fn example(session: subtend_actors::SessionHandle) {
    /// use subtend_actors::activity::ActivityItem;
    ///
    /// let mut activity = session.activity();
    /// while let Some(seen) = activity.next().await {
    ///     if let ActivityItem::Event(nested) = seen
    ///         && let Some(call) = nested.under
    ///     {
    ///         println!("{call}: {:?}", nested.event.what);
    ///     }
    /// }
    /// # }
    /// ```
    pub fn activity(&self) -> Activity {
        let known = HashMap::from([(self.id, Some((None, 0)))]);
        Activity { session: self.id, log: Arc::clone(&self.sessions.log), events: self.watch(), known }
    }
}

impl Activity {
    /// Returns the next event, or `None` after the runtime has stopped.
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<ActivityItem> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// Returns an event that has already arrived, if any.
    pub fn try_next(&mut self) -> Option<ActivityItem> {
        loop {
            let next = self.events.try_next()?;
            if let Some(seen) = self.convert(next) {
                return Some(seen);
            }
        }
    }

    fn convert(&mut self, next: Next) -> Option<ActivityItem> {
        let event = match next {
            Next::Event(event) => event,
            Next::Missed(events) => return Some(ActivityItem::Missed(events)),
        };
        if let EventKind::Record { record, .. } = &event.what
            && let Record::SessionCreated(created) = &**record
            && !self.known.contains_key(&event.session)
        {
            self.place(event.session, &created.place);
        }
        let (under, depth) = self.position(event.session)?;
        Some(ActivityItem::Event(Box::new(NestedEvent { event, under, depth })))
    }

    /// Returns the position of `session` below the watched one. A session that is not in the journal yet is not cached.
    fn position(&mut self, session: SessionId) -> Option<(Option<CallId>, u32)> {
        if let Some(known) = self.known.get(&session) {
            return *known;
        }
        let mut path = Vec::new();
        let mut at = session;
        while !self.known.contains_key(&at) && path.len() < MAX_PATH {
            let place = self.log.placed(at).ok().flatten()?;
            let Some(parent) = place.parent() else { break };
            path.push((at, place));
            at = parent;
        }
        self.known.entry(at).or_insert(None);
        path.into_iter().rev().for_each(|(id, place)| self.place(id, &place));
        self.known.get(&session).copied().flatten()
    }

    /// Caches the position of a session whose parent is known.
    fn place(&mut self, session: SessionId, place: &Place) {
        let Place::Child { parent, call, kind, .. } = place else { return };
        let Some(parent_position) = self.known.get(parent) else { return };
        // A service is not part of a session's work.
        let position = parent_position.filter(|_| *kind != BranchKind::Service).map(|(under, depth)| {
            let own = *parent == self.session;
            (if own { *call } else { under }, depth.saturating_add(1))
        });
        self.known.insert(session, position);
    }
}

impl Stream for Activity {
    type Item = ActivityItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ActivityItem>> {
        loop {
            let Some(next) = ready!(Pin::new(&mut self.events).poll_next(cx)) else { return Poll::Ready(None) };
            if let Some(seen) = self.convert(next) {
                return Poll::Ready(Some(seen));
            }
        }
    }
}
