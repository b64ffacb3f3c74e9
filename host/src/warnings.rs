//! Warnings about sources of tools, which the embedder collects.

use std::fmt;

/// Collects warnings about the sources of tools, such as MCP servers.
pub trait ToolWarnings: fmt::Debug + Send + Sync {
    /// Returns a sentence for each source that sessions of a workspace needed and that cannot be used fully.
    /// `workspace` is an absolute path.
    fn of(&self, workspace: &str) -> Vec<String>;
}
