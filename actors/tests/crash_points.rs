//! The crash-point sweep: whole stories, killed at each write and again at each write of the recovery.
//!
//! At a write, the host dies either before any of it is on the disk, or after all of it is and before any waiter is notified.
//! Torn batches are tested with the engines: `journal/tests`.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{answers, builder, calls, model, prompt, records, shut, task, text, tool, tools};
use serde_json::json;
use subtend_actors::builder::Builder;
use subtend_actors::{OpenOptions, Options, Runtime};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_invariants::observed::Recovery;
use subtend_invariants::{self as invariant, InvariantId, Observed};
use subtend_journal::faulty::{Faults, Faulty};
use subtend_journal::memory::Memory;
use subtend_journal::{Engine, Journal};
use subtend_models::model::{Answer, ModelError, Request};
use subtend_session::call::ToolEffect;
use subtend_session::ids::{InputId, RunKey, RunNo, SessionId};
use subtend_session::outcome::{ModelFail, Outcome};
use subtend_session::place::OnRestart;
use subtend_session::record::Record;
use subtend_session::state::Phase;
use subtend_tools::tool::ToolOutput;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashSide {
    Before,
    After,
}

impl CrashSide {
    const ALL: [Self; 2] = [Self::Before, Self::After];

    fn order(self, faults: &Faults, n: u64) {
        match self {
            Self::Before => faults.fail_write(n),
            Self::After => faults.fail_sync(n),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// A task, a background task that ends while its owner rests, and a tool with side effects.
    Tree,
    /// A nested task that an ancestor's cancel ends.
    Cancelled,
    /// A queued input, an ended task that continues, and a task that its owner's model cancels.
    Managed,
    /// Tasks and then their owner that are parked at a provider's limit.
    Limited,
}

impl Story {
    const ALL: [Self; 4] = [Self::Tree, Self::Cancelled, Self::Managed, Self::Limited];
}

fn short(request: &Request) -> String {
    use subtend_session::message::Message;
    let received = request.messages.iter().find_map(|message| match message {
        Message::Result { content, .. } => serde_json::from_str::<serde_json::Value>(content).ok(),
        _ => None,
    });
    received.and_then(|received| received["session_id"].as_str().map(str::to_owned)).unwrap_or_default()
}

async fn voice(request: Request) -> Result<Answer, ModelError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let child = || short(&request);
    match (prompt(&request).as_str(), answers(&request)) {
        ("tree", 0) => Ok(calls([("mark", json!({})), task("leaf", false), task("slow", true)])),
        ("tree", 1) => Ok(text("resting")),
        ("cancelled", 0) => Ok(calls([task("above", false)])),
        ("above", 0) => Ok(calls([task("slow", false)])),
        ("managed", 0) => Ok(calls([task("leaf", true)])),
        ("managed", 1) => Ok(text("resting")),
        ("managed", 2) => Ok(calls([("task", json!({"session_id": child(), "prompt": "on", "background": true}))])),
        ("managed", 3) => Ok(calls([("cancel_task", json!({"taskId": child()}))])),
        ("limited", 0) => Ok(calls([task("capped", false), task("capped", true)])),
        ("limited" | "capped", _) if request.attempt.0 == 1 => {
            let refused = ModelError::new(ModelFail::Rate, "the weekly limit is reached");
            Err(ModelError { retry_after_ms: Some(700_000), ..refused })
        }
        ("slow", 0) => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            Ok(text("slept"))
        }
        _ => Ok(text("done")),
    }
}

fn on(engine: Box<dyn Engine>) -> Journal {
    Journal::open(engine, subtend_journal::Options::default()).expect("the journal opens")
}

#[derive(Clone, Default)]
struct SweepWorld {
    word: OnRestart,
    faults: subtend_actors::faults::Faults,
}

fn host(journal: &Journal, seed: u64, world: &SweepWorld) -> Builder {
    let mark = tool("mark", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("marked")) });
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: Some(world.word), ..worker });
    let options = Options { seed: Some(seed), ..Options::default() };
    let builder = builder(journal).catalog(catalog).options(options).tools(tools([mark])).model(model(voice));
    builder.faults(world.faults.clone())
}

#[derive(Debug, Default)]
struct Replies {
    inputs: Vec<(SessionId, InputId)>,
    ended: Vec<(SessionId, Outcome)>,
}

async fn tell(story: Story, runtime: &Runtime) -> Replies {
    let mut received = Replies::default();
    let Ok(session) = runtime.open(OpenOptions::agent("worker")) else { return received };
    let text = match story {
        Story::Tree => "tree",
        Story::Cancelled => "cancelled",
        Story::Managed => "managed",
        Story::Limited => "limited",
    };
    let Ok(receipt) = session.send(text).await else { return received };
    received.inputs.push((session.id(), receipt.input));
    match story {
        Story::Tree | Story::Limited => {}
        Story::Cancelled => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            if session.cancel().await.is_err() {
                return received;
            }
        }
        Story::Managed => {
            let Ok(second) = session.send("and then").await else { return received };
            received.inputs.push((session.id(), second.input));
        }
    }
    let ended = tokio::time::timeout(Duration::from_secs(7_200), session.run_ended(receipt.run)).await;
    if let Ok(ended) = ended.expect("it ends, or its host does") {
        received.ended.push((session.id(), ended.outcome));
    }
    received
}

async fn outcomes(journal: &Journal) -> Vec<(SessionId, Vec<Outcome>)> {
    let mut all = Vec::new();
    for (id, _) in journal.heads().expect("heads") {
        let ends = records(journal, id).await.into_iter().filter_map(|record| match record {
            Record::RunEnded(ended) => Some(ended.outcome),
            _ => None,
        });
        all.push((id, ends.collect()));
    }
    all.sort_by_key(|(id, _): &(SessionId, Vec<Outcome>)| *id);
    all
}

/// Starts a host that dies at the `n`-th write, if it reaches that; returns the number of writes.
async fn dies(memory: &Memory, story: Story, world: &SweepWorld, at: CrashSide, n: u64) -> (Replies, u64) {
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    at.order(&faults, n);
    let journal = on(Box::new(faulty));
    let mut received = Replies::default();
    if let Ok(runtime) = host(&journal, 7, world).start().await {
        received = tell(story, &runtime).await;
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    (received, faults.writes())
}

/// Starts a host that only recovers, and dies at the `n`-th write of the recovery. Returns the number of writes.
async fn dies_in_recovery(memory: &Memory, world: &SweepWorld, at: CrashSide, n: u64) -> u64 {
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    at.order(&faults, n);
    let journal = on(Box::new(faulty));
    if let Ok(runtime) = host(&journal, 8, world).start().await {
        tokio::time::sleep(Duration::from_secs(600)).await;
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    faults.writes()
}

/// Returns the runs in flight when the host died.
fn begun(memory: &Memory) -> Vec<(SessionId, usize)> {
    let inflight = on(Box::new(memory.copy())).inflight().expect("inflight");
    let begun = inflight.into_iter().filter(|(_, row)| row.state != Phase::Queued);
    begun.map(|(session, row)| (session, row.run.0 as usize - 1)).collect()
}

/// Recovers without a fault, checks every invariant, and returns the outcomes of the runs in `begun`.
async fn recovered(
    memory: &Memory,
    world: &SweepWorld,
    received: &Replies,
    begun: &[(SessionId, usize)],
    what: &str,
) -> Vec<Outcome> {
    let journal = on(Box::new(memory.clone()));
    let runtime = host(&journal, 9, world).start().await.expect("the runtime starts again");
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    let at_rest = (journal.outbox().expect("outbox"), journal.inflight().expect("inflight"));
    assert_eq!(at_rest, (Vec::new(), Vec::new()), "{what}");
    let report = journal.verify(&mut |_| ()).expect("readable");
    assert_eq!(report.problems, Vec::new(), "{what}");
    for (session, input) in &received.inputs {
        let kept = records(&journal, *session).await.iter().any(|record| match record {
            Record::InputAccepted(accepted) => accepted.id == *input,
            _ => false,
        });
        assert!(kept, "{what}: an acknowledged input is gone");
    }
    let ends = outcomes(&journal).await;
    for (session, outcome) in &received.ended {
        let kept = ends.iter().any(|(id, ends)| id == session && ends.first() == Some(outcome));
        assert!(kept, "{what}: a reported end has changed: {outcome:?}, {ends:?}");
    }
    shut(runtime).await;
    let of = |(session, run): &(SessionId, usize)| {
        let ends = ends.iter().find(|(id, _)| id == session).map(|(_, ends)| ends);
        ends.and_then(|ends| ends.get(*run)).cloned().unwrap_or_else(|| panic!("{what}: a run has no end"))
    };
    begun.iter().map(of).collect()
}

fn recovery(crash: &str, cut: u32, begun: &[(SessionId, usize)], ends: &[Outcome]) -> Recovery {
    let run = |(session, run): &(SessionId, usize)| RunKey { session: *session, run: RunNo(*run as u32 + 1) };
    Recovery { crash: crash.into(), cut, ends: begun.iter().map(run).zip(ends.iter().cloned()).collect() }
}

/// Tests every write of every story and of its recovery, before and after it (J-1, J-7, N-1, S-1).
async fn sweep(world: SweepWorld) {
    let world = &world;
    let mut points = 0_u32;
    for story in Story::ALL {
        for at in CrashSide::ALL {
            for n in 1.. {
                let memory = Memory::new();
                let (received, writes) = dies(&memory, story, world, at, n).await;
                let (left, begun) = (memory.copy(), begun(&memory));
                let crash = format!("{story:?}, {at:?} write {n}");
                let once = recovered(&memory, world, &received, &begun, &crash).await;
                let mut observed =
                    Observed { recoveries: vec![recovery(&crash, 0, &begun, &once)], ..Observed::default() };
                for (second, m) in (1..).flat_map(|m| CrashSide::ALL.map(|second| (second, m))) {
                    let memory = left.copy();
                    let what = format!("{crash}, then {second:?} write {m} of the recovery");
                    let there = dies_in_recovery(&memory, world, second, m).await;
                    points += 1;
                    let twice = recovered(&memory, world, &received, &begun, &what).await;
                    // A resumed run may end differently, because it ran longer. Parked runs always resume.
                    if world.word == OnRestart::Fail && story != Story::Limited {
                        observed.recoveries.push(recovery(&crash, 1, &begun, &twice));
                    }
                    if there < m {
                        break;
                    }
                }
                let nothing = BTreeSet::new();
                let seen = invariant::World::new([], &nothing, None, false).seen_as(&observed);
                InvariantId::J7.check(&seen, true).unwrap_or_else(|violation| panic!("{violation}"));
                if writes < n {
                    break;
                }
            }
        }
    }
    assert!(points > 100, "only {points} crash points");
}

#[tokio::test(start_paused = true)]
async fn crashes_at_writes_and_in_recovery_leave_the_same_result() {
    sweep(SweepWorld::default()).await;
}

#[tokio::test(start_paused = true)]
async fn resumed_runs_end_after_a_crash_at_any_write() {
    sweep(SweepWorld { word: OnRestart::Resume, ..SweepWorld::default() }).await;
}

/// The control: without outbox rows the owner is never notified, and the sweep fails.
#[cfg(feature = "sabotage")]
#[tokio::test(start_paused = true)]
async fn sweep_detects_a_missing_outbox() {
    use subtend_invariants::bugs::{Bug, Rules};

    let faults = subtend_actors::faults::Faults::default().rules(Rules::without(Bug::NoOutbox));
    let swept = tokio::spawn(sweep(SweepWorld { faults, ..SweepWorld::default() })).await;
    assert!(swept.is_err_and(|error| error.is_panic()));
}
