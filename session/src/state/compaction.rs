use std::sync::Arc;

use crate::ids::{Seq, Text};
use crate::message::{Message, Transcript};
use crate::record::Compacted;

/// A compaction in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The position from which messages stay visible.
    pub upto: usize,
    /// Earlier positions whose messages stay visible.
    pub verbatim: Vec<usize>,
    /// The message that replaces the hidden ones.
    pub text: Text,
    pub seq: Seq,
    /// Estimated input tokens of the next model call, before and after the compaction.
    pub tokens: (u64, u64),
}

impl Compaction {
    pub(crate) fn from_record(record: &Compacted, seq: Seq) -> Self {
        let at = |at: &u64| usize::try_from(*at).unwrap_or(usize::MAX);
        Self {
            upto: at(&record.upto),
            verbatim: record.verbatim.iter().map(at).collect(),
            text: Arc::clone(&record.text),
            seq,
            tokens: (record.before, record.after),
        }
    }

    /// Returns the messages that replace the hidden ones.
    pub(crate) fn replacement<'a>(&'a self, transcript: &'a Transcript) -> impl Iterator<Item = Message> + 'a {
        let stay = self.verbatim.iter().filter_map(|at| transcript.get(*at)).cloned();
        std::iter::once(Message::Prompt { text: Arc::clone(&self.text) }).chain(stay)
    }

    /// Returns the number of hidden messages. The text that replaces them states this number.
    pub fn hidden(&self) -> usize {
        self.upto.saturating_sub(self.verbatim.len())
    }

    pub(crate) fn hides(&self, at: usize) -> bool {
        at < self.upto && self.verbatim.binary_search(&at).is_err()
    }
}
