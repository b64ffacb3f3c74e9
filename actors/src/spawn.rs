//! Everything between a tool call and a child: tool offers to sessions, and specs of their children.

pub(crate) mod agents;
pub(crate) mod ancestors;
pub(crate) mod background;
pub(crate) mod branching;
pub(crate) mod caches;
pub(crate) mod child_spec;
pub(crate) mod environment_memory;
pub(crate) mod environments;
pub(crate) mod offering;
pub mod profiles;
pub(crate) mod proposing;
pub mod tool_options;
pub(crate) mod tool_set;
pub(crate) mod tree_call;
