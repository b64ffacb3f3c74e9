//! Where a session stands in its tree, and who owns a run.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, MsgRef, RunKey, RunNo, SessionId, Text};

/// Where a session stands: parentage gives place, depth, authority and listing, for life (T-2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A person's or host's own session.
    Root,
    /// A branch of another session.
    Child {
        /// The parent session.
        parent: SessionId,
        /// The root of the tree.
        root: SessionId,
        /// What kind of branch.
        kind: BranchKind,
        /// The user message that the parent was working on.
        user_msg: MsgRef,
        /// The assistant message that the branch hangs on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        assistant_msg: Option<MsgRef>,
        /// The parent's call that made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Subagent edges from the root.
        depth: u32,
    },
}

impl Place {
    /// Subagent edges from the root; 0 for a root.
    pub fn depth(&self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Child { depth, .. } => *depth,
        }
    }

    /// The parent session, if there is one.
    pub fn parent(&self) -> Option<SessionId> {
        match self {
            Self::Root => None,
            Self::Child { parent, .. } => Some(*parent),
        }
    }

    /// The root of the tree that `me` stands in.
    pub fn root(&self, me: SessionId) -> SessionId {
        match self {
            Self::Root => me,
            Self::Child { root, .. } => *root,
        }
    }
}

/// Where a session's calls come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A model of this runtime.
    #[default]
    Internal,
    /// A client of an MCP server: tools that are internal only are hidden from it, and refused to it.
    Mcp,
}

impl Source {
    /// Whether it is the one that records leave out.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference to what it asks")]
    pub(crate) fn is_internal(&self) -> bool {
        *self == Self::Internal
    }
}

/// Kinds of branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    /// A person's branch: inherits context.
    Human,
    /// An agent's child: fresh context, one level deeper.
    Subagent,
    /// A regenerated answer.
    Alternative,
    /// A host's helper (title, summary, compaction).
    Service,
}

/// Who owns a run: cancelling, holding a run open, slots and notices follow ownership, not parentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A run of another session, by one of its calls.
    Run {
        /// The owning session.
        session: SessionId,
        /// Its run.
        run: RunNo,
        /// The call that opened the owned run: the key of its notice.
        call: CallId,
    },
    /// A person.
    Person,
    /// A service of the host.
    Host(Service),
    /// Nobody: listed at the root, ended by its own cap or by `cancel_tree`.
    Detached {
        /// Whether the host (rather than a manifest) asked for it.
        by_host: bool,
    },
}

impl Owner {
    /// The run that owns, if one does.
    pub fn run(&self) -> Option<RunKey> {
        match self {
            Self::Run { session, run, .. } => Some(RunKey { session: *session, run: *run }),
            Self::Person | Self::Host(_) | Self::Detached { .. } => None,
        }
    }

    /// Whether a model's call opened the run: then its answer goes to that model, and no queued message extends it (K26).
    pub fn answers_a_model(&self) -> bool {
        match self {
            Self::Run { .. } | Self::Detached { .. } => true,
            Self::Person | Self::Host(_) => false,
        }
    }
}

/// A host's service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Titles.
    Title,
    /// Summaries.
    Summary,
    /// Compaction.
    Compaction,
    /// An embedder's own.
    Custom(Text),
}

/// Whether the owner's call waits for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The call stays open until the run ends.
    Blocking,
    /// The call answers at once; the end arrives as a notice.
    Background,
}

/// What a restart of the host does with a run in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    /// The run ends `Lost`.
    #[default]
    Fail,
    /// The run goes on, if all its owners say so too.
    Resume,
}
