//! Branches, as listings show them.

use subtend_session::place::{BranchKind, Place};

pub(crate) use subtend_actors::transcript::Branch;

/// Returns whether the session is a branch that starts afresh and that no call made.
pub(crate) fn is_fresh(place: &Place) -> bool {
    matches!(place, Place::Child { kind: BranchKind::Subagent, call: None, .. })
}
