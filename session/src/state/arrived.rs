//! Rows of the outbox that have arrived and are not taken.

use std::collections::{BTreeSet, VecDeque, vec_deque};

use crate::ids::SessionId;
use crate::index::RowKey;
use crate::record::Notice;

/// Notices in the order of their rows, each once.
///
/// A parent may hold ten thousand of them, so that asking whether one is there and taking them off costs no walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrived {
    rows: VecDeque<Notice>,
    keys: BTreeSet<(SessionId, RowKey)>,
}

impl Arrived {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> vec_deque::Iter<'_, Notice> {
        self.rows.iter()
    }

    /// Whether the row of `child` with `key` is there.
    pub fn contains(&self, child: SessionId, key: RowKey) -> bool {
        !self.keys.is_empty() && self.keys.contains(&(child, key))
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
    }

    /// Adds a row; one that is there already, or that names no run, is not added.
    pub fn push(&mut self, notice: Notice) -> bool {
        let Some(key) = notice.row_key() else { return false };
        if !self.keys.insert((notice.child, key)) {
            return false;
        }
        self.rows.push_back(notice);
        true
    }

    /// All of them, taken off.
    pub(crate) fn into_rows(self) -> Vec<Notice> {
        self.rows.into()
    }

    /// Removes the rows of `items`.
    pub(crate) fn remove(&mut self, items: &[Notice]) {
        if self.rows.is_empty() {
            return;
        }
        let mut gone = false;
        for item in items {
            if let Some(key) = item.row_key() {
                gone |= self.keys.remove(&(item.child, key));
            }
        }
        if self.keys.is_empty() {
            self.rows.clear();
        } else if gone {
            let keys = &self.keys;
            self.rows.retain(|row| row.row_key().is_some_and(|key| keys.contains(&(row.child, key))));
        }
    }
}
