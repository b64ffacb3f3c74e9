//! Running model and tool calls of one activation.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use subtend_session::dialect::jobs::Jobs;
use subtend_session::ids::{AttemptNo, CallId, Lsn, Text, TurnNo};
use subtend_tools::dialect::Request;
use subtend_tools::dialect::manage::CheckRequest;
use subtend_tools::tool::{Tool, ToolError};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::calls::files::FilesReading;
use crate::calls::reservation::DueReservation;
use crate::calls::tool_call::StopSignals;

/// A running model stream. Dropping it ends the stream.
pub(crate) struct RunningTurn {
    pub(crate) stop: CancellationToken,
    pub(crate) task: AbortHandle,
}

impl Drop for RunningTurn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RunningTurn {
    /// Cancels the stream; its task still delivers the outcome.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }
}

/// A model call whose tools have been determined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelDue {
    pub(crate) turn: TurnNo,
    pub(crate) attempt: AttemptNo,
    pub(crate) after_ms: u64,
    pub(crate) intent: Option<Lsn>,
}

/// A running local tool. Dropping it kills the tool.
pub(crate) struct RunningTool {
    pub(crate) stop: StopSignals,
    pub(crate) task: JoinHandle<()>,
}

impl Drop for RunningTool {
    fn drop(&mut self) {
        self.stop.ask.cancel();
        self.task.abort();
    }
}

impl RunningTool {
    pub(crate) fn cancel(&self) {
        self.stop.ask.cancel();
    }

    pub(crate) fn kill(&self) {
        self.stop.kill.cancel();
    }
}

/// The result of parsing a call, kept so that it is parsed once.
pub(crate) enum Parsed {
    Tool(Arc<dyn Tool>, serde_json::Value),
    /// A call that starts or continues a child.
    Spawn(Request),
    Refused(ToolError),
    Check(CheckRequest),
    /// The task to cancel, as the model named it.
    Cancel(Text),
    /// The background process to stop, as the model named it.
    Stop(Text),
    Await(Jobs),
    Plan(Text),
}

/// Parsed calls of the last answer, including those that another activation classified.
pub(crate) type ParsedCalls = HashMap<CallId, Parsed, FixedState>;

/// The running work of an activation, and its parsed calls. Dropping it ends all of it.
#[derive(Default)]
pub(crate) struct RunningWork {
    pub(crate) turn: Option<RunningTurn>,
    /// The model call that waits for its tools. No stream runs meanwhile.
    pub(crate) settling: Option<(TurnNo, AttemptNo)>,
    /// The reservation of the last decided attempt, in a tree with a budget.
    pub(crate) reserved: Option<DueReservation>,
    /// Sorted by call, so that a replay stops them in the same order.
    pub(crate) tools: BTreeMap<CallId, RunningTool>,
    pub(crate) ready: ParsedCalls,
    /// The file read that must finish before the next admission; later calls wait.
    pub(crate) reading: Option<FilesReading>,
}

impl RunningWork {
    pub(crate) fn cancel(&self) {
        self.turn.iter().for_each(RunningTurn::cancel);
        self.tools.values().for_each(RunningTool::cancel);
    }

    pub(crate) fn kill_tools(&self) {
        self.tools.values().for_each(RunningTool::kill);
    }

    /// Ends the stream of an ended run, and drops its calls.
    pub(crate) fn end_run(&mut self) {
        self.turn = None;
        self.settling = None;
        self.ready.clear();
    }
}
