//! Calls of the turn at hand that did not start yet, by what they wait for.

use std::collections::{BTreeMap, VecDeque};

use crate::authority::Access;
use crate::call::{CallKind, ToolEffect};

/// The calls that wait for their turn, each by its place in the answer.
///
/// What a call is follows from its tool and arguments, which the hub reads; it is not recorded before the call starts. A new
/// activation brings it anew with `Reactivated`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Read-only local calls: some at once.
    pub reads: VecDeque<u32>,
    /// Other local calls: one at a time, in order, and none before an earlier one that a person is asked for.
    pub writes: VecDeque<(u32, ToolEffect)>,
    /// Child calls whose admission is to be asked for: a person allowed them.
    pub children: Vec<u32>,
    /// Child calls whose admission was asked for.
    pub admissions: u32,
    /// Await, check and return calls: they start when no admission is outstanding, so that they see the children of their answer.
    pub waits: VecDeque<(u32, CallKind)>,
    /// Calls that a person is asked for.
    pub asked: BTreeMap<u32, CallKind>,
    /// What the calls need to be allowed, where the authority was asked: for the record of their start.
    pub access: BTreeMap<u32, Box<Access>>,
}

impl Due {
    /// Forgets all of them: they were answered, or the turn is over.
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.children.clear();
        self.admissions = 0;
        self.waits.clear();
        self.asked.clear();
        self.access.clear();
    }

    /// The next call that may write, unless it stands behind one that a person is asked for.
    pub(crate) fn next_write(&self) -> Option<(u32, ToolEffect)> {
        let (ix, effect) = *self.writes.front()?;
        let writes = |kind: &CallKind| matches!(kind, CallKind::Local(effect) if *effect != ToolEffect::ReadOnly);
        let behind = self.asked.range(..ix).any(|(_, kind)| writes(kind));
        (!behind).then_some((ix, effect))
    }

    /// Whether the waits may start: no child call of their answer is still to be admitted or asked for.
    pub(crate) fn waits_may_start(&self) -> bool {
        self.admissions == 0 && self.children.is_empty() && !self.asked.values().any(CallKind::is_child)
    }

    /// Whether anything here could start now, were nothing at work.
    pub(crate) fn is_due(&self) -> bool {
        !self.reads.is_empty()
            || !self.children.is_empty()
            || self.next_write().is_some()
            || (!self.waits.is_empty() && self.waits_may_start())
    }

    /// A call that a person allowed takes its place among those that wait. Tells whether its kind is one that can wait.
    pub(crate) fn put(&mut self, ix: u32, kind: CallKind) {
        match kind {
            CallKind::Local(ToolEffect::ReadOnly) => {
                let (Ok(at) | Err(at)) = self.reads.binary_search(&ix);
                self.reads.insert(at, ix);
            }
            CallKind::Local(effect @ (ToolEffect::Idempotent | ToolEffect::SideEffect)) => {
                let (Ok(at) | Err(at)) = self.writes.binary_search_by_key(&ix, |(ix, _)| *ix);
                self.writes.insert(at, (ix, effect));
            }
            CallKind::Child(_) | CallKind::Continue(_) => self.children.push(ix),
            CallKind::Await { .. }
            | CallKind::Check { .. }
            | CallKind::Cancel { .. }
            | CallKind::Return
            | CallKind::Propose(_)
            | CallKind::Invalid(_) => {
                let (Ok(at) | Err(at)) = self.waits.binary_search_by_key(&ix, |(ix, _)| *ix);
                self.waits.insert(at, (ix, kind));
            }
        }
    }
}
