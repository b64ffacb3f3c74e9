//! Results that a session no longer keeps but its model reads again. They are read from the journals of the children.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_journal::{ReadError, Stored};
use subtend_session::call::CallKind;
use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunNo, Seq, SessionId, Text};
use subtend_session::record::Record;
use subtend_session::state::CallPhase;

use crate::calls::in_flight::Parsed;
use crate::cell::cells::Cells;
use crate::cell::driver::Driver;

/// Number of records at the end of a journal that are read first, since they usually include the last end.
const TAIL: u64 = 16;

impl Driver {
    /// Loads the results that calls of an answer or of a new activation may read again, up to the size of one result.
    pub(crate) fn recall(&mut self, command: &Command) {
        let mut wanted = Vec::new();
        if let Command::ModelAnswered(answer) = command {
            for (call, ix) in answer.calls.iter().zip(0_u32..) {
                self.add_recalled(&call.kind, CallId { turn: answer.turn, ix }, &mut wanted);
            }
        } else if let Command::Reactivated { calls, .. } = command {
            for found in calls {
                let unstarted = self.state.call(found.call).filter(|call| call.phase == CallPhase::Unstarted);
                if unstarted.is_some() {
                    self.add_recalled(&found.kind, found.call, &mut wanted);
                }
            }
        } else {
            return;
        }
        let mut remaining = usize::try_from(self.state.limits.notices_bytes).unwrap_or(usize::MAX);
        let mut recalled = BTreeMap::new();
        for job in wanted {
            let dropped_text = self.state.children.get(&job).and_then(|child| child.dropped_text());
            let Some(run) = dropped_text.and_then(|given| given.run).filter(|_| remaining > 0) else { continue };
            match self.cells.answer_of(job, run) {
                Ok(text) => {
                    remaining = remaining.saturating_sub(text.as_ref().map_or(0, |text| text.len()));
                    recalled.extend(text.map(|text| (job, text)));
                }
                Err(error) => tracing::warn!(session = %self.session(), %job, %error, "cannot read a result again"),
            }
        }
        self.state.recalled = recalled;
    }

    fn add_recalled(&self, kind: &CallKind, call: CallId, wanted: &mut Vec<SessionId>) {
        if let CallKind::Check { run, .. } = kind {
            wanted.push(run.session);
        } else if let (CallKind::Await { .. }, Some(Parsed::Await(jobs))) = (kind, self.work.ready.get(&call)) {
            wanted.extend(jobs.resolve(&self.state));
        }
    }
}

impl Cells {
    /// Returns the text of the end of `run` of `session`; searches backwards.
    fn answer_of(&self, session: SessionId, run: RunNo) -> Result<Option<Text>, ReadError> {
        let head = self.log.journal.head(session)?.filter(|head| !head.deleted);
        let Some(last) = head.map(|head| head.last_seq) else { return Ok(None) };
        let mut wanted = TAIL;
        loop {
            let from = Seq(last.0.saturating_sub(wanted).saturating_add(1));
            let page = self.log.journal.records_from(session, from, usize::try_from(wanted).unwrap_or(usize::MAX))?;
            let found = page.iter().rev().find_map(|Stored { record, .. }| {
                let Record::RunEnded(ended) = record else { return None };
                (ended.run == run).then(|| ended.text.as_ref().map(Arc::clone))
            });
            if found.is_some() || wanted >= last.0 {
                return Ok(found.flatten());
            }
            wanted = wanted.saturating_mul(4);
        }
    }
}
