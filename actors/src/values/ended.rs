use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{RunNo, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use subtend_session::state::State;
use subtend_session::usage::Usage;

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
        let stored = journal.records(session)?;
        let ends = stored.iter().enumerate().find_map(|(at, stored)| {
            let Record::RunEnded(ended) = &stored.record else { return None };
            (ended.run == run).then_some((at, ended))
        });
        let Some((at, ended)) = ends else { return Ok(None) };
        // The record's text is truncated; the fold of the records up to it has the whole text.
        let until = State::fold(session, stored.iter().take(at.saturating_add(1)).map(|stored| &stored.record));
        let whole = until.ok().and_then(|state| state.last).and_then(|last| last.text);
        let mut usage = ended.usage_self;
        usage.add(&ended.usage_owned);
        let text = whole.or_else(|| ended.text.clone());
        Ok(Some(Self { run, outcome: ended.outcome.clone(), text, turns: ended.turns, usage }))
    }
}
