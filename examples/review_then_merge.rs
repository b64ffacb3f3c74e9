//! Review, then merge: a review runs in the background, and the user's next message is refused until it ends.
//!
//! `cargo run --example review_then_merge`. A hook of the host, the gate, gets each message before the session does. It
//! refuses messages during a review, and adds the objections of the last review to the next message.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use subtend::agents::{AgentMode, Catalog, Manifest};
use subtend::hooks::{Refused, UserMessage};
use subtend::models::{Scripted, Step, When};
use subtend::session::RunNo;
use subtend::{Hooks, Runtime, SessionHandle};

#[derive(Clone, Default)]
enum Review {
    /// There is nothing to review, or the change was approved.
    #[default]
    Open,
    Running,
    /// The reviewer objects to the change.
    Holds(String),
}

#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Review>>);

impl Gate {
    fn set(&self, review: Review) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = review;
    }

    fn review(&self) -> Review {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Hooks for Gate {
    fn user_message(&self, message: UserMessage) -> BoxFuture<'_, Result<UserMessage, Refused>> {
        Box::pin(ready(match self.review() {
            // Messages to the reviewer pass, because it has its own session.
            _ if message.session != message.root => Ok(message),
            Review::Open => Ok(message),
            Review::Running => {
                Err(Refused::because("the change is being reviewed: send the message again when the review has ended"))
            }
            Review::Holds(why) => {
                let text = format!("The review found that {why}. Fix this first.\n\n{}", message.text);
                Ok(UserMessage { text: text.into(), ..message })
            }
        }))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut catalog = Catalog::builtin();
    let about = "Review a change. Answer `Hold: …` with what must be fixed first, or `Approve.`";
    catalog.insert(Manifest::new("reviewer", AgentMode::Subagent, about));
    let user = |part: &str| When { user_contains: Some(part.into()), ..When::default() };
    let model = Scripted::builder("script")
        .choices(
            "build",
            [vec![
                Step::text("There is a test for it now.").when(user("The review found")).repeat(),
                Step::text("Merged.").when(user("Merge")).repeat(),
                Step::text("The greeting is French.").repeat(),
            ]],
        )
        .choices(
            "reviewer",
            [vec![
                Step::text("Hold: no test covers the greeting.").when(user("first")).latency_ms(50),
                Step::text("Approve.").latency_ms(50),
            ]],
        )
        .build()?;
    let gate = Gate::default();
    let runtime = Runtime::builder().catalog(catalog).model(model).hooks(Arc::new(gate.clone())).start().await?;
    let session = runtime.open("build")?;

    let mut answers = vec![say(&session, "Greet in French.").await?];
    review(&session, &gate, "Review the first change.").await?;
    answers.push(say(&session, "Merge it.").await?);
    review(&session, &gate, "Review the second change.").await?;
    answers.push(say(&session, "Merge it.").await?);

    let tree = session.tree().await?;
    println!("\n{tree}");
    assert_eq!(answers, ["The greeting is French.", "There is a test for it now.", "Merged."]);
    assert_eq!(tree.children.len(), 2);
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

async fn say(session: &SessionHandle, text: &str) -> Result<String, Box<dyn std::error::Error>> {
    let answered = session.send(text).await?.answer().await?;
    println!("> {text}\n{}", answered.text);
    Ok(answered.text.to_string())
}

/// Reviews a change in a detached session. Its run neither blocks the main session nor ends with it.
async fn review(session: &SessionHandle, gate: &Gate, what: &str) -> Result<(), Box<dyn std::error::Error>> {
    gate.set(Review::Running);
    let reviewer = session.detach("reviewer", what).await?;
    let early = session.send("Merge it.").await.err().ok_or("the message was not refused")?;
    println!("> Merge it.\n  ({early})");
    let verdict = reviewer.run_ended(RunNo(1)).await?.text.unwrap_or_default();
    println!("  (the review: {verdict})");
    gate.set(match verdict.strip_prefix("Hold: ") {
        Some(why) => Review::Holds(why.to_owned()),
        None => Review::Open,
    });
    Ok(())
}
