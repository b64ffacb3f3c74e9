//! The channel of events. Slow readers hold a bounded number of events, and a bounded number of bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use subtend_models::model::Delta;
use subtend_session::ids::SessionId;
use tokio::sync::broadcast;

use crate::observe::event::{Event, EventKind};

/// Maximum bytes of large events that slow readers hold. A model server chooses the size of the pieces of its answers.
const MAX_BYTES: u64 = 32 << 20;
/// Minimum bytes of a large event. The capacity of the channel bounds smaller ones.
const LARGE: u64 = 4 << 10;

#[derive(Debug)]
pub(crate) struct EventSlot {
    pub(crate) root: SessionId,
    pub(crate) session: SessionId,
    /// `None` if the event was dropped, because slow readers held too many bytes.
    what: Mutex<Option<EventKind>>,
}

impl EventSlot {
    pub(crate) fn event(&self) -> Option<Event> {
        let what = self.lock().clone()?;
        Some(Event { root: self.root, session: self.session, what })
    }

    fn lock(&self) -> MutexGuard<'_, Option<EventKind>> {
        self.what.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct EventSender {
    events: broadcast::Sender<Arc<EventSlot>>,
    /// The latest large events with their bytes, oldest first. An event is gone once every reader has taken it.
    large: VecDeque<(Weak<EventSlot>, u64)>,
    bytes: u64,
}

impl EventSender {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { events: broadcast::channel(capacity).0, large: VecDeque::new(), bytes: 0 }
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<EventSlot>> {
        self.events.subscribe()
    }

    /// Sends an event. Drops the oldest large events that some reader has not taken, if they have too many bytes.
    pub(crate) fn send(&mut self, event: Event) {
        let Event { root, session, what } = event;
        let bytes = text_bytes(&what);
        let slot = Arc::new(EventSlot { root, session, what: Mutex::new(Some(what)) });
        if bytes >= LARGE {
            self.large.push_back((Arc::downgrade(&slot), bytes));
            self.bytes = self.bytes.saturating_add(bytes);
        }
        // The newest event is sent whatever its size, because a reader that keeps up must not miss it.
        while self.bytes > MAX_BYTES
            && self.large.len() > 1
            && let Some((oldest, bytes)) = self.large.pop_front()
        {
            self.bytes = self.bytes.saturating_sub(bytes);
            if let Some(held) = oldest.upgrade() {
                *held.lock() = None;
            }
        }
        // Fails only without subscribers.
        drop(self.events.send(slot));
    }
}

fn text_bytes(what: &EventKind) -> u64 {
    match what {
        EventKind::Record { record, .. } => record.heap_bytes(),
        EventKind::Delta { delta: Delta::Text(text) | Delta::Reasoning(text), .. }
        | EventKind::Delta { delta: Delta::Call { tool: text, .. }, .. }
        | EventKind::Progress { line: text, .. } => text.len() as u64,
        EventKind::Queue { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::{AttemptNo, RunNo, Seq, Text, TurnNo};
    use subtend_session::outcome::Initiator;
    use subtend_session::record::{MetadataSet, Record};
    use tokio::sync::broadcast::Receiver;
    use uuid::Uuid;

    use super::*;

    const SESSION: SessionId = SessionId(Uuid::from_u128(7));

    fn piece(offset: u64, bytes: usize) -> Event {
        let what = EventKind::Delta {
            run: RunNo(1),
            turn: TurnNo(1),
            attempt: AttemptNo(1),
            offset,
            delta: Delta::Text("x".repeat(bytes).into()),
        };
        Event { root: SESSION, session: SESSION, what }
    }

    /// Returns the number of bytes of the received events, and the number of dropped ones.
    fn received(reader: &mut Receiver<Arc<EventSlot>>) -> (u64, usize) {
        let (mut bytes, mut dropped) = (0, 0);
        while let Ok(slot) = reader.try_recv() {
            match slot.event() {
                Some(event) => bytes += text_bytes(&event.what),
                None => dropped += 1,
            }
        }
        (bytes, dropped)
    }

    fn record(record: Record) -> Event {
        Event { root: SESSION, session: SESSION, what: EventKind::Record { seq: Seq(1), record: Arc::new(record) } }
    }

    /// Metadata is not counted by `recorded_bytes`. Control: 100 small events are all received.
    #[test]
    fn slow_reader_holds_bounded_bytes_of_metadata() {
        for (bytes, expected) in [(1 << 20, (MAX_BYTES, 68)), (100, (10_000, 0))] {
            let mut sender = EventSender::new(8_192);
            let mut slow = sender.subscribe();
            let metadata = Text::from("x".repeat(bytes));
            for _ in 0..100 {
                let set = MetadataSet { metadata: metadata.clone(), by: Initiator::Host };
                sender.send(record(Record::MetadataSet(Box::new(set))));
            }
            assert_eq!(received(&mut slow), expected);
        }
    }

    #[test]
    fn event_above_the_byte_limit_is_received() {
        let mut sender = EventSender::new(8_192);
        let mut reader = sender.subscribe();
        sender.send(piece(0, 1 << 20));
        sender.send(piece(1, 33 << 20));
        assert_eq!(received(&mut reader), (33 << 20, 1));
        assert_eq!((sender.bytes, sender.large.len()), (33 << 20, 1));
    }

    /// Regression test: a stalled reader held 8,192 pieces of up to 8 MiB. Controls: a fast reader, small pieces.
    #[test]
    fn slow_reader_holds_a_bounded_number_of_bytes() {
        let mut sender = EventSender::new(8_192);
        let (mut slow, mut fast) = (sender.subscribe(), sender.subscribe());
        let mut kept_up = (0, 0);
        for offset in 0..100 {
            sender.send(piece(offset, 1 << 20));
            let (bytes, dropped) = received(&mut fast);
            kept_up = (kept_up.0 + bytes, kept_up.1 + dropped);
        }
        assert_eq!(kept_up, (100 << 20, 0));
        assert_eq!(received(&mut slow), (MAX_BYTES, 68));
        (0..8_192).for_each(|offset| sender.send(piece(offset, 100)));
        assert_eq!(received(&mut slow), (819_200, 0));
        assert!(sender.bytes <= MAX_BYTES && sender.large.len() == 32);
    }
}
