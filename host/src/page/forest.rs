//! A session with its descendants, and the usage of each session and its subtree.

use std::collections::{BTreeMap, BTreeSet};

use subtend_actors::Runtime;
use subtend_actors::history::{self, History};
use subtend_journal::ReadError;
use subtend_session::ids::SessionId;
use subtend_session::index::Head;
use subtend_session::usage::Usage;

use super::activity::OpenWork;
use super::words::{self, StateLabel};

#[derive(Debug)]
struct ForestNode {
    short: String,
    agent: String,
    title: String,
    state: StateLabel,
    activity: String,
    own: Usage,
    turns: u32,
    parent: Option<SessionId>,
    children: Vec<SessionId>,
    busy: bool,
    error: Option<String>,
}

/// The descendants of a session, read from the journal. [`Forest::update`] re-reads one of them.
#[derive(Debug)]
pub(super) struct Forest {
    top: SessionId,
    nodes: BTreeMap<SessionId, ForestNode>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ForestRow {
    pub(super) id: SessionId,
    pub(super) short: String,
    pub(super) agent: String,
    pub(super) title: String,
    pub(super) state: StateLabel,
    pub(super) activity: String,
    pub(super) own: String,
    /// Usage of the subtree; absent without children.
    pub(super) subtree: Option<String>,
    pub(super) turns: String,
    pub(super) children: usize,
    pub(super) busy: usize,
    pub(super) level: u32,
    pub(super) error: Option<String>,
}

impl Forest {
    pub(super) fn read(runtime: &Runtime, top: SessionId) -> Result<Self, ReadError> {
        let mut forest = Self { top, nodes: BTreeMap::new() };
        forest.grow(runtime, top)?;
        Ok(forest)
    }

    fn grow(&mut self, runtime: &Runtime, from: SessionId) -> Result<(), ReadError> {
        let mut next = vec![from];
        while let Some(id) = next.pop() {
            // Visit each session once: a damaged store may contain a cycle.
            if self.nodes.contains_key(&id) {
                continue;
            }
            let Some(head) = runtime.journal().head(id)?.filter(|head| !head.deleted) else { continue };
            let node = ForestNode::read(runtime, id, &head)?;
            next.extend(&node.children);
            self.nodes.insert(id, node);
        }
        Ok(())
    }

    /// Re-reads a session. Returns the sessions whose children changed.
    pub(super) fn update(&mut self, runtime: &Runtime, id: SessionId) -> Result<Vec<SessionId>, ReadError> {
        let Some(head) = runtime.journal().head(id)?.filter(|head| !head.deleted) else {
            let gone = self.nodes.remove(&id).and_then(|node| node.parent);
            return Ok(gone.into_iter().collect());
        };
        let known = self.nodes.contains_key(&id);
        if !known && head.parent.is_none_or(|parent| !self.nodes.contains_key(&parent)) {
            return Ok(Vec::new());
        }
        let node = ForestNode::read(runtime, id, &head)?;
        let before = self.nodes.get(&id).map(|node| node.children.clone()).unwrap_or_default();
        let mut grown: Vec<_> = (before != node.children).then_some(id).into_iter().collect();
        let children = node.children.clone();
        if !known {
            grown.extend(node.parent);
        }
        self.nodes.insert(id, node);
        for child in children {
            self.grow(runtime, child)?;
        }
        Ok(grown)
    }

    /// Returns `id` and its ancestors up to the top.
    pub(super) fn path(&self, id: SessionId) -> Vec<SessionId> {
        let mut path = Vec::new();
        let mut at = Some(id);
        while let Some(id) = at.filter(|id| self.nodes.contains_key(id) && !path.contains(id)) {
            path.push(id);
            at = if id == self.top { None } else { self.nodes.get(&id).and_then(|node| node.parent) };
        }
        path
    }

    pub(super) fn row(&self, id: SessionId) -> Option<ForestRow> {
        let node = self.nodes.get(&id)?;
        let below = self.subtree_ids(id);
        let mut subtree = Usage::default();
        below.iter().filter_map(|id| self.nodes.get(id)).for_each(|node| subtree.add(&node.own));
        let busy = below.iter().filter(|below| **below != id);
        let busy = busy.filter(|id| self.nodes.get(id).is_some_and(|node| node.busy)).count();
        let children = self.children(id).len();
        Some(ForestRow {
            id,
            short: node.short.clone(),
            agent: node.agent.clone(),
            title: words::clip(&node.title, 80),
            state: node.state,
            activity: node.activity.clone(),
            own: words::usage(&node.own),
            subtree: (children > 0).then(|| words::usage(&subtree)),
            turns: words::count(node.turns, "turn"),
            children,
            busy,
            level: u32::try_from(self.path(id).len()).unwrap_or(u32::MAX),
            error: node.error.clone(),
        })
    }

    pub(super) fn ids(&self) -> Vec<SessionId> {
        self.nodes.keys().copied().collect()
    }

    pub(super) fn child_rows(&self, id: SessionId) -> Vec<ForestRow> {
        self.children(id).into_iter().filter_map(|child| self.row(child)).collect()
    }

    fn children(&self, id: SessionId) -> Vec<SessionId> {
        let children = self.nodes.get(&id).map(|node| &*node.children).unwrap_or_default();
        children.iter().copied().filter(|child| self.nodes.contains_key(child)).collect()
    }

    fn subtree_ids(&self, id: SessionId) -> BTreeSet<SessionId> {
        let mut seen = BTreeSet::new();
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            if seen.insert(id) {
                next.extend(self.children(id));
            }
        }
        seen
    }
}

impl ForestNode {
    fn read(runtime: &Runtime, id: SessionId, head: &Head) -> Result<Self, ReadError> {
        let journal = runtime.journal();
        let (mut history, mut open) = (History::default(), OpenWork::default());
        let read = history::each(journal, id, |stored| {
            history.add(stored);
            open.add(&stored.record);
        });
        if read.is_err() {
            (history, open) = Default::default();
        }
        // Records list children in the order of creation; the index also lists children whose records are damaged.
        let mut children = history.children.clone();
        let known: BTreeSet<_> = history.children.iter().collect();
        children.extend(journal.children(id)?.into_iter().filter(|child| !known.contains(child)));
        Ok(Self {
            short: head.short.to_string(),
            agent: head.agent.to_string(),
            title: head.title.to_string(),
            state: StateLabel::of(head.state, head.last_outcome),
            activity: open.describe(runtime, head.state),
            own: history.usage,
            turns: history.turns,
            parent: head.parent,
            children,
            busy: head.state != subtend_session::state::Phase::Quiet,
            // Show the session with the reason, because other sessions of the tree may be readable.
            error: read.err().map(|error| error.to_string()),
        })
    }
}
