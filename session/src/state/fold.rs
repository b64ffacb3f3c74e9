use std::sync::Arc;

use super::{CallPhase, State};
use crate::dialect::jobs;
use crate::ids::{Seq, SessionId};
use crate::record::{Carrier, Record, SessionCreated};

/// The reason why a journal is invalid. The session is then quarantined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    #[error("session {session} has no records: nothing was written for it, or its journal is damaged")]
    Empty { session: SessionId },
    #[error("session {session} starts with {found} rather than with session_created: its journal is damaged")]
    NotCreation { session: SessionId, found: &'static str },
    #[error("session {session}: the body of its {what} is missing: read it from the store's definitions first")]
    NoBody { session: SessionId, what: &'static str },
    #[error("session {session}, record {seq}: {found} does not fit: {why}")]
    Illegal { session: SessionId, seq: Seq, found: &'static str, why: &'static str },
}

impl State {
    /// Folds a journal.
    /// # Errors
    /// If the records are not those of one session in order.
    pub fn fold<'a>(id: SessionId, records: impl IntoIterator<Item = &'a Record>) -> Result<Self, FoldError> {
        let mut records = records.into_iter();
        let mut state = match records.next() {
            None => return Err(FoldError::Empty { session: id }),
            Some(Record::SessionCreated(created)) => Self::from_created(id, created)?,
            Some(other) => return Err(FoldError::NotCreation { session: id, found: other.kind() }),
        };
        records.try_for_each(|record| state.follow(record))?;
        Ok(state)
    }

    /// Folds the next record of the journal.
    /// # Errors
    /// If the record does not fit; the state is unchanged.
    pub fn follow(&mut self, record: &Record) -> Result<(), FoldError> {
        if let Err(why) = self.check_record(record) {
            return Err(FoldError::Illegal { session: self.id, seq: self.next_seq, found: record.kind(), why });
        }
        self.apply(record);
        Ok(())
    }

    /// Estimates the nanoseconds that the fold of `record`, just done, spent on content of earlier records. The rest of a
    /// fold takes time in proportion to the size of the records, so a bound on the sum bounds the time of a whole fold.
    pub fn reread_work(&self, record: &Record) -> u64 {
        if let Record::Compacted(_) = record {
            // The fold searches the messages for the exchange of each selected alternative, to compare it with the cut.
            let selected = self.alternatives.values().filter(|of| of.selected_text().is_some()).count() as u64;
            let hidden = self.hidden().count() as u64;
            let searches = hidden.saturating_add(1).saturating_mul(selected).saturating_add(1);
            return searches.saturating_mul(self.transcript.len() as u64);
        }
        if let Record::NoticeTaken(taken) = record
            && let Carrier::Await { call } = taken.carrier
            && let Some(call) = self.call(call).filter(|call| *call.tool == *jobs::AWAIT)
        {
            // The result may list all jobs with their cached texts. Its bytes count 16 times: rendered and kept.
            let shown = match &call.phase {
                CallPhase::Closed(result) => result.content.len() as u64,
                CallPhase::Unstarted | CallPhase::Asked(_) | CallPhase::Started => 0,
            };
            let jobs = (self.children.len() as u64).saturating_mul(64);
            return shown.saturating_mul(16).saturating_add(jobs).saturating_add(self.kept.bytes() as u64);
        }
        0
    }

    fn from_created(id: SessionId, created: &SessionCreated) -> Result<Self, FoldError> {
        let missing = |what| FoldError::NoBody { session: id, what };
        if created.system.body.is_none() {
            return Err(missing("system prompt"));
        }
        let ceiling = created.ceiling.body.clone().ok_or(missing("ceiling"))?;
        let ceiling = match &created.imported {
            Some(bound) => Arc::new(ceiling.meet(bound)),
            None => ceiling,
        };
        let limits = created.limits.body.clone().ok_or(missing("limits"))?;
        let own_turns = created.turns.unwrap_or(limits.turns);
        Ok(Self {
            id,
            created: Arc::new(created.clone()),
            ceiling,
            limits,
            next_seq: Seq(2),
            run: None,
            last: None,
            outcomes: Vec::new(),
            last_run: Default::default(),
            last_turn: Default::default(),
            queue: Default::default(),
            seen: Default::default(),
            accepted: Vec::new(),
            transcript: Arc::clone(&created.inherited),
            asked: Default::default(),
            about: None,
            children: Default::default(),
            kept: Default::default(),
            shorts: Default::default(),
            owed: Default::default(),
            noticed: Default::default(),
            agent: None,
            tools: created.tools.clone(),
            always: Default::default(),
            alternatives: Default::default(),
            message_ranges: Default::default(),
            compactions: Vec::new(),
            measured: None,
            revised: Seq(1),
            title: None,
            summary: None,
            metadata: None,
            metadata_bytes: 0,
            turns: 0,
            own_turns,
            deleted: false,
            closed: false,
            usage: Default::default(),
            text_bytes: created.heap_bytes(),
            recorded: 0,
            input_bytes: 0,
            agent_inputs: 0,
            agent_input_bytes: 0,
            arrived: Default::default(),
            due: Default::default(),
            recalled: Default::default(),
            window: None,
            queued_children: Default::default(),
        })
    }
}
