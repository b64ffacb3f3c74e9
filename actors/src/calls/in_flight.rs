//! Model calls and tool calls of one activation that are in flight.

use std::collections::HashMap;
use std::sync::Arc;

use subtend_session::dialect::jobs::Jobs;
use subtend_session::ids::{CallId, Text};
use subtend_tools::dialect::Request;
use subtend_tools::dialect::manage::CheckRequest;
use subtend_tools::tool::{Tool, ToolError};
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
    /// One that would open a run, and that the present offer refuses.
    Refused(ToolError),
    /// A task of the session that it checks.
    Check(CheckRequest),
    /// A task of the session that it ends, as the model named it.
    Cancel(Text),
    /// The jobs that it waits for.
    Await(Jobs),
    /// The plan that it proposes.
    Plan(Text),
}

/// Parsed calls of the last answer. An activation parses those that another one classified, and keeps them.
pub(crate) type Ready = HashMap<CallId, Parsed>;
