//! The position of a session in its tree, and the owner of a run.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, MsgRef, RunKey, RunNo, SessionId, Text};

/// The position of a session: it fixes depth, authority and listing for life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A person's or host's own session.
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

/// Where the tools of a session work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Where its parent works, or in the workspace.
    #[default]
    None,
    /// In a git worktree of its own.
    Worktree,
}

/// The worktree that a session works in, and what it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The session that it is made for: this one, or one above.
    pub of: SessionId,
    /// The session whose worktree it continues; the workspace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SessionId>,
}

impl Worktree {
    /// Returns the worktree of session `of`, whose parent works in `above`.
    pub fn own(of: SessionId, above: Option<Self>) -> Self {
        Self { of, from: above.map(|above| above.of) }
    }

    /// Returns whether `session` may work in `worktree`: its own, or where its parent works, `above`.
    pub fn fits(worktree: Option<Self>, session: SessionId, above: Option<Self>) -> bool {
        worktree == above || worktree == Some(Self::own(session, above))
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
    /// Returns whether this is the default, which records omit.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference to what it asks")]
    pub(crate) fn is_internal(&self) -> bool {
        *self == Self::Internal
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BranchKind {
    /// A person's branch: inherits context.
    Human,
    /// An agent's child: empty context, one level deeper.
    Subagent,
    Alternative,
    /// A helper of the host (title, summary, compaction).
    Service,
}

/// The owner of a run. Cancelling, closing, slots and notices follow ownership, not parentage.
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
    /// No owner: listed at the root, ended by its own cap or by `cancel_tree`.
    Detached {
        /// Whether the host asked for it, rather than a manifest.
        by_host: bool,
    },
}

impl Owner {
    /// Returns the owning run, if any.
    pub fn run(&self) -> Option<RunKey> {
        match self {
            Self::Run { session, run, .. } => Some(RunKey { session: *session, run: *run }),
            Self::Person | Self::Host(_) | Self::Detached { .. } => None,
        }
    }

    /// Returns whether a model's call opened the run: its answer goes to that model, and no queued message extends it.
    pub fn answers_a_model(&self) -> bool {
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

/// Whether the owner's call waits for the run.
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
