use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use subtend_session::usage::Usage;

use crate::values::paging;

#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub run: RunNo,
    pub outcome: Outcome,
    /// The whole answer of a completed run, or the partial output of any other.
    pub text: Option<Text>,
    pub turns: u32,
    /// The usage of the run and of all runs that it owned.
    pub usage: Usage,
}

impl Ended {
    /// Returns the end of a run from the journal; `None` while it is in flight.
    /// # Errors
    /// The error of reading the session.
    pub fn read(journal: &Journal, session: SessionId, run: RunNo) -> Result<Option<Self>, ReadError> {
        let find = |stored: &Stored| {
            let Record::RunEnded(ended) = &stored.record else { return None };
            (ended.run == run).then(|| (stored.seq, ended.clone()))
        };
        let found = paging::walk(&journal.without_bodies(), session, &mut Seq(1), find)?;
        let Some((seq, ended)) = found else { return Ok(None) };
        // The record's text may be truncated, or have a note for the owner; the fold of the records up to it has the whole text.
        let has_note = ended.outcome != Outcome::Completed || ended.returned.is_some();
        let is_whole = !has_note && ended.text.as_ref().map_or(0, |text| text.len() as u64) >= ended.len;
        let folded = if is_whole { None } else { paging::fold_to(journal, session, seq)?.ok() };
        let whole = folded.and_then(|state| state.last).and_then(|last| last.text);
        let mut usage = ended.usage_self;
        usage.add(&ended.usage_owned);
        let text = whole.or(ended.text);
        Ok(Some(Self { run, outcome: ended.outcome, text, turns: ended.turns, usage }))
    }
}
