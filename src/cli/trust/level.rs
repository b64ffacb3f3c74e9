//! Whether a workspace is trusted.

/// Whether the configuration, agents and servers of a workspace are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Used {
        /// Whether its MCP servers may be started: the user was asked about them. Not so for a file that a command makes after the
        /// question.
        servers: bool,
    },
    LeftOut,
}

impl Trust {
    /// Everything in the workspace is used, since `--trust` or its variable says so for this call.
    pub(crate) const GIVEN: Self = Self::Used { servers: true };

    pub(crate) fn is_used(self) -> bool {
        matches!(self, Self::Used { .. })
    }

    pub(crate) fn uses_servers(self) -> bool {
        self == Self::GIVEN
    }
}
