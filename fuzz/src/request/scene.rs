//! The host that receives the requests: an idle session, one with an open ask, and one whose model never answers.

use std::sync::Arc;

use serde_json::json;
use subtend_actors::{OpenOptions, Options, Runtime};
use subtend_host::{Host, HostOptions};
use subtend_journal::Journal;
use subtend_journal::memory::Memory;
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, ModelError, Request};
use subtend_session::authority::{Access, Rule, RuleSet, Verdict};
use subtend_session::call::ToolEffect;
use subtend_session::ids::SessionId;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::ToolCall;
use subtend_tools::closure::FnTool;
use subtend_tools::registry::Registry;
use subtend_tools::tool::ToolOutput;
use uuid::Uuid;

/// The sessions with their first inputs.
pub(super) const SESSIONS: [(SessionId, &str); 3] = [
    (SessionId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)), "hello"),
    (SessionId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0002)), "make"),
    (SessionId(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0003)), "hang"),
];

pub(super) async fn host() -> Option<Host> {
    let journal = Journal::open(Box::new(Memory::new()), Default::default()).ok()?;
    let rule = Rule { action: "make.*".into(), resource: "*".into(), verdict: Verdict::Ask };
    let schema = Arc::new(json!({"type": "object"}));
    let spec = ToolSpec { name: "make".into(), description: "makes a thing".into(), schema };
    let make = FnTool::new(spec, ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) })
        .access(|_| vec![Access { action: "make.thing".into(), resource: "boat".into() }]);
    let runtime = Runtime::builder()
        .journal(journal)
        .policy(RuleSet { default: Verdict::Allow, rules: vec![rule] })
        .tools(Registry::builder().tool(Arc::new(make)).ok()?.build())
        .options(Options { titles: false, summaries: false, ..Options::default() })
        .model(Arc::new(fn_model("scene", |request, _| answer(request))))
        .start()
        .await
        .ok()?;
    let host = Host::new(runtime, HostOptions::default());
    for (id, text) in SESSIONS {
        let opened = host.open(OpenOptions { id: Some(id), ..OpenOptions::agent("general") }).await;
        let _ = opened.ok()?.0.send(text).await.ok()?;
    }
    Some(host)
}

async fn answer(request: Request) -> Result<Answer, ModelError> {
    let text = match request.messages.iter().last() {
        Some(Message::User { text, .. }) => text.to_string(),
        _ => return Ok(Answer::of_text("done")),
    };
    let call = |tool: &str, args: serde_json::Value| {
        let call = ToolCall { provider_id: "c".into(), tool: tool.into(), args: args.to_string().into() };
        Ok(Answer::of_calls(None, vec![call]))
    };
    match &*text {
        "hang" => std::future::pending().await,
        "make" => call("make", json!({})),
        "child" => call("task", json!({"subagent_type": "explore", "prompt": "read"})),
        _ => Ok(Answer::of_text("hello")),
    }
}
