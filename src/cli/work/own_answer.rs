//! Lookup of the answer to one of several inputs that a run took.

use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{InputId, RunNo, Seq, SessionId, Text};
use subtend_session::record::Record;

/// Returns the answer to an input that was sent after the record `before`. Returns `None` if the final text of the run
/// is the answer: the input opened the run, or the run took no later input.
pub(super) fn own_answer(
    journal: &Journal,
    (session, before): (SessionId, Seq),
    (run, input): (RunNo, InputId),
) -> Result<Option<Text>, ReadError> {
    let (mut text, mut is_taken, mut another) = (None, false, false);
    for stored in journal.records_from(session, before.next(), usize::MAX)? {
        if let Record::RunOpened(opened) = &stored.record
            && opened.run == run
        {
            return Ok(None);
        } else if let Record::InputsTaken { run: of, ids, .. } = &stored.record
            && *of == run
        {
            let is_it = ids.contains(&input);
            another |= is_taken && !is_it;
            is_taken |= is_it;
        } else if let Record::TurnAnswered(answered) = &stored.record
            && answered.answers.contains(&input)
        {
            text.clone_from(&answered.text);
        }
    }
    Ok(text.filter(|_| another))
}
