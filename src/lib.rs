//! Supervised, durable sessions and subagents for LLM agents.
//!
//! A [`Runtime`] owns **sessions**: durable conversations of one agent each, kept alive by supervised actors and recorded in an
//! append-only journal. A session's model may call tools, and may start **subagents** (children with a context of their own)
//! that run beside it; their ends arrive exactly once, whatever is killed meanwhile.
//!
//! ```
//! use std::sync::Arc;
//!
//! use subtend::models::{Scripted, Step};
//! use subtend::session::Outcome;
//! use subtend::{OpenOptions, Runtime};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // A model that plays a script; yours implements `subtend::models::Model`.
//! let model = Scripted::builder("greeter").rule("*", [Step::text("Hello. You said: {prompt}")]).build()?;
//!
//! // Without a journal everything is kept in memory; `subtend::journal::open_store` opens one on disk.
//! let runtime = Runtime::builder().model(Arc::new(model)).start().await?;
//! let session = runtime.open(OpenOptions { agent: "general".into(), ..OpenOptions::default() })?;
//!
//! let receipt = session.send("Good morning.").await?; // durable from here on
//! let ended = session.run_ended(receipt.run).await?;
//! assert_eq!(ended.outcome, Outcome::Completed);
//! assert_eq!(ended.text.as_deref(), Some("Hello. You said: Good morning."));
//!
//! runtime.shutdown(std::time::Duration::from_secs(5)).await;
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().expect("a runtime").block_on(example()).expect("an answer");
//! ```
//!
//! It runs in the caller's tokio, of either flavour. Handles are cheap to clone; dropping one, or a wait on one, cancels nothing.
//!
//! | module | what |
//! |---|---|
//! | [`agents`] | manifests: prompt, model, tools, authority, as data |
//! | [`models`] | the [`models::Model`] trait; a scripted and a rule-based model that need no network |
//! | [`tools`] | the [`tools::Tool`] trait; the workspace and its tools; the host's policy |
//! | [`journal`] | stores, and reading what sessions did |
//! | [`session`] | the words that all of these share: ids, outcomes, records, authority, limits |
//!
//! Features: `redb` (on by default) is the store on disk; `cli` (on by default) is the `subtend` command, which the library does
//! not need: embedders say `default-features = false, features = ["redb"]`.

pub use subtend_actors::{
    BootError, BootProgress, BootReport, Builder, Control, Ended, Event, Next, OpenOptions, OpenSessionError, Options,
    Receipt, Runtime, SendError, SessionHandle, ShutdownReport, StartError, Stopped, Subscription, WaitError, What,
};

/// Agents: manifests and the catalog that holds them.
pub mod agents {
    pub use subtend_agents::catalog::{Catalog, NotSpawnable, Problem, ProblemKind};
    pub use subtend_agents::manifest::{AgentMode, Manifest, Source};
}

/// The journal: stores, and reading what sessions did.
pub mod journal {
    pub use subtend_journal::{
        Info, Journal, OpenError, Poisoned, Problem, Progress, ReadError, Report, StoreSpec, Stored, open_store,
    };
}

/// Models: the trait, and the models that need no network.
pub mod models {
    pub use subtend_models::model::{Answer, Delta, Deltas, Model, ModelError, Request};
    pub use subtend_models::offline::Offline;
    pub use subtend_models::scripted::{ScriptError, Scripted, Step, When};
    pub use subtend_models::spec::{BadModel, ModelSpec};
}

/// Tools: the trait, the registry and the workspace.
pub mod tools {
    pub use subtend_tools::guard::{self, Guard};
    pub use subtend_tools::policy::{BadRule, HostPolicy};
    pub use subtend_tools::registry::{Registry, RegistryBuilder, RegistryError};
    pub use subtend_tools::tool::{Progress, Tool, ToolCall, ToolError, ToolKey, ToolOutput};
    pub use subtend_tools::workspace::{Workspace, WorkspaceError};
}

/// The vocabulary: identities, outcomes, records, authority, limits.
pub mod session {
    pub use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
    pub use subtend_session::call::{CallEnd, CallKind, ToolEffect, ToolErrorKind};
    pub use subtend_session::ids::{CallId, InputId, RunNo, Seq, SessionId, Short, Text, TurnNo};
    pub use subtend_session::index::Head;
    pub use subtend_session::limits::Limits;
    pub use subtend_session::message::{Message, ToolSpec, Transcript};
    pub use subtend_session::outcome::{Budget, By, FailKind, ModelFail, Outcome, OutcomeKind, TimeLimit};
    pub use subtend_session::record::{Asked, Prompt, Record, Stop};
    pub use subtend_session::state::Phase;
    pub use subtend_session::usage::Usage;
}

/// The example of the README, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
