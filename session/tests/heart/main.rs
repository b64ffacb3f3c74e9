//! The heart, driven from outside: the table cell by cell, the rules that bind every cell, the verbs, and the fold.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests say what they expect and fail where it is not so"
)]

mod alternatives;
mod arbitrary;
mod asks;
mod branches;
mod budgets;
mod compactions;
mod descriptions;
mod folding;
mod given;
mod guards;
mod index;
mod interrupts;
mod jobs;
mod journals;
mod life;
mod limits;
mod messages;
mod models;
mod order;
mod overrides;
mod proposals;
mod results;
mod rollbacks;
mod rules;
mod standing;
mod table;
mod texts;
mod timers;
mod verbs;
mod waiting;
mod words;
