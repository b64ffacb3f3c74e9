//! A text of several pieces that are joined when it is read.

use crate::ids::Text;

/// The texts of several answers as one text. Joining them after each answer would take quadratic time in a long run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedText {
    /// The first piece, in a field of its own: most runs have one answer, and need no vector.
    first: Option<Text>,
    more: Option<Box<More>>,
}

/// The further pieces, each with the separator that precedes it. Boxed to keep [`JoinedText`] small.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More(Vec<(&'static str, Text)>);

impl JoinedText {
    /// Adds a piece after the separator `between`, which the first piece does not use.
    pub fn push(&mut self, between: &'static str, text: &Text) {
        match self.first {
            None => self.first = Some(Text::clone(text)),
            Some(_) => self.more.get_or_insert_default().0.push((between, Text::clone(text))),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns the whole text. A single piece is shared, not copied.
    pub fn text(&self) -> Text {
        match &self.first {
            None => Text::default(),
            Some(first) if self.more.is_none() => Text::clone(first),
            Some(first) => {
                let more = self.more.iter().flat_map(|more| &more.0);
                let mut pieces = vec![&**first];
                pieces.extend(more.flat_map(|(between, text)| [*between, &**text]));
                // In one allocation: the text may have megabytes.
                pieces.concat().into()
            }
        }
    }
}
