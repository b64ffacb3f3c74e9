//! The bare tokio loop: the same model turns and tool calls, and nothing else.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Does the work of the fake model: writes the whole message list as JSON and parses it.
pub(crate) fn round_trip(messages: &Value) -> usize {
    let text = messages.to_string();
    match serde_json::from_str::<Value>(&text) {
        Ok(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

async fn child(ix: u32) -> (u32, String) {
    let mut messages = vec![
        json!({"role": "system", "content": "You are a worker."}),
        json!({"role": "user", "content": format!("item {ix}")}),
    ];
    let seen = round_trip(&Value::Array(messages.clone()));
    messages.push(
        json!({"role": "assistant", "calls": [{"id": "c0", "tool": "echo", "args": format!("{{\"n\":{seen}}}")}]}),
    );
    tokio::task::yield_now().await;
    messages.push(json!({"role": "tool", "id": "c0", "content": "pong"}));
    let seen = round_trip(&Value::Array(messages));
    (ix, if seen == 4 { "done".to_owned() } else { "lost".to_owned() })
}

#[expect(clippy::disallowed_methods, reason = "a bench measures wall time")]
pub(crate) async fn fan_out(children: u32) -> Duration {
    let started = Instant::now();
    let mut set = JoinSet::new();
    for ix in 0..children {
        set.spawn(child(ix));
    }
    let mut results = Vec::with_capacity(children as usize);
    while let Some(result) = set.join_next().await {
        results.push(result.map_or((0, String::new()), |result| result));
    }
    assert!(results.len() == children as usize && results.iter().all(|(_, text)| text == "done"));
    started.elapsed()
}
