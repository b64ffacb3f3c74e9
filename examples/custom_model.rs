//! A custom model: it streams its answer word by word and reports its usage.
//!
//! `cargo run --example custom_model`. Here the words come from an iterator; in a real model they come from a server.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use subtend::models::{Answer, Delta, Deltas, Model, ModelError, Request};
use subtend::session::{Message, ModelFail, Usage};
use subtend::{EventKind, Next, Runtime};

/// Answers with the reversed input.
struct Backwards;

impl Model for Backwards {
    fn name(&self) -> &str {
        "backwards"
    }

    // Nothing leaves the process, so a call need not wait until its intent is durable.
    fn leaves_process(&self) -> bool {
        false
    }

    fn call(&self, request: Request, deltas: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        async move {
            let text_of = |message: &Message| {
                if let Message::User { text, .. } = message { Some(Arc::clone(text)) } else { None }
            };
            let prompt = request.messages.iter().rev().find_map(text_of);
            // The kind of an error decides whether the call is retried; this kind is not.
            let answer =
                prompt.ok_or_else(|| ModelError::new(ModelFail::InvalidRequest, "there is no input to reverse"))?;
            let mut text = String::new();
            // Dropping this future at any await stops the work; a model with a connection would close it then.
            for word in answer.split_whitespace().rev() {
                let piece = format!("{}{word}", if text.is_empty() { "" } else { " " });
                text.push_str(&piece);
                deltas.send(Delta::Text(piece.into()));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let words = u64::try_from(text.split(' ').count()).unwrap_or(u64::MAX);
            let usage = Usage { input: words, output: words, ..Usage::default() };
            Ok(Answer { usage, ..Answer::of_text(text) })
        }
        .boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().model(Backwards).start().await?;
    let session = runtime.open("general")?;
    let mut events = runtime.subscribe(Some(session.id()));
    let streamed = tokio::spawn(async move {
        let mut streamed = String::new();
        while let Some(next) = events.next().await {
            if let Next::Event(event) = next
                && let EventKind::Delta { delta: Delta::Text(text), .. } = event.what
            {
                print!("{text}");
                drop(std::io::stdout().flush());
                streamed.push_str(&text);
            }
        }
        streamed
    });
    let receipt = session.send("one two three four").await?;
    let ended = session.run_ended(receipt.run).await?;
    runtime.shutdown(Duration::from_secs(1)).await;
    drop(session);
    let streamed = streamed.await?;
    println!("\n{} tokens in, {} out", ended.usage.input, ended.usage.output);
    assert_eq!((&*streamed, ended.text.as_deref()), ("four three two one", Some("four three two one")));
    assert_eq!(ended.usage, Usage { input: 4, output: 4, ..Usage::default() });
    Ok(())
}
