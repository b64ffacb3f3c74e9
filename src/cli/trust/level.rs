//! Whether a workspace is trusted.

/// Whether what a workspace brings along is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Used,
    LeftOut,
}

impl Trust {
    pub(crate) fn is_used(self) -> bool {
        self == Self::Used
    }
}
