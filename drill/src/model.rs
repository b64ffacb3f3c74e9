//! The fake model of a drill. Its answers follow from the seed and the request.
//!
//! A prompt names its position in the tree and the number of levels below it. The first answer calls the tool `mark`,
//! may run a command, and starts children, some in the background. Later answers check, cancel or continue a child.

use std::time::Duration;

use serde_json::{Value, json};
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, Model, Request};
use subtend_session::message::Message;
use subtend_session::record::ToolCall;

use super::orphans::COMMAND;
use super::rng::SeededRng;
use super::{names, tools};

/// Returns the prompt at the position `name`, with `depth` levels below it.
pub(crate) fn prompt(name: &str, depth: u64) -> String {
    format!("at {name} depth {depth}")
}

pub(crate) fn model(seed: u64) -> impl Model {
    let model = fn_model("drill", move |request: Request, _| {
        let (delay, answer) = answer(seed, &request);
        async move {
            tokio::time::sleep(delay).await;
            Ok(answer)
        }
    });
    // The runtime then treats the model like a provider: a call starts only after its intent record is durable.
    model.with_leaves_process(true)
}

#[derive(Debug, Default)]
struct ParsedPrompt {
    agent: String,
    name: String,
    depth: u64,
    answers: u64,
    tasks: Vec<String>,
}

impl ParsedPrompt {
    fn read(request: &Request) -> Self {
        let agent = request.agent.to_string();
        let mut parsed = Self { agent: agent.clone(), ..Self::default() };
        for message in request.messages.iter() {
            match message {
                Message::User { text, .. } => {
                    let mut words = text.split_whitespace();
                    let name = words.nth(1).unwrap_or_default().to_owned();
                    let depth = words.nth(1).and_then(|depth| depth.parse().ok()).unwrap_or(0);
                    parsed = Self { agent: agent.clone(), name, depth, ..Self::default() };
                }
                Message::Assistant { .. } => parsed.answers = parsed.answers.saturating_add(1),
                Message::Result { content, .. } => {
                    let started: Option<Value> = serde_json::from_str(content).ok();
                    let task = started.as_ref().and_then(|started| started.get("session_id")).and_then(Value::as_str);
                    parsed.tasks.extend(task.map(str::to_owned));
                }
                Message::Notice { .. } | Message::Prompt { .. } => {}
            }
        }
        parsed
    }
}

fn answer(seed: u64, request: &Request) -> (Duration, Answer) {
    let parsed = ParsedPrompt::read(request);
    let mut rng = SeededRng::of(seed.wrapping_add(parsed.answers), &parsed.name);
    let calls = match (parsed.answers, parsed.tasks.first()) {
        (0, _) => first(&parsed, &mut rng),
        (1, Some(task)) => second(task, &mut rng),
        // A checked child has usually ended. If it has not, the call returns an error.
        (2, Some(task)) if rng.one_in(2) => {
            let prompt = prompt(&format!("{}-on", parsed.name), 0);
            vec![tool_call("task", &json!({"session_id": task, "prompt": prompt, "background": rng.one_in(2)}))]
        }
        _ => Vec::new(),
    };
    // Owners answer slowly after their calls, so that ends of background children wait in the outbox.
    let delay_ms = rng.below(if parsed.answers == 0 { 15 } else { 80 });
    // The name may be the unique text of a session that is deleted later: ancestors must then keep no copy of it.
    let text = if parsed.name.starts_with(names::SECRET) { &*parsed.name } else { "done" };
    let answer = if calls.is_empty() { Answer::of_text(text) } else { Answer::of_calls(None, calls) };
    (Duration::from_millis(delay_ms), answer)
}

fn first(parsed: &ParsedPrompt, rng: &mut SeededRng) -> Vec<ToolCall> {
    let mut calls = vec![tool_call(tools::MARK, &delays(rng))];
    if rng.one_in(3) {
        calls.push(tool_call(tools::NOTE, &delays(rng)));
    }
    if rng.one_in(14) {
        calls.push(tool_call("shell", &json!({"command": COMMAND})));
    }
    let children = if parsed.depth == 0 { 0 } else { 1 + rng.below(if parsed.depth == 1 { 3 } else { 2 }) };
    for child in 0..children {
        calls.push(tool_call(
            "task",
            &json!({
                "subagent_type": if rng.one_in(4) { other_agent(&parsed.agent) } else { parsed.agent.as_str() },
                "prompt": prompt(&format!("{}-{child}", parsed.name), parsed.depth.saturating_sub(1)),
                "background": rng.one_in(2),
            }),
        ));
    }
    calls
}

fn other_agent(agent: &str) -> &'static str {
    if agent == names::STEADY { names::WORKER } else { names::STEADY }
}

fn second(task: &str, rng: &mut SeededRng) -> Vec<ToolCall> {
    match rng.below(5) {
        0 => vec![tool_call("cancel_task", &json!({"taskId": task}))],
        1 | 2 => vec![tool_call("check_task", &json!({"taskId": task, "timeoutMs": 2_000}))],
        // The session continues its own work, and receives the end at the next boundary.
        3 => vec![tool_call(tools::MARK, &delays(rng)), tool_call(tools::NOTE, &delays(rng))],
        _ => Vec::new(),
    }
}

fn delays(rng: &mut SeededRng) -> Value {
    json!({"before_ms": rng.below(12), "after_ms": rng.below(25)})
}

fn tool_call(tool: &str, args: &Value) -> ToolCall {
    ToolCall { provider_id: "drill".into(), tool: tool.into(), args: args.to_string().into() }
}
