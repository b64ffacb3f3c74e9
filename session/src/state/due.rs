//! Calls of the turn at hand that did not start yet, by what they wait for.

use std::collections::VecDeque;

use crate::call::{CallKind, ToolEffect};

/// The calls that wait for their turn, each by its place in the answer.
///
/// What a call is follows from its tool and arguments, which the hub reads; it is not recorded before the call starts. A new
/// activation brings it anew with `Reactivated`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Read-only local calls: some at once.
    pub reads: VecDeque<u32>,
    /// Other local calls: one at a time, in order.
    pub writes: VecDeque<(u32, ToolEffect)>,
    /// Child calls whose admission was asked for.
    pub admissions: u32,
    /// Await, check and return calls: they start when no admission is outstanding, so that they see the children of their answer.
    pub waits: VecDeque<(u32, CallKind)>,
}

impl Due {
    /// Forgets all of them: they were answered, or the turn is over.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.admissions = 0;
        self.waits.clear();
    }
}
