//! What a session did, summed up from its records for listings.

use subtend_journal::Stored;
use subtend_session::ids::SessionId;
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, Owner};
use subtend_session::record::Record;
use subtend_session::usage::Usage;

/// A session's journal, summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Past {
    /// How its last run ended; absent while a run is in flight and before the first.
    pub(crate) outcome: Option<Outcome>,
    /// Whether its last run's owner did not wait for it.
    pub(crate) background: bool,
    /// Answered turns, of all runs.
    pub(crate) turns: u32,
    /// What all runs cost themselves, without those that they owned.
    pub(crate) usage: Usage,
    /// Children, in the order of their birth.
    pub(crate) born: Vec<SessionId>,
    /// Wall-clock time from the birth to the last record, in milliseconds; informative.
    pub(crate) span_ms: u64,
}

impl Past {
    /// Sums up.
    pub(crate) fn of(records: &[Stored]) -> Self {
        let mut past = Self::default();
        records.iter().for_each(|stored| past.add(&stored.record));
        if let (Some(first), Some(last)) = (records.first(), records.last()) {
            past.span_ms = u64::try_from(last.at_ms.saturating_sub(first.at_ms)).unwrap_or(0);
        }
        past
    }

    fn add(&mut self, record: &Record) {
        match record {
            Record::RunOpened(opened) => {
                let owned = matches!(opened.owner, Owner::Run { .. });
                self.background = owned && opened.mode == Mode::Background;
                self.outcome = None;
            }
            Record::TurnAnswered(answered) => {
                self.turns = self.turns.saturating_add(1);
                self.usage.add(&answered.usage);
            }
            Record::AttemptDiscarded(discarded) => {
                if let Some(usage) = &discarded.usage {
                    self.usage.add(usage);
                }
            }
            Record::ChildSpawned(spawned) => self.born.push(spawned.child),
            Record::RunEnded(ended) => self.outcome = Some(ended.outcome.clone()),
            Record::SessionCreated(_)
            | Record::RunStarted { .. }
            | Record::InputAccepted(_)
            | Record::InputsTaken { .. }
            | Record::QueueChanged { .. }
            | Record::TurnStarted { .. }
            | Record::CallStarted { .. }
            | Record::CallFinished(_)
            | Record::ContinueAsked(_)
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::RunParked { .. }
            | Record::RunResumed { .. }
            | Record::RunHeld { .. }
            | Record::NoticeTaken(_)
            | Record::AskOpened { .. }
            | Record::AskAnswered { .. }
            | Record::SessionClosed { .. }
            | Record::SessionReopened { .. } => {}
        }
    }
}
