//! Supervised, durable sessions and subagents for LLM agents.
//!
//! A [`Runtime`] owns **sessions**: durable conversations of one agent each, kept alive by supervised actors and recorded
//! in an append-only journal. A session's model may call tools, and may start **subagents** (children with a context of
//! their own) that run alongside it. A session is notified of the end of each subagent exactly once, even if the process
//! is killed.
//!
//! ```
//!
//! use subtend::models::{Scripted, Step};
//! use subtend::Runtime;
//! use subtend::session::Outcome;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // A model that plays a script; your own model implements `subtend::models::Model`.
//! let model = Scripted::builder("greeter").rule("*", [Step::text("Hello. You said: {prompt}")]).build()?;
//!
//! // Without a journal everything is kept in memory; `subtend::journal::open_store` opens one on disk.
//! let runtime = Runtime::builder().model(model).start().await?;
//! let session = runtime.open("general")?;
//!
//! let receipt = session.send("Good morning.").await?; // durable on return
//! assert_eq!(&*receipt.answer().await?.text, "Hello. You said: Good morning.");
//! assert_eq!(session.run_ended(receipt.run).await?.outcome, Outcome::Completed);
//!
//! runtime.shutdown(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().expect("a runtime").block_on(example()).expect("an answer");
//! ```
//!
//! subtend runs in the caller's tokio runtime, which may be single-threaded or multi-threaded. Handles are cheap to
//! clone. Dropping a handle, or a future that waits on one, does not cancel a run.
//!
//! **[The guide](guide) continues from here**, with a page for each task; `examples/` has complete programs.
//!
//! | module | content |
//! |---|---|
//! | [`guide`] | a guide with a page for each task |
//! | [`approvals`], [`hooks`] | decisions of users and of the host |
//! | [`branches`], [`events`], [`views`] | alternatives to a message; live events; trees, tasks, queues and usage |
//! | [`host`] | prices, restarts, reports of starts and shutdowns |
//! | [`agents`] | manifests: prompt, model, tools, authority, as data; profiles, and how prompts are put together |
//! | [`config`] | `subtend.yaml` and environment variables, with the origin of each value |
//! | [`models`] | the [`models::Model`] trait; models that need no network, and those of providers |
//! | [`tools`] | the [`tools::Tool`] trait, typed tools; the workspace and its tools; the host's policy |
//! | [`journal`] | stores, and reading the records of sessions |
//! | [`session`] | the shared vocabulary: ids, outcomes, authority, limits |
//! | [`format`](mod@format) | the on-disk format: records and index rows |
//! | `testing` | tests of agents in virtual time, with the feature `testing` |
//!
//! | feature | content | default |
//! |---|---|---|
//! | `redb`, `sled` | stores on disk, one feature per engine; without them, the journal is kept in memory | yes |
//! | `providers` | language models of providers, over HTTP | yes |
//! | `cli` | the `subtend` command, which the library does not need | yes |
//! | `testing` | [`testing`](guide::testing_agents) | no |
//!
//! Embedders set `default-features = false, features = ["redb", "providers"]`.

pub mod config;
pub mod guide;
#[cfg(feature = "testing")]
pub mod testing;

pub use schemars;
pub use subtend_actors::{
    AboveSlots, AnswerError, AnswerWait, Answered, Approver, AskError, AskOptions, Builder, Control, ControlError,
    Ended, Event, EventKind, Events, Hooks, Input, Next, OpenOptions, OpenSessionError, Options, PromptError, Receipt,
    RunHandle, Runtime, SendError, SessionHandle, StartError, Subscription, WaitError,
};

/// Agents: manifests and the catalog that holds them.
pub mod agents {
    pub use subtend_agents::catalog::{AgentProblem, Catalog, ProblemKind};
    pub use subtend_agents::dialect::{Dialects, MinionOptions, SubagentOptions};
    pub use subtend_agents::instructions::{self, Instructions};
    pub use subtend_agents::lint::{Checked, FileContent, lint};
    pub use subtend_agents::manifest::{AgentMode, Manifest, Source};
    pub use subtend_agents::product::Product;
    pub use subtend_agents::profile::{BadProfile, Inherit, Profile, Profiles};
    pub use subtend_agents::prompt::{Assembled, FileText, ListedProfile, Parts, assemble};
    pub use subtend_agents::schema::front_matter;
    pub use subtend_agents::skill::{self, Skill, Skills};
    pub use subtend_agents::slash::{Expanded, ExpandedTooLong, SlashCommand, SlashCommands, Typed};
    pub use subtend_agents::template::{BadTemplate, MinionTemplate};
    pub use subtend_session::dialect::Dialect;
}

/// Approvals: open requests and their answers.
pub mod approvals {
    pub use subtend_actors::{Approval, AskedCall, DecidedBy, Decision};
    pub use subtend_session::record::{AnsweredBy, AskVerdict};
}

/// Branches of a session, the alternatives of an answer, and compactions of its history.
pub mod branches {
    pub use subtend_actors::{
        Alternative, Alternatives, BranchFilter, BranchInfo, BranchOptions, CompactedHistory, Switched,
    };
}

/// Events: activity in a tree, lines of JSON, changes of a queue.
pub mod events {
    pub use subtend_actors::activity::{Activity, ActivityItem, NestedEvent};
    pub use subtend_actors::event::{DeltaKind, EventLine, QueueEvent, QueueEvents};
    pub use subtend_actors::{EventsError, EventsNext};
}

/// The on-disk format: the records of a session, and the index rows that follow from them.
///
/// They change with the version of the format (`format 1`), not with that of the library. Each version reads the stores
/// of earlier ones.
pub mod format {
    pub use subtend_session::index::{Head, Inflight, Row, RowKey, RowKind};
    pub use subtend_session::record::{
        AgentOverride, AttemptDiscarded, BranchCreated, CallFinished, Carrier, ChildSpawned, Compacted,
        CompactionCause, CompactionFailed, CompactionFailure, ContinueAsked, ContinueRefusal, From, Hold,
        InputAccepted, MetadataSet, Notice, NoticeTaken, Park, Prompt, QueueChange, Record, Reserved, RunEnded,
        RunOpened, SessionCreated, SpawnGranted, SummarySet, TitleSet, TurnAnswered,
    };
}

/// Hooks: decisions of the host about messages, models, tools and subagents.
pub mod hooks {
    pub use subtend_actors::{
        BeforeTool, Decided, ModelChoice, Refused, SubagentStart, SubagentStop, ToolAsked, ToolDone, UserMessage,
    };
}

/// The host: prices, restarts, startup and shutdown.
pub mod host {
    pub use subtend_actors::tool_options::BadToolOptions;
    pub use subtend_actors::{
        BadPrice, BootError, BootFailure, BootProgress, BootReport, Price, Prices, ShutdownReport, Stopped,
    };
    pub use subtend_supervision::Intensity;
}

/// The journal: stores, and reading the records of sessions.
pub mod journal {
    pub use subtend_journal::engine::{self, Engine};
    pub use subtend_journal::memory::Memory;
    pub use subtend_journal::{
        AppendError, EngineError, ExportError, ImportBounds, ImportError, Journal, OpenError, Options, Poisoned,
        Problem, Progress, ReadError, Report, Scope, StoreInfo, StoreSpec, Stored, Tally, open_store, open_store_with,
    };
}

/// Models: the trait, the models that need no network, and those of providers.
pub mod models {
    pub use subtend_models::closure::{FnModel, fn_model};
    pub use subtend_models::model::{Answer, Delta, Deltas, IntoModel, Model, ModelError, Request, StreamProgress};
    pub use subtend_models::models::BadPool;
    pub use subtend_models::offline::Offline;
    #[cfg(feature = "providers")]
    pub use subtend_models::provider::{BadTarget, Key, Protocol, Provider, ProviderError, Target};
    pub use subtend_models::scripted::{Builder as ScriptBuilder, ScriptError, Scripted, Step, When};
    pub use subtend_models::spec::{BadModel, BuildError, ModelSpec};
    pub use subtend_models::throttle::{BadRates, Rates};
    pub use subtend_session::record::{Stop, ToolCall};
}

/// Tools: the trait, typed tools, the registry and the workspace.
pub mod tools {
    pub use subtend_tools::closure::{FnTool, fn_tool};
    pub use subtend_tools::commands::{self, BadVariable, CommandLimits, Commands};
    pub use subtend_tools::display::{Display, RenderedCall};
    pub use subtend_tools::escape;
    pub use subtend_tools::guard::{self, Guard};
    #[cfg(feature = "mcp")]
    pub use subtend_tools::mcp;
    pub use subtend_tools::message;
    pub use subtend_tools::option::{self, BadOption, OptionKind, ToolOption, ToolOptions};
    pub use subtend_tools::policy::{BadRule, HostPolicy, PROTECTED, ProtectError};
    pub use subtend_tools::processes::Processes;
    pub use subtend_tools::registry::{Classified, LiveTools, Registry, RegistryBuilder, RegistryError, Ruling};
    pub use subtend_tools::sandbox;
    pub use subtend_tools::secrets::Secrets;
    pub use subtend_tools::skills::{self, SkillFolder, SkillPlace};
    pub use subtend_tools::tool::{Messenger, Progress, Tool, ToolError, ToolInvocation, ToolKey, ToolOutput};
    pub use subtend_tools::typed::{IntoOutput, TypedTool};
    #[cfg(feature = "web")]
    pub use subtend_tools::web;
    pub use subtend_tools::workspace::{Workspace, WorkspaceError};
    pub use subtend_tools::worktree::{self, Worktrees};
}

/// The shared vocabulary: ids, outcomes, authority, limits.
pub mod session {
    pub use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
    pub use subtend_session::call::{CallEnd, CallKind, CallResult, Invalid, ToolEffect, ToolErrorKind};
    pub use subtend_session::command::SwitchTo;
    pub use subtend_session::ids::{
        AttemptNo, BadHash, CallId, Epoch, Hash, InputId, Interned, Lsn, MsgRef, RunKey, RunNo, Seq, SessionId, Short,
        Text, TurnNo,
    };
    pub use subtend_session::limits::Limits;
    pub use subtend_session::message::{Message, ToolSpec, Transcript};
    pub use subtend_session::outcome::{Budget, FailKind, Initiator, ModelFail, Outcome, OutcomeKind, Part, TimeLimit};
    pub use subtend_session::place::{BranchKind, Isolation, Mode, OnRestart, Owner, Place, Service, Source, Worktree};
    pub use subtend_session::settings::{Effort, Settings};
    pub use subtend_session::state::Phase;
    pub use subtend_session::usage::Usage;
}

/// Views: trees, tasks, queues and usage, read from the journal.
pub mod views {
    pub use subtend_actors::history::History;
    pub use subtend_actors::tree::TreeError;
    pub use subtend_actors::{
        ChildUsage, ContextShare, FindError, QueueEntry, QueueKind, RuntimeStats, Task, TaskFilter, TaskStatus, Tree,
        UsageView, WorkClock, Worked,
    };
    pub use subtend_session::record::Lane;
    pub use subtend_session::state::Boundary;
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
