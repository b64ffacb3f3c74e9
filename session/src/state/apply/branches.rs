use crate::dialect::Dialect;
use crate::ids::{RunNo, Seq, Text};
use crate::outcome::Outcome;
use crate::place::BranchKind;
use crate::record::{BranchCreated, Notice};
use crate::render;
use crate::state::{Alternative, Alternatives, Child, State};

impl State {
    pub(super) fn apply_branch_created(&mut self, created: &BranchCreated) {
        self.shorts.insert(created.short.clone());
        let (short, agent, kind) = (created.short.clone(), created.agent.clone(), created.kind);
        let mut alternative = None;
        if kind == BranchKind::Alternative {
            let branches = &mut self.alternatives.entry(created.at).or_default().branches;
            alternative = u32::try_from(branches.len()).ok();
            branches.push(Alternative { child: created.child, text: None, by: created.by.clone() });
        }
        let child = Child {
            short,
            agent,
            kind,
            call: None,
            detached: false,
            key: None,
            owed: None,
            last_taken: Default::default(),
            dialect: Dialect::default(),
            label: None,
            inspectable: false,
            described: false,
            at: Some(created.at),
            alternative,
            given: None,
        };
        self.children.insert(created.child, child);
    }

    pub(super) fn apply_alternative_switched(&mut self, of: Seq, to: u32) {
        let Some(alternatives) = self.alternatives.get_mut(&of) else { return };
        alternatives.active = to;
        self.revise();
    }

    /// Stores the text of an alternative whose first run completed. Later runs of the branch answer other messages.
    pub(super) fn store_alternative_text(&mut self, notice: &Notice) {
        if notice.run != Some(RunNo(1)) || notice.outcome != Outcome::Completed {
            return;
        }
        let Some(child) = self.children.get(&notice.child) else { return };
        let Some((at, position)) = child.at.zip(child.alternative) else { return };
        let alternatives = self.alternatives.get_mut(&at);
        if let Some(branch) = alternatives.and_then(|alternatives| alternatives.branches.get_mut(position as usize)) {
            branch.text = Some(render::full_text(notice));
        }
    }
}

impl Alternatives {
    /// Returns the text of alternative `to`, if it exists; `None` for 0, the original, whose text is in its own record.
    pub fn text(&self, to: u32) -> Option<&Text> {
        let at = (to as usize).checked_sub(1)?;
        self.branches.get(at)?.text.as_ref()
    }

    /// Returns the text of the selected alternative; `None` for the original.
    pub fn selected_text(&self) -> Option<&Text> {
        self.text(self.active)
    }
}
