//! Plan, then build: one agent plans and cannot change files. When a person approves, another carries the plan out.
//!
//! `cargo run --example plan_build`. Both agents are built in. The planner calls `plan_exit` with the plan, which asks
//! for an approval like any other call. After the approval, `build` answers from the next turn on, in the same session
//! and with its history.

use std::time::Duration;

use serde_json::json;
use subtend::approvals::AskVerdict;
use subtend::format::Record;
use subtend::models::{Scripted, Step, When};
use subtend::session::{CallEnd, Outcome};
use subtend::tools::{HostPolicy, Registry, Workspace};
use subtend::{Approver, Runtime};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workspace = tempfile::tempdir()?;
    std::fs::write(workspace.path().join("hello.txt"), "hello\n")?;

    let propose = |plan: &str| Step::call("plan_exit", json!({"plan": plan}));
    let write = json!({"path": "hello.txt", "content": "bonjour\n"});
    let approved = When { result_contains: Some("The plan is approved".into()), ..When::default() };
    let model = Scripted::builder("script")
        .rule(
            "plan",
            [
                Step::call("read", json!({"path": "hello.txt"})),
                Step::call("write", write.clone()), // refused: the planner cannot write
                propose("Say it in French."),
                propose("1. `hello.txt`: write `bonjour` in place of `hello`.\n2. Check: the file has that one line."),
            ],
        )
        .choices(
            "build",
            [vec![
                Step::call("write", write).when(approved).repeat(),
                Step::text("`hello.txt` says bonjour.").repeat(),
            ]],
        )
        .build()?;
    let runtime = Runtime::builder()
        .workspace(Workspace::open(workspace.path())?)
        .tools(Registry::builder().tools(Registry::workspace_tools(None))?.build())
        .policy(HostPolicy::allowing(["fs.write"])?) // for `build`; the agent `plan` only reads
        .model(model)
        .start()
        .await?;
    let approver = runtime.approver(); // from here on an approver is attached
    let person = tokio::spawn(decide(approver));

    let session = runtime.open("plan")?;
    let receipt = session.send("Let the greeting be French.").await?;
    let ended = session.run_ended(receipt.run).await?;
    println!("{}\n\n{}", ended.text.as_deref().unwrap_or_default(), session.tree().await?);

    let records = runtime.journal().records(session.id())?;
    let refused =
        |record: &Record| matches!(record, Record::CallFinished(it) if matches!(it.end, CallEnd::ToolError { .. }));
    assert_eq!(
        records.iter().filter(|stored| refused(&stored.record)).count(),
        1,
        "the planner's write must be refused once"
    );
    assert_eq!((ended.outcome, ended.turns), (Outcome::Completed, 6));
    assert_eq!(std::fs::read_to_string(workspace.path().join("hello.txt"))?, "bonjour\n");
    person.await??;
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// A person who approves plans that name the changed file.
async fn decide(mut approver: Approver) -> Result<(), subtend::ControlError> {
    loop {
        let approval = approver.next().await;
        let plan = approval.plan.as_deref().unwrap_or_default();
        let verdict = if plan.contains(".txt") { AskVerdict::Allow } else { AskVerdict::Deny };
        println!("{plan}\n  → {verdict:?}\n");
        approver.answer(&approval, verdict).await?;
        if verdict == AskVerdict::Allow {
            return Ok(());
        }
    }
}
