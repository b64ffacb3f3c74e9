//! A runtime for tests, with the journal in memory, virtual time, and models by closure; and what most modules import.

pub mod talk;

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::path::Path;
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::Duration;

pub use futures_util::future::BoxFuture;
pub use serde_json::{Value, json};
pub use subtend_actors::faults::{Faults, Point};
pub use subtend_actors::{
    AnswerError, Approval, BeforeTool, BranchOptions, Builder, Control, ControlError, Ended, Event, EventKind, Hooks,
    Next, OpenOptions, OpenSessionError, Options, Receipt, Runtime, RuntimeStats, SendError, SessionHandle, StartError,
    TaskFilter, ToolAsked, WaitError,
};
pub use subtend_agents::catalog::Catalog;
pub use subtend_agents::dialect::Dialects;
pub use subtend_agents::manifest::{AgentMode, Manifest};
pub use subtend_agents::profile::{Profile, Profiles};
pub use subtend_journal::faulty::Faulty;
pub use subtend_journal::memory::Memory;
pub use subtend_journal::redb::Redb;
pub use subtend_journal::{Engine, Journal, ReadError};
pub use subtend_models::closure::fn_model;
pub use subtend_models::model::{Answer, Delta, Model, ModelError, Request};
pub use subtend_models::throttle::Rates;
pub use subtend_session::authority::{Access, Rule, RuleSet, Verdict};
pub use subtend_session::call::{CallEnd, CallKind, ToolEffect};
pub use subtend_session::dialect::Dialect;
pub use subtend_session::ids::{CallId, Hash, InputId, RunNo, Seq, SessionId, Text, TurnNo};
pub use subtend_session::limits::Limits;
pub use subtend_session::message::Message;
pub use subtend_session::outcome::{FailKind, Initiator, ModelFail, Outcome, OutcomeKind, TimeLimit};
pub use subtend_session::place::{BranchKind, OnRestart, Owner};
pub use subtend_session::record::{AnsweredBy, AskVerdict, Record, Stop};
pub use subtend_session::state::{Phase, State};
pub use subtend_session::usage::Usage;
pub use subtend_tools::closure::FnTool;
pub use subtend_tools::registry::Registry;
pub use subtend_tools::tool::{ToolError, ToolOutput};
pub use subtend_tools::workspace::Workspace;
pub use tokio::time::Instant;

use subtend_session::message::ToolSpec;
use subtend_session::record::ToolCall;
use subtend_tools::tool::ToolInvocation;

/// Returns all calls that wait for an approval, oldest first.
pub async fn asked(runtime: &Runtime) -> Vec<Approval> {
    let calls = runtime.waiting_calls().await.expect("a list");
    runtime.read_approvals(&calls, |approval| approval)
}

pub fn journal() -> Journal {
    reopen(&Memory::new())
}

pub fn reopen(memory: &Memory) -> Journal {
    on(Box::new(memory.clone()))
}

pub fn on(engine: Box<dyn Engine>) -> Journal {
    Journal::open(engine, subtend_journal::Options::default()).expect("the journal opens")
}

pub async fn seconds(n: u64) {
    tokio::time::sleep(Duration::from_secs(n)).await;
}

/// Returns a builder with the agent `worker` (all), everything allowed, and a fixed seed.
pub fn builder(journal: &Journal) -> Builder {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    Runtime::builder()
        .journal(journal.clone())
        .catalog(catalog)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .options(Options { seed: Some(7), ..Options::default() })
}

pub fn model<F, Fut>(answer: F) -> Arc<dyn Model>
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ModelError>> + Send + 'static,
{
    Arc::new(fn_model("test", move |request, _| answer(request)))
}

pub fn tools(tools: impl IntoIterator<Item = FnTool>) -> Registry {
    let builder = tools
        .into_iter()
        .fold(Registry::builder(), |builder, tool| builder.tool(Arc::new(tool)).expect("names differ"));
    builder.build()
}

pub fn tool<F, Fut>(name: &str, effect: ToolEffect, run: F) -> FnTool
where
    F: Fn(ToolInvocation) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
{
    let spec = ToolSpec {
        name: name.into(),
        description: "a tool of a test".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    FnTool::new(spec, effect, run).access(|_| Vec::new())
}

pub fn text(text: &str) -> Answer {
    Answer::of_text(text)
}

pub fn calls(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Answer {
    let calls = calls
        .into_iter()
        .map(|(tool, args)| ToolCall { provider_id: "c".into(), tool: tool.into(), args: args.to_string().into() })
        .collect();
    Answer::of_calls(None, calls)
}

pub fn task(prompt: &str, background: bool) -> (&'static str, Value) {
    ("task", json!({"subagent_type": "worker", "prompt": prompt, "background": background}))
}

/// Returns the number of answers in the request's transcript.
pub fn answers(request: &Request) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count()
}

pub fn prompt(request: &Request) -> String {
    let first = request.messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    first.unwrap_or_default()
}

pub fn last_user(request: &Request) -> String {
    let user = |message: &Message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    };
    request.messages.iter().rev().find_map(user).unwrap_or_default()
}

pub fn user_messages(request: &Request) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::User { .. })).count()
}

pub fn kinds_of(request: &Request) -> Vec<&'static str> {
    let word = |message: &Message| match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Result { .. } => "result",
        Message::Notice { .. } => "notice",
        Message::Prompt { .. } => "prompt",
    };
    request.messages.iter().map(word).collect()
}

/// Returns the short name of the first task, from the result of its call.
pub fn short(request: &Request) -> String {
    let received = request.messages.iter().find_map(|message| match message {
        Message::Result { content, .. } => serde_json::from_str::<Value>(content).ok(),
        _ => None,
    });
    received.and_then(|received| received["session_id"].as_str().map(str::to_owned)).unwrap_or_default()
}

pub async fn started(builder: Builder) -> Runtime {
    builder.start().await.expect("a runtime")
}

/// Opens a session of `worker` and sends it `text`.
pub async fn sent(runtime: &Runtime, text: &str) -> (SessionHandle, Receipt) {
    let session = open(runtime);
    let receipt = session.send(text).await.expect("accepted");
    (session, receipt)
}

/// Sends as [`sent`] does, and waits for the end of the run.
pub async fn ask(runtime: &Runtime, text: &str) -> (SessionHandle, Ended) {
    let (session, receipt) = sent(runtime, text).await;
    let ended = end_of(&session, receipt.run.0).await;
    (session, ended)
}

pub async fn end_of(session: &SessionHandle, run: u32) -> Ended {
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(RunNo(run))).await;
    ended.expect("the run ends").expect("the runtime is running")
}

/// Returns the outcome of the session's first run that has ended.
pub async fn outcome_of(journal: &Journal, session: SessionId) -> Option<Outcome> {
    records(journal, session).await.into_iter().find_map(|record| match record {
        Record::RunEnded(ended) => Some(ended.outcome),
        _ => None,
    })
}

pub fn refused() -> ModelError {
    ModelError::new(ModelFail::Auth, "no")
}

pub fn open(runtime: &Runtime) -> SessionHandle {
    runtime.open(OpenOptions { agent: "worker".into(), ..OpenOptions::default() }).expect("a session")
}

pub async fn records(journal: &Journal, session: SessionId) -> Vec<Record> {
    journal.settled().await.expect("the journal is open");
    journal.records(session).expect("records").into_iter().map(|stored| stored.record).collect()
}

pub async fn kinds(journal: &Journal, session: SessionId) -> Vec<&'static str> {
    records(journal, session).await.iter().map(Record::kind).collect()
}

/// Shuts down, and checks that no task remains alive and that the journal satisfies every invariant.
pub async fn shut(runtime: Runtime) {
    let journal = runtime.journal().clone();
    journal.settled().await.expect("the journal is open");
    subtend_journal::audit(&journal, true).expect("every invariant holds");
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
}

pub fn results(request: &Request) -> Vec<String> {
    let result = |message: &Message| match message {
        Message::Result { content, .. } => Some(content.to_string()),
        _ => None,
    };
    request.messages.iter().filter_map(result).collect()
}

pub fn offered(request: &Request) -> Vec<String> {
    request.tools.iter().map(|tool| tool.name.to_string()).collect()
}
