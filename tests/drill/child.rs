//! The process that is killed: concurrent trees with blocking and background children, side effects and cancels.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::{Next, OpenOptions, Options, Runtime, What};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::{Journal, StoreSpec, open_store};
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, Request};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::call::ToolEffect;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::{Asked, Stop};
use subtend_session::usage::Usage;
use subtend_tools::closure::FnTool;
use subtend_tools::registry::Registry;
use subtend_tools::tool::{ToolCall, ToolError, ToolOutput};

/// Where the child works; set only by the drill.
pub const DIR: &str = "SUBTEND_DRILL_DIR";
/// Seed of its latencies.
pub const CHILD_SEED: &str = "SUBTEND_DRILL_CHILD_SEED";
/// Trees at the same time.
const TREES: usize = 12;

/// Opens the store of a drill.
pub fn store(dir: &Path) -> Result<Journal, subtend_journal::OpenError> {
    open_store(&StoreSpec::parse(&format!("redb:{}", dir.join("store").display())).expect("a store spec"))
}

/// A runtime over `journal` with the drill's agents, model and tool.
pub async fn runtime(dir: &Path, journal: Journal, seed: u64) -> Runtime {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let registry = Registry::builder().tool(Arc::new(mark(dir))).expect("one tool").build();
    let model = fn_model("drill", move |request: Request, _| {
        // Owners answer slowly after their calls, so that ends of background children wait in the outbox.
        let nap = mix(seed, &request) % if request.turn.0 > 1 { 80 } else { 20 };
        async move {
            tokio::time::sleep(Duration::from_millis(nap)).await;
            Ok(answer(&request))
        }
    });
    Runtime::builder()
        .journal(journal)
        .catalog(catalog)
        .tools(registry)
        .model(Arc::new(model.leaving_process(true)))
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .options(Options { durable_before_call: true, ..Options::default() })
        .start()
        .await
        .expect("a runtime")
}

/// Works until it is killed, and tells on standard output what was acknowledged to it.
pub fn run(dir: &Path) {
    let seed = std::env::var(CHILD_SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    tokio.block_on(async {
        let runtime = Arc::new(runtime(dir, store(dir).expect("the store opens"), seed).await);
        say("READY");
        let mut seen = runtime.subscribe(None);
        tokio::spawn(async move {
            while let Some(next) = seen.next().await {
                if let Next::Event(event) = next
                    && let What::Record { seq, .. } = event.what
                {
                    say(&format!("SEEN {} {seq}", event.session));
                }
            }
        });
        let mut trees = tokio::task::JoinSet::new();
        for tree in 0..TREES {
            let runtime = Arc::clone(&runtime);
            trees.spawn(async move {
                for round in 0_u64.. {
                    one_tree(&runtime, tree, round).await;
                }
            });
        }
        while trees.join_next().await.is_some() {}
    });
}

async fn one_tree(runtime: &Runtime, tree: usize, round: u64) {
    let Ok(session) = runtime.open(OpenOptions { agent: "worker".into(), ..OpenOptions::default() }) else { return };
    let Ok(receipt) = session.send(format!("depth {} tree {tree} round {round}", 1 + round % 3)).await else { return };
    say(&format!("INPUT {} {}", session.id(), receipt.input));
    if round % 5 == 4 {
        tokio::time::sleep(Duration::from_millis(15)).await;
        if session.cancel().await.is_ok() {
            say(&format!("CANCEL {}", session.id()));
        }
    }
    if let Ok(ended) = session.run_ended(receipt.run).await {
        say(&format!("ENDED {} {}", session.id(), ended.run));
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // One write per line, so that a kill tears at most the last one.
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the drill reads");
}

fn mix(seed: u64, request: &Request) -> u64 {
    let mut hash = seed ^ u64::from(request.turn.0);
    for byte in request.session.0.into_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash >> 7
}

fn answer(request: &Request) -> Answer {
    let turns = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    let prompt = request.messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    let depth: u32 = prompt
        .as_deref()
        .and_then(|prompt| prompt.split_whitespace().nth(1))
        .and_then(|depth| depth.parse().ok())
        .unwrap_or(0);
    if turns > 0 {
        return Answer {
            text: Some("done".into()),
            reasoning: None,
            calls: Vec::new(),
            stop: Stop::End,
            model: None,
            usage: Usage::default(),
        };
    }
    let mut calls = vec![asked("mark", "{}".to_owned())];
    for ix in 0..2 * depth.min(1) + u32::from(depth > 1) {
        let args = serde_json::json!({
            "subagent_type": "worker",
            "prompt": format!("depth {} child {ix}", depth - 1),
            "background": ix % 2 == 1,
        });
        calls.push(asked("task", args.to_string()));
    }
    Answer { text: None, reasoning: None, calls, stop: Stop::Calls, model: None, usage: Usage::default() }
}

fn asked(tool: &str, args: String) -> Asked {
    Asked { provider_id: "c".into(), tool: tool.into(), args: args.into() }
}

/// A tool with a side effect that can be counted: one line per call, named by its key.
fn mark(dir: &Path) -> FnTool {
    let path = dir.join("marks");
    let spec = ToolSpec {
        name: "mark".into(),
        description: "leaves a mark".into(),
        schema: Arc::new(serde_json::json!({"type": "object"})),
    };
    FnTool::new(spec, ToolEffect::SideEffect, move |call: ToolCall| {
        let path = path.clone();
        async move {
            let line = format!("{} {} {}\n", call.key.session, call.key.run, call.key.call);
            let mut file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(|error| ToolError::failed(error.to_string()))?;
            file.write_all(line.as_bytes()).map_err(|error| ToolError::failed(error.to_string()))?;
            Ok(ToolOutput::text("marked"))
        }
    })
    .access(|_| Vec::new())
}
