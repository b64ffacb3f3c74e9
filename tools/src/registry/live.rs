//! Dynamic tools, which can appear and disappear while sessions run.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use subtend_session::ids::SessionId;

use super::Registry;
use crate::tool::Tool;

/// A source of dynamic tools, such as MCP servers, whose lists can change.
pub trait LiveTools: Send + Sync + 'static {
    /// Returns a number that changes whenever the tools do.
    fn generation(&self) -> u64;

    fn tools(&self) -> Registry;

    /// Returns the source as `session` sees it. `None` if it sees what all sessions see.
    fn of_session(&self, _session: SessionId) -> Option<Arc<dyn LiveTools>> {
        None
    }

    /// Returns a tool that the source may have once its tools are known.
    fn find_unlisted(&self, name: &str) -> Option<Arc<dyn Tool>>;

    /// Starts the source if necessary. Returns `None` if the current tools are known; a reported change invalidates them. The future has a time
    /// limit, and may be dropped.
    fn settle(&self) -> Option<BoxFuture<'static, ()>>;
}
