//! Attack stories: models that do whatever it takes to get more than they may, on a whole runtime.
//!
//! Each is a way in which sessions and subagents of other systems got, or kept, what nobody meant to give them.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on fails"
)]

#[cfg(test)]
mod attacks {
    pub(crate) mod scene;

    mod arguments;
    mod ids;
    mod inheritance;
    mod paths;
    mod present;
    mod shell;
    mod words;
    mod writing;
}
