//! The fake model and tool: without latency, in this process, with JSON in both directions.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_session::call::ToolEffect;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::ToolCall;
use subtend_tools::closure::FnTool;
use subtend_tools::tool::{Tool, ToolOutput};

use crate::bare::round_trip;

/// A model: the agent `general` starts `children` subagents, and every other agent calls one tool and completes.
pub(crate) struct FanOutModel {
    pub(crate) children: u32,
}

impl Model for FanOutModel {
    fn name(&self) -> &str {
        "fake"
    }

    fn leaves_process(&self) -> bool {
        false
    }

    fn call(&self, request: Request, _: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let answer = if &*request.agent == "general" { parent(&request, self.children) } else { worker(&request) };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

fn parent(request: &Request, children: u32) -> Answer {
    if request.messages.len() == 1 {
        let tool_calls = (0..children).map(|ix| ToolCall {
            provider_id: format!("c{ix}").into(),
            tool: "task".into(),
            args: format!("{{\"subagent_type\":\"worker\",\"prompt\":\"item {ix}\"}}").into(),
        });
        return Answer::of_calls(None, tool_calls.collect());
    }
    let results = request.messages.iter().filter(|message| match message {
        Message::Result { content, error, .. } => !error && content.contains("done"),
        Message::User { .. } | Message::Assistant { .. } | Message::Notice { .. } | Message::Prompt { .. } => false,
    });
    Answer::of_text(format!("{} results", results.count()))
}

fn worker(request: &Request) -> Answer {
    let mut messages = vec![json!({"role": "system", "content": &*request.system})];
    messages.extend(request.messages.iter().map(wire));
    if round_trip(&Value::Array(messages)) < 4 {
        return Answer::of_calls(
            None,
            vec![ToolCall { provider_id: "c0".into(), tool: "echo".into(), args: "{\"n\":2}".into() }],
        );
    }
    Answer::of_text("done")
}

fn wire(message: &Message) -> Value {
    match message {
        Message::User { text, .. } | Message::Prompt { text } | Message::Notice { text, .. } => {
            json!({"role": "user", "content": &**text})
        }
        Message::Assistant { calls, .. } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| json!({"id": &*call.provider_id, "tool": &*call.tool, "args": &*call.args}))
                .collect();
            json!({"role": "assistant", "calls": calls})
        }
        Message::Result { content, .. } => json!({"role": "tool", "id": "c0", "content": &**content}),
    }
}

/// A tool that answers at once.
pub(crate) fn echo() -> Arc<dyn Tool> {
    let spec = ToolSpec {
        name: "echo".into(),
        description: "answers".into(),
        schema: Arc::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
    };
    let tool = FnTool::new(spec, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("pong")) });
    Arc::new(tool.in_process().access(|_| Vec::new()))
}
