//! Dynamic tools, which can appear and disappear while sessions run.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Registry;
use crate::tool::Tool;

/// A source of dynamic tools, such as MCP servers, whose lists can change.
pub trait LiveTools: Send + Sync + 'static {
    /// Returns a number that changes whenever the tools do.
    fn generation(&self) -> u64;

    /// Returns the current tools.
    fn tools(&self) -> Registry;

    /// Returns a tool that the source may have once it has settled.
    fn find_unlisted(&self, name: &str) -> Option<Arc<dyn Tool>>;

    /// Starts the source if necessary. Returns `None` while the tools are known, which a reported change can end. The future is bounded in
    /// time, and may be dropped.
    fn settle(&self) -> Option<BoxFuture<'static, ()>>;
}
