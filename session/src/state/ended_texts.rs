//! A cache of the texts of ended children, bounded in bytes. The oldest texts are dropped first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ids::{SessionId, Text};
use crate::record::Notice;
use crate::state::Child;

/// Maximum bytes of cached texts per session.
const MAX_BYTES: usize = 1 << 20;
/// Bytes counted for each text in addition to its length, so that the number of texts is bounded too.
const OVERHEAD: usize = 64;

/// Children whose texts are cached, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedTexts {
    order: VecDeque<SessionId>,
    bytes: usize,
}

impl EndedTexts {
    /// Caches an end of a child, and drops the oldest texts while the cache exceeds the bound. The newest text always stays.
    pub(super) fn keep(&mut self, children: &mut BTreeMap<SessionId, Child>, item: &Notice) {
        let Some(child) = children.get_mut(&item.child) else { return };
        let previous = child.given.replace(Arc::new(item.clone()));
        if let Some(previous) = previous.filter(|previous| !previous.prefix.is_empty()) {
            self.order.retain(|kept| *kept != item.child);
            self.bytes = self.bytes.saturating_sub(cost(&previous.prefix));
        }
        if item.prefix.is_empty() {
            return;
        }
        self.order.push_back(item.child);
        self.bytes = self.bytes.saturating_add(cost(&item.prefix));
        while self.bytes > MAX_BYTES && self.order.len() > 1 {
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
    /// Returns the child's last end if its text was dropped. The child's journal still has the text.
    pub fn dropped_text(&self) -> Option<&Notice> {
        self.given.as_deref().filter(|given| given.prefix.is_empty() && given.len > 0)
    }
}

fn cost(text: &Text) -> usize {
    text.len().saturating_add(OVERHEAD)
}
