use subtend_session::ids::Hash;

/// The trust in a workspace: whether its configuration, agents and servers are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Used {
        servers: ServerTrust,
    },
    LeftOut,
    /// Nothing exists that needs trust. Files that appear later are not used.
    Empty,
}

/// The trust in the MCP servers that a workspace's file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerTrust {
    None,
    /// Only servers of the file with this hash, which the user has seen. The file may have changed since.
    Seen(Hash),
    All,
}

impl Trust {
    /// Trust in everything in the workspace for one call, by `--trust` or its variable.
    pub(crate) const GIVEN: Self = Self::Used { servers: ServerTrust::All };

    pub(crate) fn is_used(self) -> bool {
        matches!(self, Self::Used { .. })
    }

    /// Returns whether the servers of a file with this content may be started.
    pub(crate) fn uses_servers(self, text: &str) -> bool {
        match self {
            Self::Used { servers: ServerTrust::All } => true,
            Self::Used { servers: ServerTrust::Seen(seen) } => seen == Hash::of(text.as_bytes()),
            Self::Used { servers: ServerTrust::None } | Self::LeftOut | Self::Empty => false,
        }
    }
}
