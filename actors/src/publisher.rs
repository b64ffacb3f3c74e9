//! The publisher: gives durable records to subscribers in order, and passing progress as it comes.

use std::sync::Arc;

use subtend_journal::Journal;
use subtend_session::ids::{Lsn, Seq, SessionId};
use subtend_session::record::Record;
use tokio::sync::{broadcast, mpsc};

use crate::event::{Event, Subscription, What};

/// Records of one frame, to be shown when they are durable.
struct Frame {
    lsn: Lsn,
    root: SessionId,
    session: SessionId,
    first: Seq,
    records: Vec<Record>,
}

/// Where subscribers attach. Costs nothing while there are none.
pub(crate) struct Publisher {
    events: broadcast::Sender<Arc<Event>>,
    frames: mpsc::UnboundedSender<Frame>,
}

impl Publisher {
    /// Starts the task that waits for frames to be durable. It ends with the publisher, or when the journal is poisoned:
    /// nothing after a failed append is ever shown (J-9).
    pub(crate) fn start(journal: Journal, capacity: usize) -> Self {
        let (events, _) = broadcast::channel(capacity);
        // Unbounded, but never longer than what the writer has taken and not synced, which the journal bounds.
        let (frames, mut waiting) = mpsc::unbounded_channel::<Frame>();
        let show = events.clone();
        tokio::spawn(async move {
            while let Some(frame) = waiting.recv().await {
                if journal.wait(frame.lsn).await.is_err() {
                    break;
                }
                let mut seq = frame.first;
                for record in frame.records {
                    let what = What::Record { seq, record: Arc::new(record) };
                    // Without subscribers there is nobody to tell.
                    drop(show.send(Arc::new(Event { root: frame.root, session: frame.session, what })));
                    seq = seq.next();
                }
            }
        });
        Self { events, frames }
    }

    /// Events from here on, of one tree or of all.
    pub(crate) fn subscribe(&self, root: Option<SessionId>) -> Subscription {
        Subscription::new(self.events.subscribe(), root)
    }

    /// Whether anybody listens.
    pub(crate) fn any(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Shows records when `lsn` is durable.
    pub(crate) fn frame(&self, lsn: Lsn, root: SessionId, session: SessionId, first: Seq, records: Vec<Record>) {
        // The task is gone only when the journal is poisoned: then nothing may be shown.
        drop(self.frames.send(Frame { lsn, root, session, first, records }));
    }

    /// Shows passing progress at once.
    pub(crate) fn passing(&self, root: SessionId, session: SessionId, what: What) {
        drop(self.events.send(Arc::new(Event { root, session, what })));
    }
}
