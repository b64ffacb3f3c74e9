//! Model calls and tool calls of one activation that are in flight.

use std::collections::HashMap;
use std::sync::Arc;

use subtend_session::ids::CallId;
use subtend_tools::dialect::Request;
use subtend_tools::tool::Tool;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::calls::tool_call::Stop;

/// A model stream in flight. Dropping it ends the stream.
pub(crate) struct TurnAtWork {
    pub(crate) stop: CancellationToken,
    pub(crate) task: AbortHandle,
}

impl Drop for TurnAtWork {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl TurnAtWork {
    /// Asks the task to drop the stream; it still tells that it did.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }
}

/// A local tool at work. Dropping it kills the tool.
pub(crate) struct ToolAtWork {
    pub(crate) stop: Stop,
    pub(crate) task: JoinHandle<()>,
}

impl Drop for ToolAtWork {
    fn drop(&mut self) {
        self.stop.ask.cancel();
        self.task.abort();
    }
}

impl ToolAtWork {
    /// Asks the tool to stop.
    pub(crate) fn cancel(&self) {
        self.stop.ask.cancel();
    }

    /// Kills it: the grace is over.
    pub(crate) fn kill(&self) {
        self.stop.kill.cancel();
    }
}

/// A call as its classification read it: nothing of it is parsed again.
pub(crate) enum Parsed {
    /// A local tool with its arguments.
    Tool(Arc<dyn Tool>, serde_json::Value),
    /// A run that it opens.
    Opens(Request),
}

/// Parsed calls of the last answer. Those that another activation classified are missing, and are parsed again.
pub(crate) type Ready = HashMap<CallId, Parsed>;
