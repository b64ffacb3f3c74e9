//! The runtime of subtend. Each session has an inbox, an activation and a loop: take, decide, commit, perform.

#![allow(missing_docs, reason = "a comment that only repeats a name is deleted")]

pub mod answer;
pub mod approvals;
mod calls;
mod cell;
mod clock;
mod delivery;
pub mod faults;
pub mod handle;
pub mod hooks;
mod host;
mod life;
mod log;
mod observe;
pub mod prompt;
mod recovery;
pub mod runtime;
mod services;
mod spawn;
pub mod typed;
mod values;
mod views;

pub use calls::prices;
pub use observe::{activity, event};
pub use recovery::boot;
pub use runtime::builder;
pub use spawn::{profiles, tool_options};
pub use values::options;
pub use views::{audit, checkpoints, find, history, stats, tasks, transcript, tree, usage, worked};

pub use answer::{AnswerError, AnswerWait, Answered, Receipt};
pub use approvals::{Approval, Approver, AskedCall};
pub use calls::prices::{BadPrice, Price, Prices};
pub use delivery::sender::run_for_sender;
pub use handle::{
    AgentChanges, Alternative, Alternatives, BranchOptions, CONTINUE_TEXT, CompactedHistory, Control, ControlError,
    Ended, Input, KeptBranch, QueueEntry, QueueKind, RunHandle, SendError, SessionHandle, SessionWorktree, Stopped,
    Switched, TreeWorktrees, WaitError,
};
pub use hooks::{
    BeforeTool, Hooks, ModelChoice, Refused, SubagentStart, SubagentStop, ToolAsked, ToolDone, UserMessage,
};
pub use observe::activity::{Activity, NestedEvent};
pub use observe::counters::Counters;
pub use observe::event::{Event, EventKind, Next, Subscription};
pub use observe::following::{Events, EventsError, EventsNext};
pub use observe::parts::{KEPT_BYTES, max_kept_bytes, record_bytes, sum_bytes};
pub use prompt::PromptError;
pub use recovery::boot::{BootError, BootFailure, BootProgress, BootReport};
pub use runtime::builder::Builder;
pub use runtime::environment::Environment;
pub use runtime::{AboveSlots, OpenOptions, OpenSessionError, Runtime, ShutdownReport, StartError};
pub use typed::{AskError, AskOptions};
pub use values::environment_key::EnvironmentKey;
pub use values::options::Options;
pub use views::audit::{Decided, DecidedBy, Decision};
pub use views::branches::{BranchFilter, BranchInfo};
pub use views::checkpoints::{RestorePoint, UnrecordedWrite};
pub use views::find::{FindError, Heads, named};
pub use views::stats::RuntimeStats;
pub use views::tasks::{Task, TaskFilter, TaskStatus};
pub use views::tree::Tree;
pub use views::usage::{ChildUsage, ContextShare, UsageView};
pub use views::worked::{WorkClock, Worked};
