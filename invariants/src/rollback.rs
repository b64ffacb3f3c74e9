//! Invariant E-2, for whole runs: rolled-back messages are in no model call and no branch.

use std::collections::BTreeSet;

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure_if};
use subtend_session::ids::{Seq, TurnNo};
use subtend_session::message::Message;
use subtend_session::record::Record;

#[derive(Default)]
struct Hidden {
    records: BTreeSet<Seq>,
    turns: BTreeSet<TurnNo>,
}

impl Hidden {
    /// Returns the messages that are hidden once the first `records` records of the journal are applied.
    fn after_records(seen: &SessionFacts<'_>, records: usize) -> Self {
        let mut hidden = Self::default();
        for record in seen.view.records.iter().take(records) {
            let Record::RolledBack { run, .. } = record else { continue };
            let Some(run) = seen.runs.get(run) else { continue };
            let from = run.opened.map_or(0, |(at, _)| at);
            let span = (1_u64..).map(Seq).skip(from).zip(seen.records_of(run));
            // Notices that were stored while the run was queued do not belong to it.
            for (seq, record) in span.skip_while(|(_, record)| !matches!(record, Record::RunStarted { .. })) {
                hidden.records.insert(seq);
                if let Record::TurnStarted { turn, .. } = record {
                    hidden.turns.insert(*turn);
                }
            }
        }
        hidden
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.turns.is_empty()
    }

    fn holds(&self, message: &Message) -> bool {
        match message {
            Message::User { seq, .. } | Message::Assistant { seq, .. } | Message::Notice { seq, .. } => {
                self.records.contains(seq)
            }
            Message::Result { call, .. } => self.turns.contains(&call.turn),
            Message::Prompt { .. } => false,
        }
    }
}

/// Checks that no model call contains messages of a run that was rolled back before the call's turn.
pub(super) fn no_model_receives_rolled_back_runs(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    for given in &observed.contexts {
        let (Some(messages), Some(seen)) = (&given.messages, world.sessions.get(&given.run.session)) else { continue };
        let starts = |record: &Record| matches!(record, Record::TurnStarted { turn, attempt, .. } if (*turn, *attempt) == (given.turn, given.attempt));
        let Some(start) = seen.view.records.iter().position(starts) else { continue };
        let hidden = Hidden::after_records(seen, start);
        let inherited = seen.created.map_or(0, |created| created.inherited.len());
        let leaked = messages.iter().skip(inherited).find(|message| hidden.holds(message));
        ensure_if(!hidden.is_empty(), leaked.is_none(), InvariantId::E2, given.run.session, || {
            format!("turn {} receives {leaked:?} of a run that was rolled back", given.turn)
        })?;
    }
    Ok(())
}

/// Checks that no branch inherits messages of a run that was rolled back before the branch was created.
pub(super) fn no_branch_inherits_rolled_back_runs(world: &World<'_>) -> Verdict {
    for seen in world.sessions.values() {
        let inherited = seen.created.map_or(0, |created| created.inherited.len());
        for (at, branch) in &seen.branches {
            let Some(created) = world.sessions.get(&branch.child).and_then(|child| child.created) else { continue };
            let hidden = Hidden::after_records(seen, *at);
            let leaked = created.inherited.iter().skip(inherited).find(|message| hidden.holds(message));
            ensure_if(!hidden.is_empty(), leaked.is_none(), InvariantId::E2, branch.child, || {
                format!("it inherits {leaked:?} of a run that was rolled back")
            })?;
        }
    }
    Ok(())
}

/// Returns the records of rolled-back runs among the first `records` of `seen`.
pub(super) fn hidden_before(seen: &SessionFacts<'_>, records: usize) -> BTreeSet<Seq> {
    Hidden::after_records(seen, records).records
}
