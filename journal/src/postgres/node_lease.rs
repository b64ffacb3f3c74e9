/// The lease of one start of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeLease(String);

impl NodeLease {
    pub fn with_id(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    pub fn id(&self) -> &str {
        &self.0
    }
}
