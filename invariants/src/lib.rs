//! Invariants that hold in every interleaving, as predicates over plain data.
//!
//! The model checker, the simulator, the store audit and the tests fill a [`World`] and evaluate the same predicates. A
//! predicate skips its check if the world lacks the data: states, frames, the ledger, or [`Observed`] events.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

mod acknowledged;
mod actors;
mod asks;
mod authority;
mod budget;
#[cfg(feature = "sabotage")]
pub mod bugs;
mod cause;
mod clients;
mod compaction;
mod continued;
mod coverage;
mod effects;
mod id;
mod journal;
mod messages;
mod notice;
pub mod observed;
mod order;
mod outside;
mod queue;
mod rollback;
mod services;
mod session;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod wake;
mod world;

use std::fmt;

pub use acknowledged::Acknowledged;
pub use coverage::{Count, Coverage};
pub use id::InvariantId;
pub use observed::{Observed, When};
pub use world::{Activation, Frame, Ledger, Pool, View, World};

use subtend_session::ids::SessionId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub id: InvariantId,
    pub session: SessionId,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold in session {}: {} ({})", self.id, self.session, self.what, self.id.text())
    }
}

impl std::error::Error for Violation {}

pub type Verdict = Result<(), Violation>;

#[derive(Clone, Copy)]
pub struct Predicate {
    /// The invariant. A predicate may judge only a part of it.
    pub id: InvariantId,
    /// The module and function of the predicate. VERIFICATION.md uses the same name.
    pub name: &'static str,
    pub check: fn(&World<'_>) -> Verdict,
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}

macro_rules! predicates {
    ($($id:ident => $check:path,)*) => {
        &[$(Predicate { id: InvariantId::$id, name: stringify!($check), check: $check },)*]
    };
}

/// Predicates that hold in every state.
pub const ALWAYS: &[Predicate] = predicates! {
    J1 => outside::acknowledgements_are_recorded,
    J2 => journal::gap_free,
    J3 => journal::whole_batches,
    J4 => journal::fold_equals_state,
    J5 => effects::intents_precede_effects,
    J6 => journal::one_writer,
    J7 => store::start_at_rest_changes_nothing,
    J7 => store::same_recovery,
    J8 => store::damage_is_isolated,
    J9 => store::failure_stops_acknowledgements,
    J10 => store::erased_session_is_empty,
    S1 => session::one_end_per_run,
    S2 => session::ends_never_change,
    S2 => outside::reported_ends_are_recorded,
    S3 => table::transitions_are_allowed,
    S3 => outside::answers_fit,
    S5 => effects::effects_stop_at_ends,
    S7 => session::one_stream_per_session,
    S8 => cause::causes_are_true,
    S9 => session::runs_in_order,
    S9 => continued::requested_once,
    S9 => continued::one_key_at_a_time,
    S9 => continued::late_messages_are_ignored,
    S10 => session::one_run_per_session,
    S11 => session::open_calls_are_counted,
    S12 => session::slot_for_a_due_turn,
    S12 => queue::queue_opens_next_run,
    S13 => order::messages_first,
    T1 => tree::parents_record_children,
    T2 => tree::places_are_consistent,
    T3 => tree::slots_are_counted,
    T4 => tree::no_late_effect,
    T4 => effects::effects_stop_at_tokens,
    T5 => tree::cancels_have_true_causes,
    T5 => tree::cancelled_in_time,
    T6 => tree::interrupts_end_only_awaited_runs,
    T6 => tree::detached_runs_outlive_owners,
    T7 => tree::ends_after_owned,
    T8 => actors::deaths_are_isolated,
    T9 => outside::live_sessions_are_listed,
    N1 => notice::one_notice_per_run,
    N2 => notice::notices_match_ends,
    N3 => notice::notices_follow_ends,
    N3 => services::answers_of_completed_runs,
    N4 => notice::one_result_per_call,
    N5 => wake::notices_wait,
    N5 => wake::model_receives_notices,
    N6 => outside::received_in_order,
    N7 => order::persons_runs_are_not_in_context,
    N8 => compaction::nothing_required_is_hidden,
    E1 => effects::unrepeatable_calls_start_once,
    E2 => session::no_trace_of_discarded,
    E2 => effects::contexts_are_clean,
    E2 => rollback::no_model_receives_rolled_back_runs,
    E2 => rollback::no_branch_inherits_rolled_back_runs,
    E3 => budget::counted_once,
    E3 => budget::within_limits,
    E4 => budget::caps_are_enforced,
    V1 => actors::within_budget,
    V2 => queue::accepted_inputs_are_kept,
    V2 => effects::finished_work_is_not_redone,
    V3 => actors::crashing_commands_are_set_aside,
    V4 => effects::fixed_runs_start_nothing,
    V5 => actors::shutdown_is_ordered,
    B1 => queue::queue_bounded,
    B1 => outside::queues_bounded,
    B2 => outside::controls_have_their_own_lane,
    P1 => tree::ceilings_never_grow,
    P1 => authority::parents_are_not_exceeded,
    P2 => authority::permissions_only_shrink,
    P3 => authority::rule_order_has_no_effect,
    P4 => authority::ceilings_are_not_exceeded,
    P5 => asks::asks_are_answered_once,
    P5 => asks::answered_by_rule,
    P5 => asks::always_is_own,
    P6 => authority::calls_set_only_model_fields,
    P6 => authority::creators_are_legal,
    P6 => messages::messages_come_from_relatives,
    P7 => authority::offers_follow_rules,
    H1 => clients::each_event_once,
    H2 => clients::one_effect_per_key,
};

/// Predicates of quiescent states: the process is up, no message is in flight, and only external events can follow.
pub const QUIESCENT: &[Predicate] = predicates! {
    S1 => session::all_runs_end,
    S2 => outside::acknowledged_cancels_end,
    S4 => session::reason_to_wait,
    S6 => effects::waits_are_bounded,
    S12 => session::nothing_takeable_waits,
    T3 => tree::slot_counts_match_runs,
    T3 => tree::waiting_runs_hold_no_slot,
    T5 => tree::cancelled_trees_ended,
    T5 => tree::owners_and_owned_end_together,
    T7 => tree::owners_end_after_owned_runs,
    N1 => notice::check_notices,
    N5 => wake::idle_runs_wake,
    E5 => effects::resources_are_released,
    V1 => actors::abandoned_runs_end,
};

/// Judges the predicates of [`ALWAYS`].
/// # Errors
/// The first violation.
pub fn always(world: &World<'_>) -> Verdict {
    ALWAYS.iter().try_for_each(|predicate| (predicate.check)(world))
}

/// Judges the predicates of [`QUIESCENT`].
/// # Errors
/// The first violation.
pub fn quiescent(world: &World<'_>) -> Verdict {
    QUIESCENT.iter().try_for_each(|predicate| (predicate.check)(world))
}

impl InvariantId {
    /// Judges the predicates of this invariant. Those of quiescent states are included only if `at_rest` is true.
    /// # Errors
    /// The first violation.
    pub fn check(self, world: &World<'_>, at_rest: bool) -> Verdict {
        let resting = if at_rest { QUIESCENT } else { &[] };
        let mine = ALWAYS.iter().chain(resting).filter(|predicate| predicate.id == self);
        mine.into_iter().try_for_each(|predicate| (predicate.check)(world))
    }
}

fn ensure(holds: bool, id: InvariantId, session: SessionId, what: impl FnOnce() -> String) -> Verdict {
    coverage::examine();
    if holds { Ok(()) } else { Err(Violation { id, session, what: what() }) }
}

/// Examines a claim if `premise` holds. Otherwise the claim could not fail, and does not count for the coverage.
fn ensure_if(
    premise: bool,
    holds: bool,
    id: InvariantId,
    session: SessionId,
    what: impl FnOnce() -> String,
) -> Verdict {
    if premise { ensure(holds, id, session, what) } else { Ok(()) }
}
