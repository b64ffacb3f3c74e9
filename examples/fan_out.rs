//! Fan-out: an agent starts subagents in the background, ends its turn, and resumes when they end.
//!
//! `cargo run --example fan_out`. The model is a script; at most three children run at a time, the others are queued.

use std::time::Duration;

use subtend::Runtime;
use subtend::models::{Scripted, Step, When};
use subtend::session::{Limits, Outcome};

const CHILDREN: u32 = 7;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let all_back = When { ended: Some(u64::from(CHILDREN)), ..When::default() };
    let model = Scripted::builder("script")
        .choices(
            "general",
            [
                vec![Step::fan_out(CHILDREN, "explore", true, "Look at part {n}.")],
                vec![Step::text("They are running.")], // the turn ends; the run holds no slot while they work
                vec![
                    Step::text("All are back.").when(all_back).repeat(),
                    Step::text("Some are not back yet.").repeat(),
                ],
            ],
        )
        .rule("explore", [Step::text("Seen: {prompt}").latency_ms(100)])
        .build()?;
    let runtime = Runtime::builder().model(model).limits(Limits { live_runs: 3, ..Limits::default() }).start().await?;

    let session = runtime.open("general")?;
    let receipt = session.send("Look at everything.").await?;
    let ended = session.run_ended(receipt.run).await?; // a run ends when all its children's runs have ended
    println!("{} after {} turns", ended.text.as_deref().unwrap_or_default(), ended.turns);
    let tree = session.tree().await?;
    println!("{tree}");
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("All are back.")));
    assert_eq!(tree.children.len(), usize::try_from(CHILDREN)?);
    assert!(tree.children.iter().all(|child| child.outcome == Some(Outcome::Completed)));
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
