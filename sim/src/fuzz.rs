//! What any bytes must leave standing: one function for each door that bytes come in by. `tests/fuzz.rs` calls them with random and
//! spoilt bytes and with every file of `fuzz/corpus`, the targets in `fuzz/` with what libFuzzer makes of the same files.
//!
//! They panic where something does not hold, and give what the bytes came to, so that a test can tell that it was more than refusals.

pub mod codec;
pub mod corpus;
pub mod export;
pub mod fold;
mod pool;
pub mod tape;

/// What bytes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Came {
    /// They were refused with a typed error, and changed nothing.
    Refused,
    /// They were taken.
    Taken,
}

/// One door.
pub type Door = fn(&[u8]) -> Came;

/// The doors, by the name of their target and of their folder in the corpus.
pub const TARGETS: [(&str, Door); 3] =
    [("codec", codec::any_bytes), ("export", export::any_bytes), ("fold", fold::any_bytes)];
