//! Invariants that hold in every interleaving, as predicates over plain data.
//!
//! The model checker, the simulator, the store audit and the tests fill a [`World`] and evaluate the same predicates. A
//! predicate skips what its world lacks: an absent state, frame list, ledger or observation ([`Observed`]: what no
//! journal holds).

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

/// A violated invariant.
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
    /// The invariant that it judges, or a part of it.
    pub id: InvariantId,
    /// Its module and function, as VERIFICATION.md names it.
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

/// Predicates of every state.
pub const ALWAYS: &[Predicate] = predicates! {
    J1 => outside::acknowledged,
    J2 => journal::gap_free,
    J3 => journal::whole_batches,
    J4 => journal::fold_is_state,
    J5 => effects::intended,
    J6 => journal::one_writer,
    J7 => store::start_at_rest_changes_nothing,
    J7 => store::same_recovery,
    J8 => store::damage_is_isolated,
    J9 => store::failure_stops_acknowledgements,
    J10 => store::erased_session_is_empty,
    S1 => session::one_end,
    S2 => session::ends_never_change,
    S2 => outside::one_winner,
    S3 => table::transitions,
    S3 => outside::answers_fit,
    S5 => effects::none_after_end,
    S7 => session::one_stream,
    S8 => cause::true_causes,
    S9 => session::runs_in_order,
    S9 => continued::requested_once,
    S9 => continued::one_key_at_a_time,
    S9 => continued::late_messages_are_ignored,
    S10 => session::one_run,
    S11 => session::open_is_counted,
    S12 => session::slot_for_a_due_turn,
    S12 => queue::keeps_queue,
    S13 => order::messages_first,
    T1 => tree::parents_record_children,
    T2 => tree::places,
    T3 => tree::slots,
    T4 => tree::no_late_effect,
    T4 => effects::none_after_token,
    T5 => tree::true_cancels,
    T5 => tree::cancelled_in_time,
    T6 => tree::interrupts_end_only_awaited_runs,
    T6 => tree::detached_runs_outlive_owners,
    T7 => tree::ends_after_owned,
    T8 => actors::others_live,
    T9 => outside::listed,
    N1 => notice::never_two,
    N2 => notice::unchanged,
    N3 => notice::after_its_end,
    N3 => services::answers_of_completed_runs,
    N4 => notice::one_result,
    N5 => wake::notices_wait,
    N5 => wake::model_receives_notices,
    N6 => outside::received_in_order,
    N7 => order::persons_runs_are_not_in_context,
    N8 => compaction::nothing_required_is_hidden,
    E1 => effects::not_repeated,
    E2 => session::no_trace_of_discarded,
    E2 => effects::contexts_are_clean,
    E2 => rollback::no_model_receives_rolled_back_runs,
    E2 => rollback::no_branch_inherits_rolled_back_runs,
    E3 => budget::counted_once,
    E3 => budget::within_limits,
    E4 => budget::caps_bind,
    V1 => actors::within_budget,
    V2 => queue::accepted_inputs_are_kept,
    V2 => effects::nothing_redone,
    V3 => actors::crashing_commands_are_set_aside,
    V4 => effects::no_revival,
    V5 => actors::in_order,
    B1 => queue::queue_bounded,
    B1 => outside::queues_bounded,
    B2 => outside::controls_have_their_own_lane,
    P1 => tree::ceilings,
    P1 => authority::below_parents,
    P2 => authority::monotone,
    P3 => authority::orderless,
    P4 => authority::below_ceilings,
    P5 => asks::paired,
    P5 => asks::answered_by_rule,
    P5 => asks::always_is_own,
    P6 => authority::model_fields,
    P6 => authority::creators_are_legal,
    P6 => messages::of_relatives,
    P7 => authority::offered,
    H1 => clients::each_event_once,
    H2 => clients::one_effect_per_key,
};

/// Predicates of quiescent states: the process is up, no message is in flight, only external events can follow.
pub const QUIESCENT: &[Predicate] = predicates! {
    S1 => session::all_ended,
    S2 => outside::acknowledged_cancels_end,
    S4 => session::reason_to_wait,
    S6 => effects::waits_are_bounded,
    S12 => session::nothing_takeable_waits,
    T3 => tree::slots_recounted,
    T3 => tree::waiting_runs_hold_no_slot,
    T5 => tree::cancelled_trees_ended,
    T5 => tree::owners_and_owned_end_together,
    T7 => tree::owned_ended,
    N1 => notice::check_notices,
    N5 => wake::idle_runs_wake,
    E5 => effects::released,
    V1 => actors::given_up_ended,
};

/// Judges what must hold in every state.
/// # Errors
/// The first violation.
pub fn always(world: &World<'_>) -> Verdict {
    ALWAYS.iter().try_for_each(|predicate| (predicate.check)(world))
}

/// Judges a quiescent state: all predicates.
/// # Errors
/// The first violation.
pub fn quiescent(world: &World<'_>) -> Verdict {
    QUIESCENT.iter().try_for_each(|predicate| (predicate.check)(world))
}

impl InvariantId {
    /// Judges this invariant; the quiescent predicates only if `at_rest`.
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

/// Examines a claim if `premise` holds; otherwise it could not be false.
fn ensure_if(
    premise: bool,
    holds: bool,
    id: InvariantId,
    session: SessionId,
    what: impl FnOnce() -> String,
) -> Verdict {
    if premise { ensure(holds, id, session, what) } else { Ok(()) }
}
