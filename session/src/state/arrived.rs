//! Notices that have arrived and are not yet taken.

use std::collections::{BTreeSet, VecDeque, vec_deque};

use crate::ids::SessionId;
use crate::index::RowKey;
use crate::record::Notice;

/// Notices in the order of their rows, without duplicates. There may be ten thousand: lookup and removal do not scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrived {
    rows: VecDeque<Notice>,
    keys: BTreeSet<(SessionId, RowKey)>,
}

impl Arrived {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn iter(&self) -> vec_deque::Iter<'_, Notice> {
        self.rows.iter()
    }

    pub fn contains(&self, child: SessionId, key: RowKey) -> bool {
        !self.keys.is_empty() && self.keys.contains(&(child, key))
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.keys.clear();
    }

    /// Adds a notice unless it is a duplicate or names neither a call nor a run. Returns whether it was added.
    pub fn push(&mut self, notice: Notice) -> bool {
        let Some(key) = notice.row_key() else { return false };
        if !self.keys.insert((notice.child, key)) {
            return false;
        }
        self.rows.push_back(notice);
        true
    }

    pub(crate) fn into_rows(self) -> Vec<Notice> {
        self.rows.into()
    }

    pub(crate) fn remove(&mut self, items: &[Notice]) {
        if self.rows.is_empty() {
            return;
        }
        let mut removed = false;
        for item in items {
            if let Some(key) = item.row_key() {
                removed |= self.keys.remove(&(item.child, key));
            }
        }
        if self.keys.is_empty() {
            self.rows.clear();
        } else if removed {
            let keys = &self.keys;
            self.rows.retain(|row| row.row_key().is_some_and(|key| keys.contains(&(row.child, key))));
        }
    }
}
