//! The heart, driven from outside: the table cell by cell, the rules that bind every cell, the verbs, and the fold.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests say what they expect and fail where it is not so"
)]

mod arbitrary;
mod folding;
mod given;
mod index;
mod interrupts;
mod models;
mod rules;
mod table;
mod texts;
mod verbs;
