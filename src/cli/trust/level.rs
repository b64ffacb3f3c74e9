//! Whether a workspace is trusted.

/// Whether what a workspace brings along is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Used {
        /// Whether its MCP servers may be started: the person was asked about them. A file that a command makes between the check and the
        /// reading was not seen.
        servers: bool,
    },
    LeftOut,
}

impl Trust {
    /// All of the workspace is used, by the person's word for this call.
    pub(crate) const GIVEN: Self = Self::Used { servers: true };

    pub(crate) fn is_used(self) -> bool {
        matches!(self, Self::Used { .. })
    }

    pub(crate) fn uses_servers(self) -> bool {
        self == Self::GIVEN
    }
}
