//! Whether a workspace is trusted.

use subtend_session::ids::Hash;

/// Whether the configuration, agents and servers of a workspace are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Used { servers: ServerTrust },
    LeftOut,
}

/// Which MCP servers of a workspace may be started, as its file names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerTrust {
    None,
    /// Those of the file with this content, which the user saw: a command may write another before it is read.
    Seen(Hash),
    All,
}

impl Trust {
    /// Everything in the workspace is used, since `--trust` or its variable says so for this call.
    pub(crate) const GIVEN: Self = Self::Used { servers: ServerTrust::All };

    pub(crate) fn is_used(self) -> bool {
        matches!(self, Self::Used { .. })
    }

    /// Returns whether the servers of a file with this content may be started.
    pub(crate) fn uses_servers(self, text: &str) -> bool {
        match self {
            Self::Used { servers: ServerTrust::All } => true,
            Self::Used { servers: ServerTrust::Seen(seen) } => seen == Hash::of(text.as_bytes()),
            Self::Used { servers: ServerTrust::None } | Self::LeftOut => false,
        }
    }
}
