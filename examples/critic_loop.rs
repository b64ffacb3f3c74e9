//! Critic loop: an agent sends its draft to a critic and improves it, until the critic has no objection.
//!
//! `cargo run --example critic_loop`. Each critic is a new session that gets only the draft, so the conversation cannot
//! influence the critic. The critic's answer is the result of a call. The draft is thus improved in the same run, and
//! the user sees only the accepted draft.

use std::time::Duration;

use serde_json::json;
use subtend::Runtime;
use subtend::agents::{AgentMode, Catalog, Manifest};
use subtend::models::{Scripted, Step, When};
use subtend::session::Outcome;

const DRAFTS: [&str; 3] = [
    "subtend runs agents.",
    "subtend runs agents and restarts them when they crash.",
    "subtend runs agents and loses no message, whatever crashes.",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut catalog = Catalog::builtin();
    let about = "Say what is wrong with the sentence, in one sentence. If it is fine, say: Good.";
    catalog.insert(Manifest::new("critic", AgentMode::Subagent, about));

    // Each draft goes to a critic; its reply decides whether another draft follows.
    let criticise = |draft: &str| Step::call("task", json!({"subagent_type": "critic", "prompt": draft}));
    let good = When { result_contains: Some("Good.".into()), ..When::default() };
    let [first, second, third] = DRAFTS;
    let accept = |draft: &str| Step::text(draft).when(good.clone());
    let holds = |part: &str| When { prompt_contains: Some(part.into()), ..When::default() };
    let model = Scripted::builder("script")
        .choices(
            "general",
            [
                vec![criticise(first)],
                vec![accept(first), criticise(second)],
                vec![accept(second), criticise(third)],
                vec![accept(third)],
            ],
        )
        .choices(
            "critic",
            [vec![
                Step::text("Good.").when(holds("loses no message")),
                Step::text("What happens to their work?").when(holds("crash")),
                Step::text("Other products claim the same.").repeat(),
            ]],
        )
        .build()?;
    let runtime = Runtime::builder().catalog(catalog).model(model).start().await?;

    let session = runtime.open("general")?;
    let receipt = session.send("Say in one sentence what subtend is for.").await?;
    let ended = session.run_ended(receipt.run).await?;

    let tree = session.tree().await?;
    println!("{tree}\n");
    for critic in &tree.children {
        let end = runtime.session(critic.id)?.ok_or("the session is missing")?.run_ended(critic.run).await?;
        println!("  {}\n    {}", critic.title, end.text.as_deref().unwrap_or_default());
    }
    println!("\n{}", ended.text.as_deref().unwrap_or_default());
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some(third)));
    assert_eq!((tree.children.len(), ended.turns), (3, 4), "three critics, and a last turn for the user");
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
