//! The recount from records agrees with the accounts in memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, ModelError, Request};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::ids::RunNo;
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::{ModelFail, Outcome};
use subtend_session::record::{Stop, ToolCall};
use subtend_session::usage::Usage;

use super::*;
use crate::calls::prices::{Price, Prices};
use crate::faults::{Faults, Point};
use crate::handle::SessionHandle;
use crate::runtime::Runtime;
use crate::runtime::builder::Builder;
use crate::values::options::Options;

type RecordedUsage = Result<Answer, ModelError>;

fn builder<F, Fut>(answer: F) -> Builder
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = RecordedUsage> + Send + 'static,
{
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let model = fn_model("lab/model", move |request, _| answer(request)).with_leaves_process(true);
    let budget = Limits { tokens: Some(1_000_000), cost_micro: Some(10_000_000), ..Limits::default() };
    Runtime::builder()
        .catalog(catalog)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .options(Options { seed: Some(7), ..Options::default() })
        .model(Arc::new(model))
        .prices(Prices::new().with("lab/*", Price::new(2.0, 8.0)))
        .limits(Limits { backoff_ms: 0, ..budget })
}

fn text(text: &str) -> Answer {
    Answer { usage: Usage { input: 50, output: 5, ..Usage::default() }, ..Answer::of_text(text) }
}

fn tasks(prompts: &[&str]) -> Answer {
    let tool_calls = prompts.iter().map(|prompt| ToolCall {
        provider_id: "c".into(),
        tool: "task".into(),
        args: serde_json::json!({"subagent_type": "worker", "prompt": prompt, "background": true}).to_string().into(),
    });
    Answer { calls: tool_calls.collect(), stop: Stop::Calls, ..text("") }
}

fn prompt_of_request(request: &Request) -> String {
    let first = request.messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        Message::Assistant { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    });
    first.unwrap()
}

fn answers(request: &Request) -> usize {
    request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count()
}

async fn sent(runtime: &Runtime, text: &str) -> (SessionHandle, RunKey) {
    let session = runtime.open("worker").unwrap();
    let receipt = session.send(text).await.unwrap();
    let key = RunKey { session: session.id(), run: receipt.run };
    (session, key)
}

/// Returns the spending by the records and by the accounts. A pending call counts in full after a crash.
async fn recounted_and_accounted(runtime: &Runtime, root: RunKey) -> (Spend, Spend) {
    let components = &runtime.components;
    components.log.journal.settled().await.unwrap();
    let recount = components.calls.recount(&components.environments.home().models.models, root).unwrap();
    assert_eq!(recount.spawns, components.calls.ledger.used(root));
    (recount.spend, components.calls.budgets.settled(root).plus(components.calls.budgets.outstanding(root)))
}

#[tokio::test(start_paused = true)]
async fn recount_matches_the_accounts_in_every_state() {
    let failures = Arc::new(AtomicUsize::new(0));
    let answer = move |request: Request| {
        let failures = Arc::clone(&failures);
        async move {
            match (prompt_of_request(&request).as_str(), answers(&request)) {
                ("root", 0) => Ok(tasks(&["done", "silent", "failing", "turned away", "cancelled", "parked", "owner"])),
                ("owner", 0) => Ok(tasks(&["done", "parked"])),
                ("silent", _) => Ok(Answer { usage: Usage::UNKNOWN, ..text("who knows") }),
                ("failing", _) if failures.fetch_add(1, Ordering::SeqCst) < 2 => {
                    Err(ModelError::new(ModelFail::Unavailable, "503"))
                }
                ("turned away", _) => Err(ModelError::new(ModelFail::InvalidRequest, "no")),
                ("parked" | "cancelled", _) => std::future::pending().await,
                (_, _) => Ok(text("done")),
            }
        }
    };
    let limits = |builder: Builder| {
        let budget = Limits { tokens: Some(1_000_000), cost_micro: Some(10_000_000), ..Limits::default() };
        builder.limits(Limits { backoff_ms: 0, live_runs: 20, ..budget })
    };
    let runtime = limits(builder(answer)).start().await.unwrap();
    let (session, root) = sent(&runtime, "root").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (records, accounts) = recounted_and_accounted(&runtime, root).await;
    assert_eq!(records, accounts);
    assert!(accounts.tokens > 6 * 4_096 && accounts.cost_micro > 0, "{accounts:?}");
    for child in runtime.journal().children(session.id()).unwrap() {
        let child = runtime.session(child).unwrap().unwrap();
        if child.tree().await.unwrap().title.contains("cancelled") {
            child.cancel().await.unwrap();
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (records, now) = recounted_and_accounted(&runtime, root).await;
    assert_eq!((records, now), (accounts, accounts), "a dropped call counts its reservation");
    // Simulates another process: pending calls belong to the previous account.
    runtime
        .components
        .cells
        .runs()
        .restore_accounts(&runtime.components.environments.home().models.models, root)
        .unwrap();
    assert_eq!(runtime.components.calls.budgets.settled(root), accounts);
    let owned = RunKey { session: runtime.journal().children(session.id()).unwrap()[5], run: RunNo(1) };
    runtime
        .components
        .cells
        .runs()
        .restore_accounts(&runtime.components.environments.home().models.models, owned)
        .unwrap();
    assert_eq!(
        runtime.components.calls.budgets.settled(owned),
        Spend::NOTHING,
        "an owned run spends from its root's account"
    );
    session.cancel().await.unwrap();
    session.run_ended(root.run).await.unwrap();
    assert!(runtime.components.calls.budgets.is_empty() && runtime.components.calls.ledger.is_empty());
    runtime.shutdown(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn open_reservation_counts_in_full_once_after_a_crash() {
    let armed = Arc::new(AtomicBool::new(false));
    let strikes = Arc::clone(&armed);
    let faults = Faults::new(move |point, detail| {
        let second = point == Point::Handler && detail == "submit";
        assert!(!second || !strikes.swap(false, Ordering::SeqCst), "the session's actor panics at its second input");
    });
    let answer = |_| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(text("done"))
    };
    let runtime = builder(answer).faults(faults).start().await.unwrap();
    let (session, root) = sent(&runtime, "go").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let one = runtime.components.calls.budgets.outstanding(root);
    assert!(one.tokens > 4_096);
    armed.store(true, Ordering::SeqCst);
    session.send("more").await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let components = &runtime.components;
    assert_eq!(
        (components.calls.budgets.settled(root), components.calls.budgets.outstanding(root)),
        (one, one),
        "the attempt was not retried"
    );
    let (records, accounts) = recounted_and_accounted(&runtime, root).await;
    assert_eq!(records, accounts);
    let ended = session.run_ended(root.run).await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed);
    runtime.shutdown(Duration::ZERO).await;
}
