//! Titles and summaries.

use std::sync::Arc;

use crate::ids::SessionId;
use crate::place::BranchKind;
use crate::record::{SummarySet, TitleSet};
use crate::state::State;

impl State {
    pub(super) fn title_set(&mut self, set: &TitleSet) {
        self.title = Some(Arc::clone(&set.title));
    }

    pub(super) fn summary_set(&mut self, set: &SummarySet) {
        self.summary = Some(Arc::new(set.clone()));
    }

    /// Whether the session has a title: of its birth, or one that it was given.
    pub fn is_titled(&self) -> bool {
        self.title.is_some() || self.created.title.is_some()
    }

    /// Whether `child` is a session that the host started for this one.
    pub(crate) fn is_service(&self, child: SessionId) -> bool {
        self.children.get(&child).is_some_and(|child| child.kind == BranchKind::Service)
    }
}
