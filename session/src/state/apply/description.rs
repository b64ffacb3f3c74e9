use std::sync::Arc;

use crate::ids::{SessionId, Text};
use crate::place::BranchKind;
use crate::record::{SummarySet, TitleSet};
use crate::state::State;

impl State {
    pub(super) fn apply_title_set(&mut self, set: &TitleSet) {
        self.title = Some(Arc::clone(&set.title));
        self.mark_described(set.of);
    }

    pub(super) fn apply_summary_set(&mut self, set: &SummarySet) {
        self.summary = Some(Arc::new(set.clone()));
        self.mark_described(Some(set.of));
    }

    fn mark_described(&mut self, of: Option<SessionId>) {
        if let Some(child) = of.and_then(|of| self.children.get_mut(&of)) {
            child.described = true;
        }
    }

    /// Returns the session's metadata as JSON text: after the last merge, else the initial one.
    pub fn metadata(&self) -> Option<&Text> {
        self.metadata.as_ref().or(self.created.metadata.as_ref())
    }

    pub fn is_titled(&self) -> bool {
        self.title.is_some() || self.created.title.is_some()
    }

    /// Returns whether the answer of the service session `child` was taken; `None` if it is not a service of this session.
    pub(crate) fn service(&self, child: SessionId) -> Option<bool> {
        let child = self.children.get(&child)?;
        (child.kind == BranchKind::Service).then_some(child.described)
    }
}
