//! The decision table, checked from the records: S-3. `state::legal` decides which records the fold accepts. These
//! predicates check which records a decision may write in each column.

use std::collections::BTreeSet;

use crate::world::World;
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::{AttemptNo, CallId, SessionId, TurnNo};
use subtend_session::outcome::Initiator;
use subtend_session::place::BranchKind;
use subtend_session::record::{Carrier, ContinueRefusal, Hold, Park, QueueChange, Record};

pub(super) fn transitions_are_allowed(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut walk = Walk { titled: seen.created.is_some_and(|created| created.title.is_some()), ..Walk::default() };
        for (at, record) in seen.view.records.iter().enumerate().skip(1) {
            let allowed = walk.allows(record);
            ensure(allowed.is_ok(), InvariantId::S3, *session, || {
                let why = allowed.err().unwrap_or_default();
                format!("record {} is {}, but {why}: {record:?}", at.saturating_add(1), record.kind())
            })?;
            walk.apply(record);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Column {
    /// No run in flight.
    #[default]
    Quiet,
    Queued,
    Started,
    /// Held: interrupted, or out of turns.
    Held,
    Closing,
}

#[derive(Debug, Default)]
struct Walk {
    column: Column,
    parked: Option<Park>,
    stream: Option<(TurnNo, AttemptNo)>,
    /// True if the attempt waits for a compaction.
    compacts: bool,
    /// Compactions that apply.
    compactions: usize,
    open: BTreeSet<CallId>,
    keeps_queue: bool,
    closed: bool,
    deleted: bool,
    titled: bool,
    /// Service sessions whose answer was not taken yet.
    services: BTreeSet<SessionId>,
}

type Allowed = Result<(), &'static str>;

fn require(holds: bool, why: &'static str) -> Allowed {
    if holds { Ok(()) } else { Err(why) }
}

impl Walk {
    fn allows(&self, record: &Record) -> Allowed {
        use Column::{Closing, Held, Queued, Quiet, Started};
        let within = |columns: &[Column], why| require(columns.contains(&self.column), why);
        let needs_session = !matches!(record, Record::NoticeTaken(_) | Record::ContinueRefused { .. });
        require(!(self.deleted && needs_session), "the session is deleted")?;
        match record {
            Record::SessionCreated(_) => Err("the session was created before"),
            // Rows of other sessions may still arrive: an end, or a request of an owner that was not notified yet.
            Record::NoticeTaken(taken) => match taken.carrier {
                Carrier::Message => Ok(()),
                Carrier::Result | Carrier::Await { .. } => within(&[Started, Held, Closing], "no call can be open"),
            },
            Record::ContinueRefused { why, .. } => match why {
                ContinueRefusal::InFlight => require(self.column != Quiet, "no run is in flight"),
                ContinueRefusal::Closed => require(self.closed, "the session is open"),
                ContinueRefusal::Deleted => require(self.deleted, "the session is not deleted"),
            },
            Record::InputAccepted(_) => require(!self.closed, "the session is closed"),
            Record::QueueChanged { change: QueueChange::Removed(ids), .. } => {
                require(!ids.is_empty(), "no input is removed")
            }
            Record::QueueChanged { change: QueueChange::Cleared, .. } | Record::BranchCreated(_) => Ok(()),
            Record::RunOpened(_) => {
                within(&[Quiet], "a run is in flight")?;
                require(!self.closed, "the session is closed")
            }
            Record::RunStarted { .. } => within(&[Queued], "no run is queued"),
            Record::InputsTaken { .. } => within(&[Started, Held], "no run takes inputs"),
            Record::TurnStarted { turn, attempt, .. } => self.turn_may_start(*turn, *attempt),
            Record::AttemptDiscarded(discarded) => self.streams(discarded.turn, discarded.attempt),
            Record::TurnAnswered(answered) => self.streams(answered.turn, answered.attempt),
            Record::CallStarted { call, .. } => {
                within(&[Started], "nothing starts")?;
                self.is_open(*call)
            }
            Record::CallFinished(finished) => {
                within(&[Started, Held, Closing], "no call can be open")?;
                self.is_open(finished.call)
            }
            Record::ChildSpawned(_) | Record::ContinueAsked(_) => within(&[Started], "no child can be started"),
            Record::CancelAsked { .. } => within(&[Started, Held, Closing], "no run can own others"),
            Record::RunParked { .. } => {
                within(&[Started], "no run works")?;
                require(self.stream.is_none(), "a stream is in flight")
            }
            Record::RunResumed { .. } => within(&[Started], "no run waits"),
            Record::RunHeld { why, .. } => match **why {
                // A cancel of the whole tree may set `keeps_queue` on a run that is closing already.
                Hold::Closing { keeps_queue: true, .. } => {
                    within(&[Started, Held, Closing], "there is nothing to close")
                }
                Hold::Closing { keeps_queue: false, .. } => within(&[Started, Held], "there is nothing to close"),
                Hold::Interrupted { .. } | Hold::OutOfTurns => within(&[Started], "there is nothing to hold"),
            },
            Record::RunEnded(_) => {
                within(&[Queued, Started, Held, Closing], "no run is in flight")?;
                require(self.stream.is_none(), "a stream is in flight")
            }
            Record::AskOpened { call, .. } => {
                within(&[Started], "nothing starts")?;
                self.is_open(*call)
            }
            Record::AskAnswered { .. } => within(&[Started, Held, Closing], "no ask is open"),
            Record::AlternativeSwitched { .. } | Record::RolledBack { .. } => within(&[Quiet], "a run is in flight"),
            Record::Compacted(compacted) => {
                require(self.services.contains(&compacted.of), "no service session answers")?;
                compacted.turn.map_or(Ok(()), |(turn, attempt)| {
                    within(&[Started], "no turn is due")?;
                    self.compacts(turn, attempt)
                })
            }
            Record::CompactionFailed(failed) => {
                within(&[Started], "no turn is due")?;
                self.compacts(failed.turn, failed.attempt)
            }
            Record::CompactionUndone { .. } => {
                within(&[Quiet], "a run is in flight")?;
                require(self.compactions > 0, "nothing is compacted")
            }
            Record::SessionClosed { .. } => {
                within(&[Quiet], "a run is in flight")?;
                require(!self.closed, "the session is closed")
            }
            Record::SessionReopened { .. } => require(self.closed, "the session is open"),
            Record::SessionDeleted { .. } => within(&[Quiet], "a run is in flight"),
            Record::TitleSet(set) => {
                require(set.by == Initiator::Person || !self.titled, "a title exists")?;
                require(set.of.is_none_or(|of| self.services.contains(&of)), "no service session answers")
            }
            Record::SummarySet(set) => require(self.services.contains(&set.of), "no service session answers"),
            Record::MetadataSet(_) => Ok(()),
        }
    }

    fn turn_may_start(&self, turn: TurnNo, attempt: AttemptNo) -> Allowed {
        require(self.column == Column::Started, "no turn may start")?;
        require(self.parked.is_none(), "the run waits")?;
        require(self.open.is_empty(), "calls are open")?;
        // After a restart, the next attempt replaces the attempt whose stream was lost.
        require(self.stream.is_none_or(|(no, last)| no == turn && last < attempt), "a stream is in flight")
    }

    fn compacts(&self, turn: TurnNo, attempt: AttemptNo) -> Allowed {
        self.streams(turn, attempt)?;
        require(self.compacts, "the attempt waits for no compaction")
    }

    fn streams(&self, turn: TurnNo, attempt: AttemptNo) -> Allowed {
        require(self.stream == Some((turn, attempt)), "the attempt is not awaited")
    }

    fn is_open(&self, call: CallId) -> Allowed {
        require(self.open.contains(&call), "the call is not open")
    }

    /// Returns a state with the fields that the opening and the end of a run do not change. The other fields are reset.
    fn between_runs(&mut self) -> Self {
        let services = std::mem::take(&mut self.services);
        let compactions = self.compactions;
        Self { closed: self.closed, titled: self.titled, services, compactions, ..Self::default() }
    }

    fn apply(&mut self, record: &Record) {
        match record {
            Record::RunOpened(_) => {
                *self = Self { column: Column::Queued, ..self.between_runs() };
            }
            Record::RunStarted { .. } => self.column = Column::Started,
            Record::InputsTaken { .. } => {
                self.column = Column::Started;
            }
            Record::TurnStarted { turn, attempt, compacts, .. } => {
                self.stream = Some((*turn, *attempt));
                self.compacts = compacts.is_some();
            }
            Record::Compacted(compacted) => {
                self.services.remove(&compacted.of);
                self.compactions = self.compactions.saturating_add(1);
                self.compacts &= compacted.turn.is_none();
            }
            Record::CompactionFailed(_) => self.compacts = false,
            Record::CompactionUndone { .. } => self.compactions = self.compactions.saturating_sub(1),
            Record::AttemptDiscarded(_) => self.stream = None,
            Record::TurnAnswered(answer) => {
                self.stream = None;
                self.open = (0_u32..).zip(&answer.calls).map(|(ix, _)| CallId { turn: answer.turn, ix }).collect();
            }
            Record::CallFinished(finished) => _ = self.open.remove(&finished.call),
            Record::NoticeTaken(taken) => match taken.carrier {
                Carrier::Result => {
                    for call in taken.items.iter().filter_map(|item| item.key) {
                        self.open.remove(&call);
                    }
                }
                Carrier::Await { call } => _ = self.open.remove(&call),
                Carrier::Message => {}
            },
            Record::RunParked { why, .. } => self.parked = Some(*why),
            Record::RunResumed { .. } => self.parked = None,
            Record::RunHeld { why, .. } => {
                self.parked = None;
                self.column = match **why {
                    Hold::Closing { keeps_queue, .. } => {
                        self.keeps_queue = keeps_queue;
                        Column::Closing
                    }
                    Hold::Interrupted { .. } | Hold::OutOfTurns => Column::Held,
                };
            }
            Record::RunEnded(_) => *self = self.between_runs(),
            Record::SessionClosed { .. } => self.closed = true,
            Record::SessionReopened { .. } => self.closed = false,
            Record::SessionDeleted { .. } => self.deleted = true,
            Record::BranchCreated(created) => {
                if created.kind == BranchKind::Service {
                    self.services.insert(created.child);
                }
            }
            Record::TitleSet(set) => {
                self.titled = true;
                set.of.iter().for_each(|of| _ = self.services.remove(of));
            }
            Record::SummarySet(set) => _ = self.services.remove(&set.of),
            Record::SessionCreated(_)
            | Record::MetadataSet(_)
            | Record::InputAccepted(_)
            | Record::QueueChanged { .. }
            | Record::CallStarted { .. }
            | Record::ChildSpawned(_)
            | Record::ContinueAsked(_)
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::AskOpened { .. }
            | Record::AskAnswered { .. }
            | Record::AlternativeSwitched { .. }
            | Record::RolledBack { .. } => {}
        }
    }
}
