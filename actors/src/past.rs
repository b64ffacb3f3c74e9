//! What a session did, summed up from its records for listings and trees.

use subtend_journal::Stored;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::Outcome;
use subtend_session::place::{Mode, Owner};
use subtend_session::record::Record;
use subtend_session::usage::Usage;

/// A session's journal, summed up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// Its last run; 0 before the first.
    pub run: RunNo,
    /// How its last run ended; absent while a run is in flight and before the first.
    pub outcome: Option<Outcome>,
    /// Whether its last run's owner did not wait for it.
    pub background: bool,
    /// Answered turns, of all runs.
    pub turns: u32,
    /// What all runs cost themselves, without those that they owned.
    pub usage: Usage,
    /// Children, in the order of their birth.
    pub born: Vec<SessionId>,
    /// Wall-clock time from the birth to the last record, in milliseconds; informative.
    pub span_ms: u64,
    /// Wall clock of the birth, milliseconds since the epoch; informative.
    pub born_ms: Option<i64>,
}

impl Past {
    /// Sums up a whole journal.
    pub fn of(records: &[Stored]) -> Self {
        let mut past = Self::default();
        records.iter().for_each(|stored| past.add(stored));
        past
    }

    /// Adds the next record.
    pub fn add(&mut self, stored: &Stored) {
        let born = *self.born_ms.get_or_insert(stored.at_ms);
        self.span_ms = u64::try_from(stored.at_ms.saturating_sub(born)).unwrap_or(0);
        self.count(&stored.record);
    }

    fn count(&mut self, record: &Record) {
        match record {
            Record::RunOpened(opened) => {
                let owned = matches!(opened.owner, Owner::Run { .. });
                self.background = owned && opened.mode == Mode::Background;
                self.outcome = None;
                self.run = opened.run;
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
            Record::BranchCreated(created) => self.born.push(created.child),
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
            | Record::AlternativeSwitched { .. }
            | Record::RolledBack { .. }
            | Record::TitleSet(_)
            | Record::SummarySet(_)
            | Record::SessionDeleted { .. }
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
