//! Events that must occur in some state. Otherwise the check of the model would be vacuous.

use subtend_session::call::CallEnd;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::{Initiator, Outcome, OutcomeKind};
use subtend_session::place::Place;
use subtend_session::record::{AnsweredBy, AskVerdict, Carrier, Hold, Notice, Park, Record};
use subtend_session::state::State;

use super::journal::{ends, place};
use super::system::System;

impl System {
    fn outcomes(&self) -> impl Iterator<Item = (u32, SessionId, &Outcome)> {
        self.journals.iter().flat_map(|(session, journal)| {
            let depth = place(journal).map_or(0, Place::depth);
            ends(journal).map(move |ended| (depth, *session, &ended.outcome))
        })
    }

    fn has_noticed(&self, of: impl Fn(&Notice) -> bool) -> bool {
        self.journals.values().flat_map(|journal| journal.records.iter()).any(|record| {
            let Record::NoticeTaken(taken) = record else { return false };
            taken.items.iter().any(&of)
        })
    }

    pub(super) fn root_completed(&self) -> bool {
        let completed = self.outcomes().any(|(depth, _, outcome)| depth == 0 && *outcome == Outcome::Completed);
        completed && self.has_noticed(|notice| notice.outcome == Outcome::Completed)
    }

    pub(super) fn lost_child_noticed(&self) -> bool {
        self.has_noticed(|notice| notice.outcome == Outcome::Lost)
    }

    pub(super) fn restarted_child_completes(&self) -> bool {
        self.outcomes().any(|(depth, session, outcome)| {
            let revived = self.active.get(&session).is_some_and(|active| active.epoch.0 > 1);
            depth > 0 && *outcome == Outcome::Completed && revived
        })
    }

    pub(super) fn grandchild_cancelled(&self) -> bool {
        let by_person = Outcome::Cancelled { by: Initiator::Person };
        let root = self.outcomes().any(|(depth, _, outcome)| depth == 0 && *outcome == by_person);
        let below = |outcome: &Outcome| matches!(outcome, Outcome::Cancelled { by: Initiator::Owner { .. } });
        root && self.outcomes().any(|(depth, _, outcome)| depth == 2 && below(outcome))
    }

    fn interrupted_runs(&self) -> impl Iterator<Item = (RunNo, &[Record])> {
        self.journals.values().filter_map(|journal| {
            let (at, run) = journal.records.iter().enumerate().find_map(|(at, record)| {
                let Record::RunHeld { run, why } = record else { return None };
                matches!(**why, Hold::Interrupted { .. }).then_some((at, *run))
            })?;
            Some((run, journal.records.get(at..)?))
        })
    }

    fn ends_as(run: RunNo, records: &[Record], kind: OutcomeKind) -> bool {
        records.iter().any(|record| {
            let Record::RunEnded(ended) = record else { return false };
            ended.run == run && ended.outcome.kind() == kind
        })
    }

    pub(super) fn background_child_completes(&self) -> bool {
        let completed = |record: &Record| {
            let Record::NoticeTaken(taken) = record else { return false };
            taken.carrier == Carrier::Message && taken.items.iter().any(|item| item.outcome == Outcome::Completed)
        };
        self.interrupted_runs()
            .any(|(run, after)| after.iter().any(completed) && Self::ends_as(run, after, OutcomeKind::Interrupted))
    }

    pub(super) fn interrupt_ends_child(&self) -> bool {
        let by_owner = Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::Interrupted } };
        self.outcomes().any(|(_, _, outcome)| *outcome == by_owner)
    }

    pub(super) fn resumed_completes(&self) -> bool {
        self.interrupted_runs().any(|(run, after)| Self::ends_as(run, after, OutcomeKind::Completed))
    }

    pub(super) fn children_completed(&self) -> usize {
        self.outcomes().filter(|(depth, _, outcome)| *depth > 0 && **outcome == Outcome::Completed).count()
    }

    fn has_record(&self, is: impl Fn(&Record) -> bool) -> bool {
        self.journals.values().any(|journal| journal.records.iter().any(&is))
    }

    pub(super) fn continued_completes(&self) -> bool {
        self.has_noticed(|notice| {
            notice.run.is_some_and(|run| run.0 > 1) && notice.key.is_some() && notice.outcome == Outcome::Completed
        })
    }

    pub(super) fn refusal_noticed(&self) -> bool {
        self.has_noticed(|notice| notice.refused.is_some())
    }

    pub(super) fn stopped_by_model(&self) -> bool {
        self.has_noticed(|notice| matches!(notice.outcome, Outcome::Cancelled { by: Initiator::Model { .. } }))
    }

    pub(super) fn moved_call_completes(&self) -> bool {
        let moved = |record: &Record| matches!(record, Record::CallFinished(it) if it.end == CallEnd::Backgrounded);
        self.has_record(moved)
            && self.has_noticed(|notice| notice.outcome == Outcome::Completed)
            && self.root_completed()
    }

    pub(super) fn queue_is_kept(&self) -> bool {
        self.has_record(|record| matches!(record, Record::RunEnded(ended) if ended.keeps_queue))
    }

    pub(super) fn ask_answered(&self, verdict: AskVerdict, by: AnsweredBy) -> bool {
        let gives = |record: &Record| matches!(record, Record::AskAnswered { verdict: given, by: giver, .. } if (*given, *giver) == (verdict, by));
        self.has_record(gives) && self.outcomes().any(|(_, _, outcome)| *outcome == Outcome::Completed)
    }

    pub(super) fn persons_run_in_child_completes(&self) -> bool {
        self.has_noticed(|notice| notice.key.is_none() && notice.outcome == Outcome::Completed)
    }

    pub(super) fn closed_session_refuses(&self) -> bool {
        self.has_record(|record| matches!(record, Record::SessionClosed { .. })) && self.refusal_noticed()
    }

    pub(super) fn alternative_switched(&self) -> bool {
        self.has_record(|record| matches!(record, Record::AlternativeSwitched { .. }))
    }

    pub(super) fn branch_answers(&self) -> bool {
        let inherits = |record: &Record| matches!(record, Record::SessionCreated(it) if !it.inherited.is_empty());
        self.journals.values().any(|journal| {
            journal.records.first().is_some_and(inherits) && ends(journal).any(|end| end.outcome == Outcome::Completed)
        })
    }

    pub(super) fn reset_completes(&self) -> bool {
        let resumed = |record: &Record| matches!(record, Record::RunResumed { why: Park::Limit { .. }, .. });
        self.journals.values().any(|journal| {
            journal.records.iter().any(resumed) && ends(journal).any(|end| end.outcome == Outcome::Completed)
        })
    }

    /// Returns whether a run completed after it took a relative's message.
    pub(super) fn message_taken(&self) -> bool {
        self.journals.values().any(|journal| {
            let sent = |record: &Record| {
                let Record::InputAccepted(input) = record else { return None };
                Some(input.id).filter(|_| input.is_from_relative())
            };
            let sent: Vec<_> = journal.records.iter().filter_map(sent).collect();
            let takes = |record: &Record| matches!(record, Record::InputsTaken { ids, .. } if ids.iter().any(|id| sent.contains(id)));
            journal.records.iter().any(takes) && ends(journal).any(|end| end.outcome == Outcome::Completed)
        })
    }

    pub(super) fn remaining_crashes(&self) -> u8 {
        self.remaining.crashes
    }

    /// Returns whether a run is parked at a limit while the process is running.
    pub(super) fn is_parked(&self) -> bool {
        let limited = |state: &State| state.run.as_ref().is_some_and(|run| run.limit_reset_at().is_some());
        self.boot.is_none() && self.known_sessions().any(|(_, state)| limited(state))
    }

    pub(super) fn is_rolled_back(&self) -> bool {
        self.has_record(|record| matches!(record, Record::RolledBack { .. }))
    }

    pub(super) fn is_compacted(&self) -> bool {
        self.has_record(|record| matches!(record, Record::Compacted(_)))
    }

    pub(super) fn compaction_failed(&self) -> bool {
        self.has_record(|record| matches!(record, Record::CompactionFailed(_)))
    }

    pub(super) fn is_titled(&self) -> bool {
        self.journals.values().any(|journal| journal.records.iter().any(|record| matches!(record, Record::TitleSet(_))))
    }

    pub(super) fn is_summarised(&self) -> bool {
        self.journals
            .values()
            .any(|journal| journal.records.iter().any(|record| matches!(record, Record::SummarySet(_))))
    }
}
