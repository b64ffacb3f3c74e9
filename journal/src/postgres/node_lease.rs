//! Lease of a node, by its name in the database.

/// Lease of one start of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeLease(String);

impl NodeLease {
    /// Names a lease by its id.
    pub fn named(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Its id, as the database names it.
    pub fn id(&self) -> &str {
        &self.0
    }
}
