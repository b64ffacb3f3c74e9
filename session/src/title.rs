//! What may be a title of a session.

use std::sync::Arc;

use serde::{Deserialize as _, Deserializer};

use crate::ids::Text;
use crate::unseen::turns;

/// Characters of a title at most.
pub const MAX_CHARS: usize = 200;

/// Why a text is no title.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTitle {
    /// It says nothing.
    #[error("the title is empty: say what the session is about")]
    Empty,
    /// It is too long.
    #[error("the title has {chars} characters, the limit is {MAX_CHARS}")]
    Long {
        /// Its characters.
        chars: usize,
    },
    /// A listing could not show it on its line.
    #[error("the title is more than one line, or has control characters")]
    NotOneLine,
}

/// Returns `text` on one line, with single spaces; the text itself where nothing changes.
pub fn one_line(text: &Text) -> Text {
    let spaced = |c: char| c.is_whitespace() && c != ' ';
    if !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  ") && !text.contains(spaced) {
        return Arc::clone(text);
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if *line == **text { Arc::clone(text) } else { line.into() }
}

/// Reads a title of an index row: earlier versions kept line breaks in it.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    Text::deserialize(from).map(|title| one_line(&title))
}

/// Whether somebody may give a session this title.
///
/// # Errors
/// [`BadTitle`].
pub fn check(title: &str) -> Result<(), BadTitle> {
    let chars = title.chars().count();
    if title.trim().is_empty() {
        return Err(BadTitle::Empty);
    }
    if chars > MAX_CHARS {
        return Err(BadTitle::Long { chars });
    }
    if title.chars().any(|c| c.is_control() || turns(c)) {
        return Err(BadTitle::NotOneLine);
    }
    Ok(())
}
