//! Unstarted calls of the current turn, by the condition that they wait for.

use std::collections::{BTreeMap, VecDeque};

use crate::authority::Access;
use crate::call::{CallKind, ToolEffect};
use crate::command::NeededApproval;

/// The unstarted calls, by position. A call's kind is resolved from its tool and arguments, and not recorded before the
/// call starts: a new activation receives it with `Reactivated`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Read-only local calls, which run concurrently.
    pub reads: VecDeque<u32>,
    /// Other local calls, which run one at a time and in order. A call waits for earlier ones that await approval.
    pub writes: VecDeque<(u32, ToolEffect)>,
    /// Approved child calls whose admission is not requested yet.
    pub children: Vec<u32>,
    /// Number of child calls whose admission was requested.
    pub admissions: u32,
    /// Await, check and return calls. They start after all admissions, to cover the children of the same answer.
    pub waits: VecDeque<(u32, CallKind)>,
    pub asked: BTreeMap<u32, AskedCall>,
    /// The access of each call that the authority checked, for the record of its start.
    pub access: BTreeMap<u32, Box<Access>>,
}

/// A call that waits for an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedCall {
    pub kind: CallKind,
    /// True if more than one access needs an approval.
    pub several: bool,
}

impl Due {
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.children.clear();
        self.admissions = 0;
        self.waits.clear();
        self.asked.clear();
        self.access.clear();
    }

    pub(crate) fn note(&mut self, call: u32, need: NeededApproval) {
        if let Some(asked) = self.asked.get_mut(&call) {
            asked.several = need == NeededApproval::SeveralAccesses;
        }
    }

    /// Returns the next call that may write, unless an earlier one awaits approval.
    pub(crate) fn next_write(&self) -> Option<(u32, ToolEffect)> {
        let (ix, effect) = *self.writes.front()?;
        let writes = |kind: &CallKind| matches!(kind, CallKind::Local(effect) if *effect != ToolEffect::ReadOnly);
        let is_blocked = self.asked.range(..ix).any(|(_, asked)| writes(&asked.kind));
        (!is_blocked).then_some((ix, effect))
    }

    /// Returns whether await, check and return calls may start: no child call awaits admission or approval.
    pub(crate) fn may_start_waits(&self) -> bool {
        self.admissions == 0 && self.children.is_empty() && !self.asked.values().any(|asked| asked.kind.is_child())
    }

    /// Returns whether a call could start now if nothing were active.
    pub(crate) fn is_due(&self) -> bool {
        !self.reads.is_empty()
            || !self.children.is_empty()
            || self.next_write().is_some()
            || (!self.waits.is_empty() && self.may_start_waits())
    }

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
