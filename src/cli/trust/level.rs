//! Whether a workspace is trusted.

/// Whether what a workspace brings along is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// It is used.
    Used,
    /// It is left aside.
    Aside,
}

impl Trust {
    /// Returns whether what the workspace brings is used.
    pub(crate) fn is_used(self) -> bool {
        self == Self::Used
    }
}
