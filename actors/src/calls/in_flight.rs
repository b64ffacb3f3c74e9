//! Model calls and tool calls of one activation that are in flight.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use subtend_session::dialect::jobs::Jobs;
use subtend_session::ids::{CallId, Text};
use subtend_tools::dialect::Request;
use subtend_tools::dialect::manage::CheckRequest;
use subtend_tools::tool::{Tool, ToolError};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::calls::files::Reading;
use crate::calls::reservation::Due;
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

/// What an activation has running, and what it was parsed to. Dropping it ends all of it.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) turn: Option<TurnAtWork>,
    /// What the attempt that was decided last is to reserve, in a tree with a budget.
    pub(crate) reserved: Option<Due>,
    /// In the order of the calls, in which they are stopped: the same in every run.
    pub(crate) tools: BTreeMap<CallId, ToolAtWork>,
    /// Calls of the last answer, as they were parsed; taken when they start.
    pub(crate) ready: Ready,
    /// The files that are read for calls before they are admitted: those behind them wait.
    pub(crate) reading: Option<Reading>,
}

impl Work {
    /// Asks all of it to stop.
    pub(crate) fn cancel(&self) {
        self.turn.iter().for_each(TurnAtWork::cancel);
        self.tools.values().for_each(ToolAtWork::cancel);
    }

    /// Kills the tools: the grace is over.
    pub(crate) fn kill_tools(&self) {
        self.tools.values().for_each(ToolAtWork::kill);
    }

    /// Ends the stream of a run that has ended, and forgets its calls.
    pub(crate) fn end_run(&mut self) {
        self.turn = None;
        self.ready.clear();
    }
}
