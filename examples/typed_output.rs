//! Typed output: the answer is a value of a Rust type. One that does not match returns to the model with the error.
//!
//! `cargo run --example typed_output`. The scripted model forgets a field at first.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use subtend::models::{Scripted, Step};
use subtend::{AskError, AskOptions, Runtime};

/// A review of a text.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Review {
    /// The subject of the text, in one sentence.
    summary: String,
    /// From 1 (bad) to 5 (good).
    grade: u8,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let steps = [
        Step::text(r#"{"summary": "A poem about rain."}"#),
        Step::text("Here it is:\n```json\n{\"summary\": \"A poem about rain.\", \"grade\": 4}\n```"),
        Step::text("I would rather not."),
    ];
    let model = Scripted::builder("script").rule("*", steps).build()?;
    let runtime = Runtime::builder().model(model).start().await?;
    let session = runtime.open("general")?;

    let review: Review = session.ask("Review the poem.").await?;
    println!("{review:?}");
    assert_eq!(review, Review { summary: "A poem about rain.".to_owned(), grade: 4 });

    let refused = session.ask_with::<Review>("Again.", AskOptions { corrections: 0 }).await;
    let Err(AskError::Mismatch { error, text, .. }) = refused else {
        return Err("an answer that does not fit was accepted".into());
    };
    println!("not taken: {text:?} ({error})");

    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
