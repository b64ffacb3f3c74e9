//! A runtime for tests, with the journal in memory, virtual time, and models by closure.

pub mod talk;

use std::sync::Arc;
use std::time::Duration;

use subtend_actors::builder::Builder;
use subtend_actors::{Ended, OpenOptions, Options, Runtime, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::Journal;
use subtend_journal::memory::Memory;
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, ModelError, Request};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::call::ToolEffect;
use subtend_session::ids::SessionId;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::{Record, Stop, ToolCall};
use subtend_session::usage::Usage;
use subtend_tools::closure::FnTool;
use subtend_tools::registry::Registry;
use subtend_tools::tool::{ToolError, ToolInvocation, ToolOutput};

pub fn journal() -> Journal {
    Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal in memory")
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

pub fn model<F, Fut>(answer: F) -> Arc<dyn subtend_models::model::Model>
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
        schema: Arc::new(serde_json::json!({"type": "object"})),
    };
    FnTool::new(spec, effect, run).access(|_| Vec::new())
}

pub fn text(text: &str) -> Answer {
    Answer {
        text: Some(text.into()),
        reasoning: None,
        calls: Vec::new(),
        stop: Stop::End,
        model: None,
        usage: Usage::default(),
    }
}

/// Returns an answer with tool calls.
pub fn calls(calls: impl IntoIterator<Item = (&'static str, serde_json::Value)>) -> Answer {
    let calls = calls
        .into_iter()
        .map(|(tool, args)| ToolCall { provider_id: "c".into(), tool: tool.into(), args: args.to_string().into() })
        .collect();
    Answer { text: None, reasoning: None, calls, stop: Stop::Calls, model: None, usage: Usage::default() }
}

pub fn task(prompt: &str, background: bool) -> (&'static str, serde_json::Value) {
    ("task", serde_json::json!({"subagent_type": "worker", "prompt": prompt, "background": background}))
}

/// Returns the number of answers in the request's transcript.
pub fn answers(request: &Request) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count()
}

/// Returns the first user message.
pub fn prompt(request: &Request) -> String {
    let first = request.messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    first.unwrap_or_default()
}

/// Opens a session of `worker` and sends it `text`.
pub async fn ask(runtime: &Runtime, text: &str) -> (SessionHandle, Ended) {
    let session = open(runtime);
    let receipt = session.send(text).await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(receipt.run)).await;
    (session, ended.expect("the run ends").expect("the runtime is running"))
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

/// Returns the results of all calls in the request, in order.
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
