//! The identity of a node's lease.

/// The lease of one start of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeLease(String);

impl NodeLease {
    /// Creates a lease from its id.
    pub fn with_id(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// Returns its id in the database.
    pub fn id(&self) -> &str {
        &self.0
    }
}
