//! The position of a session in its tree, and the owner of a run.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, MsgRef, RunKey, RunNo, SessionId, Text};

/// The position of a session in its tree. It determines depth, authority and listing, and never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A session that a person or the host opened.
    Root,
    Child {
        parent: SessionId,
        root: SessionId,
        kind: BranchKind,
        /// The user message that the parent was processing.
        user_msg: MsgRef,
        /// The assistant message at the branch point.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        assistant_msg: Option<MsgRef>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// Subagent edges from the root.
        depth: u32,
    },
}

impl Place {
    /// Returns the subagent edges from the root; 0 for a root.
    pub fn depth(&self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Child { depth, .. } => *depth,
        }
    }

    pub fn parent(&self) -> Option<SessionId> {
        match self {
            Self::Root => None,
            Self::Child { parent, .. } => Some(*parent),
        }
    }

    pub fn root(&self, me: SessionId) -> SessionId {
        match self {
            Self::Root => me,
            Self::Child { root, .. } => *root,
        }
    }
}

/// The directory that the tools of a session use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The directory of its parent, or the workspace.
    #[default]
    None,
    /// A git worktree of its own.
    Worktree,
}

/// The worktree that a session uses, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The session for which the worktree was created: this one or an ancestor.
    pub of: SessionId,
    /// The session whose worktree was the starting point; the workspace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SessionId>,
}

/// The directory of branches of worktrees.
pub const WORKTREE_BRANCHES: &str = "subtend";

impl Worktree {
    /// Returns a new worktree for session `of`, created from `parent`, the worktree of its parent.
    pub fn own(of: SessionId, parent: Option<Self>) -> Self {
        Self { of, from: parent.map(|parent| parent.of) }
    }

    /// Returns the git branch of a session's own worktree, with the whole id: imported ids may have the same end.
    pub fn branch(of: SessionId) -> String {
        format!("{WORKTREE_BRANCHES}/{of}")
    }

    /// Returns whether `session` may use `worktree`: its own, or `parent`, the worktree of its parent.
    pub fn fits(worktree: Option<Self>, session: SessionId, parent: Option<Self>) -> bool {
        worktree == parent || worktree == Some(Self::own(session, parent))
    }
}

/// The origin of a session's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A model of this runtime.
    #[default]
    Internal,
    /// A client of an MCP server: internal-only tools are hidden from it and refused to it.
    Mcp,
}

impl Source {
    /// Returns whether this is the default origin, which records omit.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn is_internal(&self) -> bool {
        *self == Self::Internal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    /// A person's branch, which inherits context.
    Human,
    /// An agent's child, with an empty context and one level deeper.
    Subagent,
    Alternative,
    /// A service session of the host, for a title, a summary or a compaction.
    Service,
}

/// The owner of a run. Cancels, closing, slots and notices follow ownership, not the parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A run of another session, by one of its calls.
    Run {
        session: SessionId,
        run: RunNo,
        /// The call that opened the owned run: the key of its notice.
        call: CallId,
    },
    Person,
    Host(Service),
    /// No owner. The run is listed at the root, and ends by its own cap or by `cancel_tree`.
    Detached {
        /// True if the host detached it, false if a manifest did.
        by_host: bool,
    },
}

impl Owner {
    pub fn run(&self) -> Option<RunKey> {
        match self {
            Self::Run { session, run, .. } => Some(RunKey { session: *session, run: *run }),
            Self::Person | Self::Host(_) | Self::Detached { .. } => None,
        }
    }

    /// Returns whether a model's call opened the run: that model gets its answer, and queued messages do not extend it.
    pub fn is_model_call(&self) -> bool {
        match self {
            Self::Run { .. } | Self::Detached { .. } => true,
            Self::Person | Self::Host(_) => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    Title,
    Summary,
    Compaction,
    Custom(Text),
}

/// Blocking or background execution of an owned run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The call stays open until the run ends.
    Blocking,
    /// The call answers at once; the end arrives as a notice.
    Background,
}

/// The effect of a host restart on a run in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRestart {
    #[default]
    Fail,
    /// The run continues, if all its owners allow it too.
    Resume,
}
