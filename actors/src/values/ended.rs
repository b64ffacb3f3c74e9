use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{Hash, RunNo, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::{Record, RunEnded};
use subtend_session::render;
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
        let answer = if is_whole { None } else { answer_of(journal, session, &ended)? };
        let folded = if is_whole || answer.is_some() { None } else { paging::fold_to(journal, session, seq)?.ok() };
        let whole = answer.or_else(|| folded?.last?.text);
        let mut usage = ended.usage_self;
        usage.add(&ended.usage_owned);
        let text = whole.or(ended.text);
        Ok(Some(Self { run, outcome: ended.outcome, text, turns: ended.turns, usage }))
    }
}

/// Returns the whole text of an end from the record of its answer; `None` if it is not the text of one record. Reads no other
/// record, because the session may be large.
pub(crate) fn answer_of(journal: &Journal, session: SessionId, ended: &RunEnded) -> Result<Option<Text>, ReadError> {
    let Some(seq) = ended.result else { return Ok(None) };
    let (page, _) = journal.without_bodies().page_from(session, seq, 1, 1)?;
    let Some(Record::TurnAnswered(answered)) = page.into_iter().next().map(|stored| stored.record) else {
        return Ok(None);
    };
    let text = match ended.returned {
        None => answered.text,
        Some(call) => answered.calls.get(call.ix as usize).map(|call| render::return_result(&call.args)),
    };
    Ok(text.filter(|text| text.len() as u64 == ended.len && Hash::of(text.as_bytes()) == ended.hash))
}
