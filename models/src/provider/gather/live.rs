//! What is shown of an answer while it arrives. The ends of its text and its reasoning are held back, because the key may begin in them.

use std::time::Duration;

use subtend_session::ids::Text;
use tokio::time::Instant;

use super::super::key::Key;
use super::super::mask::MaskedStream;
use crate::model::{Delta, Deltas};

/// Time without new text or reasoning after which its end is shown. Nothing else shows it earlier, except the end of the answer: a
/// server could show the key in parts.
pub(in crate::provider) const QUIET: Duration = Duration::from_millis(500);

pub(super) struct LiveDeltas {
    deltas: Deltas,
    text: HeldStream,
    reasoning: HeldStream,
    /// Whether the reasoning is shown before the text.
    is_reasoning_first: bool,
    /// The calls, which are shown after both.
    calls: Vec<Delta>,
}

struct HeldStream {
    masked: MaskedStream,
    grown: Instant,
    /// What may be shown, after the other stream.
    waiting: String,
    delta: fn(Text) -> Delta,
}

impl LiveDeltas {
    pub(super) fn new(deltas: Deltas) -> Self {
        let (text, reasoning) = (HeldStream::new(Delta::Text), HeldStream::new(Delta::Reasoning));
        Self { deltas, text, reasoning, is_reasoning_first: false, calls: Vec::new() }
    }

    /// Starts the text in the state after the answer that this one may continue.
    pub(super) fn continuing(self, masked: MaskedStream) -> Self {
        Self { text: HeldStream { masked, ..self.text }, ..self }
    }

    pub(super) fn keep_alive(&self) {
        self.deltas.keep_alive();
    }

    pub(super) fn push_text(&mut self, piece: &str, key: Option<&Key>) {
        self.is_reasoning_first &= !self.reasoning.is_empty();
        self.text.push(piece, key);
        self.show_quiet(QUIET);
    }

    pub(super) fn push_reasoning(&mut self, piece: &str, key: Option<&Key>) {
        self.is_reasoning_first |= self.text.is_empty();
        self.reasoning.push(piece, key);
        self.show_quiet(QUIET);
    }

    pub(super) fn push_call(&mut self, call: Delta) {
        self.calls.push(call);
        self.show_quiet(QUIET);
    }

    /// Shows everything, because the answer pauses or ends.
    pub(super) fn show_all(&mut self) {
        self.show_quiet(Duration::ZERO);
    }

    /// Shows, in order, what need not be held back, and the ends that did not grow for `quiet`.
    pub(super) fn show_quiet(&mut self, quiet: Duration) {
        let (first, second) = if self.is_reasoning_first {
            (&mut self.reasoning, &mut self.text)
        } else {
            (&mut self.text, &mut self.reasoning)
        };
        if first.show(&self.deltas, quiet) && second.show(&self.deltas, quiet) {
            self.calls.drain(..).for_each(|call| self.deltas.send(call));
        }
    }
}

impl HeldStream {
    fn new(delta: fn(Text) -> Delta) -> Self {
        Self { masked: MaskedStream::default(), grown: Instant::now(), waiting: String::new(), delta }
    }

    fn push(&mut self, piece: &str, key: Option<&Key>) {
        self.waiting.push_str(&self.masked.push(piece, key));
        self.grown = Instant::now();
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.masked.is_holding()
    }

    /// Returns whether all is shown.
    fn show(&mut self, deltas: &Deltas, quiet: Duration) -> bool {
        let mut shown = std::mem::take(&mut self.waiting);
        if self.grown.elapsed() >= quiet {
            shown.push_str(&self.masked.show_rest());
        }
        if !shown.is_empty() {
            deltas.send((self.delta)(shown.into()));
        }
        self.is_empty()
    }
}
