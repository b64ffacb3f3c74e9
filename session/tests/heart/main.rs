//! Tests of decisions and the fold: every cell of the table, the rules that apply to all cells, and details of commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot continue fails"
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
mod kept_queues;
mod life;
mod limits;
mod messages;
mod models;
mod order;
mod overrides;
mod proposals;
mod record_sizes;
mod results;
mod rollbacks;
mod rules;
mod table;
mod texts;
mod timers;
mod verbs;
mod waiting;
mod written_forms;
