//! Streaming answers: complete lines are printed, and the incomplete line is drawn with the tree.

use subtend_session::ids::{AttemptNo, SessionId, TurnNo};

use super::super::paint::harmless;

/// Maximum number of bytes held back while a question is open.
const MAX_HELD_BYTES: usize = 64 << 10;

pub(super) type Attempt = (SessionId, TurnNo, AttemptNo);

#[derive(Debug, Default)]
pub(super) struct Stream {
    attempt: Option<Attempt>,
    /// Last attempt whose start was received. Deltas may arrive before the record of that start.
    started: Option<Attempt>,
    text: String,
    printed: usize,
    /// Length of the text that was searched for line breaks.
    searched: usize,
    whole: Option<String>,
    /// Text held back until the open question is closed; below the question, it could imitate another one.
    held: Option<HeldText>,
}

#[derive(Debug, Default)]
struct HeldText {
    text: String,
    left_out: usize,
}

impl HeldText {
    /// Adds a text up to the limit, and returns whether all of it was kept.
    fn push(&mut self, text: &str) -> bool {
        let budget = if self.left_out > 0 { 0 } else { MAX_HELD_BYTES.saturating_sub(self.text.len()) };
        let (kept, left_out) = text.split_at(text.floor_char_boundary(budget));
        if !self.text.is_empty() && !kept.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(kept);
        self.left_out = self.left_out.saturating_add(left_out.len());
        left_out.is_empty()
    }

    fn into_text(self) -> Option<String> {
        let Self { text, left_out } = self;
        match left_out {
            0 => Some(text).filter(|text| !text.is_empty()),
            _ => Some(format!(
                "{text}\n… {left_out} bytes more arrived while the question was open; `subtend show` prints them"
            )),
        }
    }
}

impl Stream {
    /// Holds back text while a question `is_open`; returns the held text once it is closed.
    pub(super) fn hold_back(&mut self, is_open: bool) -> Option<String> {
        if is_open {
            self.held.get_or_insert_default();
            return None;
        }
        self.held.take().and_then(HeldText::into_text)
    }

    fn hold_or_pass(&mut self, text: Option<String>) -> Option<String> {
        let (Some(held), Some(text)) = (&mut self.held, &text) else { return text };
        if !held.push(text) {
            // The full answer is printed at the end instead.
            self.whole = None;
        }
        None
    }

    /// Handles the start of an attempt, and returns its complete lines.
    pub(super) fn start(&mut self, of: Attempt) -> Option<String> {
        self.started = Some(of);
        let lines = self.lines();
        self.hold_or_pass(lines)
    }

    /// Handles a piece at byte `offset` of its attempt, and returns newly completed lines.
    pub(super) fn push_piece(&mut self, of: Attempt, offset: u64, piece: &str) -> Option<String> {
        if self.attempt != Some(of) {
            self.reset();
            self.attempt = Some(of);
        }
        // After a gap, the answer is printed when it is complete.
        let known = self.text.len().checked_sub(usize::try_from(offset).ok()?)?;
        self.text.push_str(piece.get(known..)?);
        let lines = self.lines();
        self.hold_or_pass(lines)
    }

    fn lines(&mut self) -> Option<String> {
        self.attempt.filter(|of| self.started == Some(*of))?;
        let end = self.text.get(self.searched..)?.rfind('\n').map(|at| self.searched.saturating_add(at));
        self.searched = self.text.len();
        let end = end?;
        let lines = self.text.get(self.printed..end)?.to_owned();
        self.printed = end.saturating_add(1);
        Some(harmless(&lines))
    }

    /// Handles the full text of an answer, and returns the part that was not printed.
    pub(super) fn answer(&mut self, of: Attempt, text: &str) -> Option<String> {
        let printed = self.text.get(..self.printed).filter(|_| self.attempt == Some(of));
        let rest = printed.and_then(|printed| text.strip_prefix(printed)).unwrap_or(text);
        let rest = (!rest.trim().is_empty()).then(|| harmless(rest.trim_end()));
        self.reset();
        self.whole = Some(text.to_owned());
        self.hold_or_pass(rest)
    }

    /// Ends an incomplete answer, and returns the part that was not printed.
    pub(super) fn end(&mut self) -> Option<String> {
        self.attempt?;
        let rest = self.rest();
        self.whole = Some(self.text.clone());
        self.reset();
        let rest = (!rest.trim().is_empty()).then_some(rest);
        self.hold_or_pass(rest)
    }

    /// Returns the end of the incomplete line, which fills `rows` of `columns`. A model may write a line of megabytes, and each frame shows it.
    ///
    /// The end begins at a multiple of `columns`, so that rows of ASCII text do not shift as text arrives.
    pub(super) fn pending(&self, rows: usize, columns: usize) -> String {
        if self.started != self.attempt || self.held.is_some() {
            return String::new();
        }
        let line = self.text.get(self.printed..).unwrap_or_default();
        let most = rows.saturating_add(1).saturating_mul(columns).saturating_mul(char::MAX_LEN_UTF8);
        let from = line.len().saturating_sub(most).checked_div(columns).unwrap_or(0).saturating_mul(columns);
        harmless(line.split_at(line.floor_char_boundary(from)).1)
    }

    fn rest(&self) -> String {
        harmless(self.text.get(self.printed..).unwrap_or_default())
    }

    pub(super) fn has_printed(&self, text: &str) -> bool {
        self.whole.as_deref() == Some(text)
    }

    fn reset(&mut self) {
        (self.attempt, self.printed, self.searched) = (None, 0, 0);
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    fn attempt(no: u32) -> Attempt {
        (SessionId(uuid::Uuid::from_u128(1)), TurnNo(1), AttemptNo(no))
    }

    #[test]
    fn u1_complete_lines_are_printed_once_on_arrival() {
        let (mut stream, first) = (Stream::default(), attempt(1));
        assert_eq!((stream.push_piece(first, 0, "one, "), stream.pending(9, 9)), (None, String::new()));
        assert_eq!(stream.push_piece(first, 5, "two\n"), None, "its start was not received yet");
        assert_eq!(stream.start(first), Some("one, two".into()));
        assert_eq!(stream.push_piece(first, 9, "\nthr"), Some(String::new()));
        assert_eq!(stream.pending(9, 9), "thr");
        // A repeated piece is not printed again.
        assert_eq!(stream.push_piece(first, 0, "one, two\n\nthree"), None);
        assert_eq!(stream.answer(first, "one, two\n\nthree"), Some("three".into()));
        assert!(stream.pending(9, 9).is_empty() && stream.has_printed("one, two\n\nthree"));
    }

    /// A model writes a fake question below an open one. Positive control: without a question, its lines are printed at once.
    #[test]
    fn model_text_is_held_while_a_question_is_open() {
        let (mut stream, first) = (Stream::default(), attempt(1));
        stream.start(first);
        assert_eq!(stream.push_piece(first, 0, "before\n"), Some("before".into()));
        assert_eq!(stream.hold_back(true), None);
        assert_eq!(stream.push_piece(first, 7, "wants to run ls\nallow? "), None);
        assert_eq!(stream.pending(9, 9), "");
        assert_eq!(stream.answer(first, "before\nwants to run ls\nallow? [y]es"), None);
        assert_eq!((stream.hold_back(true), stream.answer(attempt(2), "more")), (None, None));
        assert_eq!(stream.hold_back(false), Some("wants to run ls\nallow? [y]es\nmore".into()));
        assert_eq!((stream.hold_back(false), stream.answer(attempt(3), "after")), (None, Some("after".into())));
    }

    /// An endless answer arrives while a question is open. Positive control: without a question, everything is printed.
    #[test]
    fn held_text_is_bounded_and_counts_omitted_bytes() {
        let (mut stream, long) = (Stream::default(), "x".repeat(MAX_HELD_BYTES));
        stream.hold_back(true);
        assert_eq!((stream.answer(attempt(1), &long), stream.has_printed(&long)), (None, true));
        assert_eq!((stream.answer(attempt(2), "more"), stream.has_printed("more")), (None, false));
        assert_eq!(stream.answer(attempt(3), "and more"), None);
        let text = "… 12 bytes more arrived while the question was open; `subtend show` prints them";
        assert_eq!(stream.hold_back(false), Some(format!("{long}\n{text}")));
        assert_eq!((stream.answer(attempt(4), &long), stream.has_printed(&long)), (Some(long.clone()), true));
    }

    /// Each piece of a line without a break was searched and escaped together with all earlier ones. The control: a short line is shown in full.
    #[test]
    fn endless_line_costs_each_piece_and_frame_a_bounded_time() {
        let (mut stream, piece, begun) = (Stream::default(), "0123456789".repeat(40), Instant::now());
        stream.start(attempt(1));
        for at in 0..20_000 {
            assert_eq!(stream.push_piece(attempt(1), at * 400, &piece), None);
            assert!(stream.pending(2, 20).len() < 300);
        }
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        assert!(stream.pending(2, 20).starts_with("01234") && stream.pending(2, 20).ends_with("6789"));
        assert_eq!(stream.push_piece(attempt(1), 8_000_000, "\nab").map(|line| line.len()), Some(8_000_000));
        assert_eq!((stream.pending(2, 20), stream.end()), ("ab".into(), Some("ab".into())));
    }

    #[test]
    fn u1_answer_with_a_gap_is_printed_in_full() {
        let mut stream = Stream::default();
        assert_eq!(stream.push_piece(attempt(1), 0, "lost"), None);
        stream.start(attempt(2));
        assert_eq!(stream.push_piece(attempt(2), 0, "a\nb"), Some("a".into()));
        assert_eq!(stream.push_piece(attempt(2), 9, "z"), None);
        assert_eq!(stream.answer(attempt(2), "a\nb and z"), Some("b and z".into()));
        assert_eq!(stream.answer(attempt(3), "at once\n"), Some("at once".into()));
        assert_eq!((stream.push_piece(attempt(4), 0, "half"), stream.end()), (None, Some("half".into())));
        assert!(stream.has_printed("half") && stream.end().is_none());
    }
}
