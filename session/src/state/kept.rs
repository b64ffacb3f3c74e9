//! Cached texts of ended children: bounded in bytes, the oldest are dropped first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ids::{SessionId, Text};
use crate::record::Notice;
use crate::state::Child;

/// Bytes of cached texts per session.
const MOST: usize = 1 << 20;
/// The least that one text counts, so that their number is bounded too.
const EACH: usize = 64;

/// Children whose texts are cached, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    order: VecDeque<SessionId>,
    bytes: usize,
}

impl Kept {
    /// Keeps an end of a child and drops the oldest texts over the bound. The newest always stays.
    pub(super) fn keep(&mut self, children: &mut BTreeMap<SessionId, Child>, item: &Notice) {
        let Some(child) = children.get_mut(&item.child) else { return };
        let before = child.given.replace(Arc::new(item.clone()));
        if let Some(before) = before.filter(|before| !before.prefix.is_empty()) {
            self.order.retain(|kept| *kept != item.child);
            self.bytes = self.bytes.saturating_sub(cost(&before.prefix));
        }
        if item.prefix.is_empty() {
            return;
        }
        self.order.push_back(item.child);
        self.bytes = self.bytes.saturating_add(cost(&item.prefix));
        while self.bytes > MOST && self.order.len() > 1 {
            let oldest = self.order.pop_front().and_then(|id| children.get_mut(&id));
            let Some(given) = oldest.and_then(|child| child.given.as_mut()) else { continue };
            self.bytes = self.bytes.saturating_sub(cost(&given.prefix));
            Arc::make_mut(given).prefix = Text::default();
        }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Child {
    /// Returns its last end, if its text was dropped: only the child's journal has it.
    pub fn let_go(&self) -> Option<&Notice> {
        self.given.as_deref().filter(|given| given.prefix.is_empty() && given.len > 0)
    }
}

fn cost(text: &Text) -> usize {
    text.len().saturating_add(EACH)
}
