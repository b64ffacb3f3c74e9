//! Tests of the runtime through its public API, in one binary so that it is linked only once.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod accounts;
mod activity;
mod answers;
mod approvals;
mod audit;
mod background;
mod boot;
mod bounded_reads;
mod branches;
mod budget;
mod cancel;
mod cancel_tree;
mod causes;
mod checkpoints;
mod classifying;
mod compactions;
mod contexts;
mod r#continue;
mod crash_points;
mod damaged;
mod deadlines;
mod deleting;
mod deltas;
mod detached;
mod dialect_ends;
mod dialect_rows;
mod dialect_rules;
mod dialects;
mod discovery;
mod embedding;
mod environments;
mod events;
mod faults;
mod following;
mod full_lanes;
mod giving_up;
mod hooks;
mod host_children;
mod interrupt;
mod jobs;
mod late_effects;
mod late_messages;
mod leases;
mod life;
mod limits;
mod live_tools;
mod messages;
mod minions;
mod missing_environments;
mod models;
mod money;
mod offered;
mod output_commit;
mod overrides;
mod parsed_once;
mod person_slots;
mod plan_exit;
mod pools;
mod presence;
mod processes;
mod queue;
mod queued_states;
mod reading;
mod resume;
mod rollbacks;
mod rows;
mod shutdown;
mod subagents;
mod support;
mod survivors;
mod sweeps;
mod tasks;
mod tool_options;
mod tree;
mod tree_cancels;
mod typed;
mod usage;
mod waiting;
mod working_text;
