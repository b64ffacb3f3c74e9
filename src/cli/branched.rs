//! Kinds of branches in listings.

use subtend_session::place::{BranchKind, Place};

pub(crate) use subtend_actors::transcript::Branch;

/// Returns whether the session is a branch with an empty context that a user created.
pub(crate) fn is_fresh(place: &Place) -> bool {
    matches!(place, Place::Child { kind: BranchKind::Subagent, call: None, .. })
}
