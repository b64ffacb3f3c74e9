//! The hub of subtend: one mailbox, one activation and one loop for each session: take, decide, commit, perform.

mod above;
mod activation;
pub mod activity;
mod admit;
pub mod answer;
pub mod approvals;
mod assembly;
pub mod audit;
mod births;
pub mod boot;
mod budget;
pub mod builder;
mod calling;
pub mod census;
mod clock;
mod closing;
mod commit;
mod control;
mod directory;
mod driver;
pub mod event;
pub mod faults;
pub mod find;
mod following;
pub mod handle;
pub mod hooks;
mod hub;
mod lane;
mod mint;
mod names;
mod nudges;
mod offer;
pub mod options;
mod overrides;
pub mod past;
mod perform;
pub mod prices;
mod proposing;
mod publisher;
mod reading;
mod recall;
mod rows;
pub mod runtime;
mod services;
mod session_actor;
mod slots;
mod staying;
mod streams;
mod subscription;
pub mod tasks;
mod ticket;
pub mod tool_options;
mod tool_task;
pub mod tree;
mod turn;
pub mod typed;
mod unreadable;
pub mod usage;
mod waiters;
mod work;

pub use activity::{Activity, Nested};
pub use answer::{AnswerError, Answered, Receipt};
pub use approvals::{Approval, Approver};
pub use audit::{Decided, DecidedBy, Decision};
pub use boot::{BootError, BootProgress, BootReport, Undone};
pub use builder::{Builder, StartError};
pub use census::Census;
pub use event::{Event, Next, Subscription, What};
pub use find::FindError;
pub use following::{Events, EventsError};
pub use handle::{
    Alternative, Alternatives, BranchInfo, BranchOptions, Control, ControlError, Ended, Input, QueueEntry, QueueKind,
    RunHandle, SendError, SessionHandle, Stopped, Switched, WaitError,
};
pub use hooks::{
    BeforeTool, Hooks, ModelChoice, Refused, SubagentStart, SubagentStop, ToolAsked, ToolDone, UserMessage,
};
pub use options::{Options, TakesUp};
pub use prices::{BadPrice, Price, Prices};
pub use runtime::{OpenOptions, OpenSessionError, Runtime, ShutdownReport};
pub use tasks::{Task, TaskFilter, TaskStatus};
pub use tree::Tree;
pub use typed::{AskError, AskOptions};
pub use usage::{ChildUsage, ContextShare, UsageView};
