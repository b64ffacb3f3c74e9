//! Rules for titles of sessions.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize as _, Deserializer};

use crate::ids::Text;
use crate::unseen::changes_direction;

pub const MAX_CHARS: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTitle {
    #[error("the title is empty: describe the session")]
    Empty,
    #[error("the title has {chars} characters, the limit is {MAX_CHARS}")]
    Long { chars: usize },
    #[error("the title is more than one line, or has control characters")]
    NotOneLine,
}

/// Returns `text` on one line, with single spaces. Borrows it if nothing changes.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let spaced = |c: char| c.is_whitespace() && c != ' ';
    if !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  ") && !text.contains(spaced) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Returns `text` on one line, like [`one_line`]. Shares the text if nothing changes.
pub(crate) fn fold_line(text: &Text) -> Text {
    match one_line(text) {
        Cow::Borrowed(_) => Arc::clone(text),
        Cow::Owned(line) => line.into(),
    }
}

/// Deserializes the title of an index row. Earlier versions stored line breaks in it.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    Text::deserialize(from).map(|title| fold_line(&title))
}

pub fn check(title: &str) -> Result<(), BadTitle> {
    let chars = title.chars().count();
    if title.trim().is_empty() {
        return Err(BadTitle::Empty);
    }
    if chars > MAX_CHARS {
        return Err(BadTitle::Long { chars });
    }
    if title.chars().any(|c| c.is_control() || changes_direction(c)) {
        return Err(BadTitle::NotOneLine);
    }
    Ok(())
}
