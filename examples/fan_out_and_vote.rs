//! Fan-out and vote: several agents answer the same question independently, and others choose among the answers.
//!
//! `cargo run --example fan_out_and_vote`. Each thinker and each voter has its own context, so they cannot influence
//! each other. The model is a few lines of Rust. A language model would decide by itself which agents to start.

use std::time::Duration;

use subtend::Runtime;
use subtend::agents::{AgentMode, Catalog, Manifest};
use subtend::models::ToolCall;
use subtend::models::{Answer, Request, fn_model};
use subtend::session::{Message, Outcome};

const THINKERS: [&str; 3] = ["short", "descriptive", "playful"];
const VOTERS: usize = 5;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("thinker", AgentMode::Subagent, "Propose one name. Answer with the name alone."));
    catalog.insert(Manifest::new("voter", AgentMode::Subagent, "Choose one of the names. Answer with it alone."));
    let model = fn_model("rules", |request, _| async move { Ok(answer(&request)) });
    let runtime = Runtime::builder().catalog(catalog).model(model).start().await?;

    let session = runtime.open("general")?;
    let receipt = session.send("Find a name for a tool that runs agents.").await?;
    let ended = session.run_ended(receipt.run).await?;

    let tree = session.tree().await?;
    println!("{tree}\n\n{}", ended.text.as_deref().unwrap_or_default());
    assert_eq!(ended.outcome, Outcome::Completed);
    assert_eq!(ended.text.as_deref(), Some("`subtend`, with 3 of 5 votes."));
    assert_eq!(tree.children.len(), THINKERS.len() + VOTERS);
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Answers for every agent; the request contains the agent's name and the conversation.
fn answer(request: &Request) -> Answer {
    let results: Vec<&str> = request.messages.iter().filter_map(result).collect();
    match (&*request.agent, results.len()) {
        // Calls of one answer run in parallel; the next turn starts when all have results.
        ("general", 0) => {
            ask(THINKERS.map(|style| ("thinker", format!("Find a {style} name for a tool that runs agents."))))
        }
        ("general", 3) => {
            let names = results.join(", ");
            ask((1..=VOTERS).map(|voter| ("voter", format!("Voter {voter}, choose: {names}"))))
        }
        ("general", _) => Answer::of_text(count(results.get(THINKERS.len()..).unwrap_or_default())),
        ("thinker", _) => Answer::of_text(propose(prompt_of(request))),
        (_, _) => Answer::of_text(choose(prompt_of(request))),
    }
}

/// Returns one answer with a call of `task` for each pair of agent and prompt.
fn ask(tasks: impl IntoIterator<Item = (&'static str, String)>) -> Answer {
    let call = |(agent, prompt): (&str, String)| ToolCall {
        provider_id: "call".into(),
        tool: "task".into(),
        args: serde_json::json!({"subagent_type": agent, "prompt": prompt}).to_string().into(),
    };
    Answer::of_calls(None, tasks.into_iter().map(call).collect())
}

fn propose(prompt: &str) -> &'static str {
    match prompt {
        prompt if prompt.contains("short") => "subtend",
        prompt if prompt.contains("descriptive") => "agent-runner",
        _ => "herdsman",
    }
}

/// Chooses a name; most voters prefer the short one.
fn choose(prompt: &str) -> String {
    let (voter, names) = prompt.split_once(", choose: ").unwrap_or_default();
    let names = names.split(", ");
    let taste = if voter.ends_with(['2', '4']) {
        names.max_by_key(|name| name.len())
    } else {
        names.min_by_key(|name| name.len())
    };
    taste.unwrap_or_default().to_owned()
}

fn count(votes: &[&str]) -> String {
    let of = |name: &str| votes.iter().filter(|vote| **vote == name).count();
    let winner = votes.iter().max_by_key(|name| of(name)).copied().unwrap_or_default();
    format!("`{winner}`, with {} of {} votes.", of(winner), votes.len())
}

fn result(message: &Message) -> Option<&str> {
    if let Message::Result { content, .. } = message { Some(content) } else { None }
}

/// Returns the question to the agent.
fn prompt_of(request: &Request) -> &str {
    request.messages.iter().find_map(text_of).unwrap_or_default()
}

fn text_of(message: &Message) -> Option<&str> {
    if let Message::User { text, .. } = message { Some(text) } else { None }
}
