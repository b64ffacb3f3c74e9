//! Invariants: what must hold in every interleaving, as predicates over plain data.
//!
//! The model checker, the audit of a store and the tests that use it fill a [`World`] and ask the same predicates of it. A
//! predicate says nothing of what its world does not show: an absent state, frame list or ledger is not judged.

mod id;
mod journal;
mod notice;
mod session;
#[cfg(test)]
mod tests;
mod tree;
mod world;

use std::fmt;

pub use id::InvariantId;
pub use world::{Activation, Frame, Ledger, View, World};

use crate::ids::SessionId;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub id: InvariantId,
    /// Where.
    pub session: SessionId,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not hold in session {}: {} ({})", self.id, self.session, self.what, self.id.text())
    }
}

impl std::error::Error for Violation {}

/// What a predicate says.
pub type Verdict = Result<(), Violation>;

/// Something that must hold of a world.
#[derive(Clone, Copy)]
pub struct Predicate {
    /// Which invariant it judges, or a part of it.
    pub id: InvariantId,
    /// The judgement.
    pub check: fn(&World<'_>) -> Verdict,
}

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, f)
    }
}

macro_rules! predicates {
    ($($id:ident => $check:path,)*) => {
        &[$(Predicate { id: InvariantId::$id, check: $check },)*]
    };
}

/// Predicates of every state.
pub const ALWAYS: &[Predicate] = predicates! {
    J2 => journal::gap_free,
    J3 => journal::whole_batches,
    J4 => journal::fold_is_state,
    J6 => journal::one_writer,
    S1 => session::one_end,
    S2 => session::ends_stand,
    S7 => session::one_stream,
    S9 => session::runs_in_order,
    S10 => session::one_run,
    S11 => session::open_is_counted,
    S12 => session::slot_for_a_due_turn,
    T1 => tree::parents_know,
    T2 => tree::places,
    T3 => tree::slots,
    T4 => tree::no_late_effect,
    T5 => tree::true_cancels,
    T6 => tree::interrupts_spare,
    T7 => tree::ends_after_owned,
    N1 => notice::never_two,
    N2 => notice::unchanged,
    N3 => notice::after_its_end,
    N4 => notice::one_result,
    E2 => session::no_trace_of_discarded,
    P1 => tree::ceilings,
};

/// Predicates of quiescent states: the process is up, no message is in flight, only the outside world can act.
pub const QUIESCENT: &[Predicate] = predicates! {
    S1 => session::all_ended,
    S4 => session::reason_to_wait,
    S12 => session::nothing_takeable_waits,
    T3 => tree::slots_recounted,
    T5 => tree::cancelled_trees_ended,
    T7 => tree::owned_ended,
    N1 => notice::told,
};

/// Judges what must hold in every state.
///
/// # Errors
/// The first violation.
pub fn always(world: &World<'_>) -> Verdict {
    ALWAYS.iter().try_for_each(|predicate| (predicate.check)(world))
}

/// Judges what must hold in a quiescent state, besides what always must.
///
/// # Errors
/// The first violation.
pub fn quiescent(world: &World<'_>) -> Verdict {
    QUIESCENT.iter().try_for_each(|predicate| (predicate.check)(world))
}

impl InvariantId {
    /// Asks every predicate of this invariant; the quiescent ones only if `at_rest`.
    ///
    /// # Errors
    /// The first violation.
    pub fn check(self, world: &World<'_>, at_rest: bool) -> Verdict {
        let resting = if at_rest { QUIESCENT } else { &[] };
        let mine = ALWAYS.iter().chain(resting).filter(|predicate| predicate.id == self);
        mine.into_iter().try_for_each(|predicate| (predicate.check)(world))
    }
}

fn ensure(holds: bool, id: InvariantId, session: SessionId, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(Violation { id, session, what: what() }) }
}
