//! Model and tool calls in flight of one activation.

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
    /// Cancels the stream; its task still reports that.
    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }
}

/// A model call whose tools are known now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelDue {
    pub(crate) turn: TurnNo,
    pub(crate) attempt: AttemptNo,
    pub(crate) after_ms: u64,
    pub(crate) intent: Option<Lsn>,
}

/// A running local tool. Dropping it kills the tool.
pub(crate) struct ToolAtWork {
    pub(crate) stop: StopSignals,
    pub(crate) task: JoinHandle<()>,
}

impl Drop for ToolAtWork {
    fn drop(&mut self) {
        self.stop.ask.cancel();
        self.task.abort();
    }
}

impl ToolAtWork {
    pub(crate) fn cancel(&self) {
        self.stop.ask.cancel();
    }

    pub(crate) fn kill(&self) {
        self.stop.kill.cancel();
    }
}

/// A parsed call, which is not parsed again.
pub(crate) enum Parsed {
    Tool(Arc<dyn Tool>, serde_json::Value),
    Opens(Request),
    Refused(ToolError),
    Check(CheckRequest),
    /// A task of the session that it cancels, as the model named it.
    Cancel(Text),
    /// A background process of the session that it stops, as the model named it.
    Stop(Text),
    Await(Jobs),
    Plan(Text),
}

/// Parsed calls of the last answer, including those that another activation classified.
pub(crate) type ParsedCalls = HashMap<CallId, Parsed, FixedState>;

/// The running work of an activation, and its parsed calls. Dropping it ends all of it.
#[derive(Default)]
pub(crate) struct RunningWork {
    pub(crate) turn: Option<TurnAtWork>,
    /// The model call that waits for its tools, in place of a stream.
    pub(crate) settling: Option<(TurnNo, AttemptNo)>,
    /// The reservation of the last decided attempt, in a tree with a budget.
    pub(crate) reserved: Option<DueReservation>,
    /// In call order, so that they stop in the same order in every run.
    pub(crate) tools: BTreeMap<CallId, ToolAtWork>,
    /// Parsed calls of the last answer; taken when they start.
    pub(crate) ready: ParsedCalls,
    /// The files being read before admission; later calls wait.
    pub(crate) reading: Option<FilesReading>,
}

impl RunningWork {
    pub(crate) fn cancel(&self) {
        self.turn.iter().for_each(TurnAtWork::cancel);
        self.tools.values().for_each(ToolAtWork::cancel);
    }

    pub(crate) fn kill_tools(&self) {
        self.tools.values().for_each(ToolAtWork::kill);
    }

    /// Ends the stream of an ended run, and drops its calls.
    pub(crate) fn end_run(&mut self) {
        self.turn = None;
        self.settling = None;
        self.ready.clear();
    }
}
