//! What a task's records tell beyond the row that lists it.

use std::sync::Arc;

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;

/// Bytes of a prompt or a result that a listing holds at most.
const SHOWN: usize = 4_096;
/// Records of a session's start that are looked at: its birth and its first input are among them.
const START: usize = 8;
/// Records of a session's end that are looked at first: its last end is among them, most often.
const TAIL: u64 = 16;

/// What the records of one task tell.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) prompt: Option<Text>,
    pub(super) metadata: Option<Text>,
    pub(super) end: Option<End>,
}

/// The last end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) text: Option<Text>,
    pub(super) at_ms: i64,
}

impl Told {
    /// Reads how a session began, and its last end up to record `ended`, where there is one.
    pub(super) fn read(journal: &Journal, session: SessionId, ended: Option<Seq>) -> Result<Self, ReadError> {
        let mut told = Self::default();
        for Stored { record, .. } in journal.records_from(session, Seq(1), START)? {
            if let Record::SessionCreated(created) = record {
                told.metadata = created.metadata;
            } else if let Record::InputAccepted(input) = record {
                told.prompt = Some(shown(&input.text));
                break;
            }
        }
        if let Some(last) = ended {
            told.end = end(journal, session, last)?;
        }
        Ok(told)
    }
}

/// The last end up to about record `last`, from behind.
fn end(journal: &Journal, session: SessionId, last: Seq) -> Result<Option<End>, ReadError> {
    let mut wanted = TAIL;
    loop {
        let from = Seq(last.0.saturating_sub(wanted).saturating_add(1));
        let page = journal.records_from(session, from, usize::try_from(wanted).unwrap_or(usize::MAX))?;
        let found = page.into_iter().rev().find_map(|Stored { record, at_ms, .. }| {
            let Record::RunEnded(ended) = record else { return None };
            Some(End { text: ended.text.as_ref().map(shown), outcome: ended.outcome, at_ms })
        });
        if found.is_some() || wanted >= last.0 {
            return Ok(found);
        }
        wanted = wanted.saturating_mul(4);
    }
}

/// The start of a text, cut at a character's edge.
fn shown(text: &Text) -> Text {
    if text.len() <= SHOWN {
        return Arc::clone(text);
    }
    let start = text.get(..text.floor_char_boundary(SHOWN)).unwrap_or_default();
    format!("{start}…").into()
}
