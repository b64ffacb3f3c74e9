//! Text in pieces, joined when it is read.

use std::fmt;

use crate::ids::Text;

/// The texts of several answers as one. Joining them after each answer would take quadratic time in a long run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedText {
    /// Each piece with its separator from the one before it.
    pieces: Vec<(&'static str, Text)>,
}

impl JoinedText {
    /// Adds a piece. The first one needs no separator.
    pub fn push(&mut self, between: &'static str, text: &Text) {
        let between = if self.pieces.is_empty() { "" } else { between };
        self.pieces.push((between, Text::clone(text)));
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns the whole text. A single piece is shared, not copied.
    pub fn text(&self) -> Text {
        match self.pieces.as_slice() {
            [] => Text::default(),
            [(_, text)] => Text::clone(text),
            pieces => pieces.iter().flat_map(|(between, text)| [*between, &**text]).collect::<String>().into(),
        }
    }
}

impl fmt::Display for JoinedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|(between, text)| write!(f, "{between}{text}"))
    }
}
