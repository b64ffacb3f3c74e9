//! The shortest embedding: opens a session, sends an input, follows the events, and gets the answer.
//!
//! `cargo run --example embed [QUESTION]`. The built-in rule-based model answers from the files of this directory. With
//! a key and the feature `providers`, you can replace it with a language model.

use std::time::Duration;

use subtend::format::Record;
use subtend::models::Offline;
use subtend::session::Outcome;
use subtend::tools::{Registry, Workspace};
use subtend::{EventKind, Next, Runtime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "Where are errors handled?".to_owned());
    let runtime = Runtime::builder()
        .workspace(Workspace::open(".")?)
        .tools(Registry::builder().tools(Registry::workspace_tools(None))?.build())
        .model(Offline)
        .start()
        .await?;

    let session = runtime.open("general")?;
    let mut events = session.watch();
    tokio::spawn(async move {
        while let Some(Next::Event(event)) = events.next().await {
            let EventKind::Record { record, .. } = event.what else { continue };
            if let Record::TurnAnswered(answered) = &*record {
                let tools: Vec<&str> = answered.calls.iter().map(|call| &*call.tool).collect();
                let what = if tools.is_empty() { "answers".to_owned() } else { format!("asks for {tools:?}") };
                eprintln!("{} {what}", event.session.short());
            } else if let Record::RunEnded(ended) = &*record {
                eprintln!("{} {}", event.session.short(), ended.outcome.kind().as_str());
            }
        }
    });

    let receipt = session.send(question).await?; // durable on return
    // `receipt.answer()` would return the first answer; the run ends when its subagents have ended too.
    let ended = session.run_ended(receipt.run).await?;
    println!("{}", ended.text.as_deref().unwrap_or("no answer"));
    assert_eq!(ended.outcome, Outcome::Completed);

    runtime.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
