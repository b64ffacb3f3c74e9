//! Warnings about sources of tools, which the embedder collects.

use std::fmt;

/// Knows the sources of tools that sessions use, such as MCP servers.
pub trait ToolWarnings: fmt::Debug + Send + Sync {
    /// Returns a sentence for each source of the workspace at an absolute path that was needed and cannot be used, or not fully.
    fn of(&self, workspace: &str) -> Vec<String>;
}
