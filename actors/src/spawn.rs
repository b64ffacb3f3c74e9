//! From a tool call to a child: what a session is offered, and what its children are born with.

pub(crate) mod agents;
pub(crate) mod caches;
pub(crate) mod offer;
