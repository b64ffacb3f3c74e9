//! The crash-point sweep: whole lives, killed at each write of theirs and again at each write of the recovery from that.
//!
//! At a write the host dies either before anything of it is on the disk (it was not written, or written and not flushed, which is the
//! same to the next host), or after all of it is, and before anybody was told. What is between the two, a batch that is torn,
//! is for the engines: `journal/tests`.

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
use subtend_session::outcome::Outcome;
use subtend_session::place::OnRestart;
use subtend_session::record::Record;
use subtend_session::state::Phase;
use subtend_tools::tool::ToolOutput;

/// Where the host dies at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Nothing of it is on the disk.
    Before,
    /// All of it is, and nobody was told.
    After,
}

impl At {
    const ALL: [Self; 2] = [Self::Before, Self::After];

    fn order(self, faults: &Faults, n: u64) {
        match self {
            Self::Before => faults.fail_write(n),
            Self::After => faults.fail_sync(n),
        }
    }
}

/// A life that is told to the end if nothing happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// A task, another in the background that ends while its owner rests, and a tool with side effects.
    Tree,
    /// A task of a task that is cancelled from above.
    Cancelled,
    /// An input that waits, an ended task that goes on, and another that is cancelled by its owner's model.
    Managed,
}

impl Story {
    const ALL: [Self; 3] = [Self::Tree, Self::Cancelled, Self::Managed];
}

fn short(request: &Request) -> String {
    use subtend_session::message::Message;
    let told = request.messages.iter().find_map(|message| match message {
        Message::Result { content, .. } => serde_json::from_str::<serde_json::Value>(content).ok(),
        _ => None,
    });
    told.and_then(|told| told["session_id"].as_str().map(str::to_owned)).unwrap_or_default()
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

/// What is the same for all hosts of a sweep.
#[derive(Clone, Default)]
struct World {
    word: OnRestart,
    faults: subtend_actors::faults::Faults,
}

fn host(journal: &Journal, seed: u64, world: &World) -> Builder {
    let mark = tool("mark", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("marked")) });
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: world.word, ..worker });
    let options = Options { seed: Some(seed), ..Options::default() };
    let builder = builder(journal).catalog(catalog).options(options).tools(tools([mark])).model(model(voice));
    builder.faults(world.faults.clone())
}

/// What a host was told before it died.
#[derive(Debug, Default)]
struct Told {
    inputs: Vec<(SessionId, InputId)>,
    ended: Vec<(SessionId, Outcome)>,
}

async fn tell(story: Story, runtime: &Runtime) -> Told {
    let mut told = Told::default();
    let Ok(session) = runtime.open(OpenOptions::agent("worker")) else { return told };
    let words = match story {
        Story::Tree => "tree",
        Story::Cancelled => "cancelled",
        Story::Managed => "managed",
    };
    let Ok(receipt) = session.send(words).await else { return told };
    told.inputs.push((session.id(), receipt.input));
    match story {
        Story::Tree => {}
        Story::Cancelled => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            if session.cancel().await.is_err() {
                return told;
            }
        }
        Story::Managed => {
            let Ok(second) = session.send("and then").await else { return told };
            told.inputs.push((session.id(), second.input));
        }
    }
    let ended = tokio::time::timeout(Duration::from_secs(7_200), session.run_ended(receipt.run)).await;
    if let Ok(ended) = ended.expect("it ends, or its host does") {
        told.ended.push((session.id(), ended.outcome));
    }
    told
}

/// How each run of each session ended.
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

/// Starts a host on `memory` that dies at the `n`-th write, if it comes to it; tells how many writes there were.
async fn dies(memory: &Memory, story: Story, world: &World, at: At, n: u64) -> (Told, u64) {
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    at.order(&faults, n);
    let journal = on(Box::new(faulty));
    let mut told = Told::default();
    if let Ok(runtime) = host(&journal, 7, world).start().await {
        told = tell(story, &runtime).await;
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    (told, faults.writes())
}

/// Starts a host that only recovers, and dies at the `n`-th write of that.
async fn dies_in_recovery(memory: &Memory, world: &World, at: At, n: u64) -> u64 {
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    at.order(&faults, n);
    let journal = on(Box::new(faulty));
    if let Ok(runtime) = host(&journal, 8, world).start().await {
        tokio::time::sleep(Duration::from_secs(600)).await;
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    faults.writes()
}

/// Runs that had begun when the host died.
fn begun(memory: &Memory) -> Vec<(SessionId, usize)> {
    let inflight = on(Box::new(memory.copy())).inflight().expect("inflight");
    let begun = inflight.into_iter().filter(|(_, row)| row.state != Phase::Queued);
    begun.map(|(session, row)| (session, row.run.0 as usize - 1)).collect()
}

/// Recovers for good, checks all that must hold then, and tells how what had begun has ended.
async fn recovered(
    memory: &Memory,
    world: &World,
    told: &Told,
    begun: &[(SessionId, usize)],
    what: &str,
) -> Vec<Outcome> {
    let journal = on(Box::new(memory.clone()));
    let runtime = host(&journal, 9, world).start().await.expect("it starts again");
    tokio::time::sleep(Duration::from_secs(7_200)).await;
    let at_rest = (journal.outbox().expect("outbox"), journal.inflight().expect("inflight"));
    assert_eq!(at_rest, (Vec::new(), Vec::new()), "{what}");
    let report = journal.verify(&mut |_| ()).expect("readable");
    assert_eq!(report.problems, Vec::new(), "{what}");
    for (session, input) in &told.inputs {
        let kept = records(&journal, *session).await.iter().any(|record| match record {
            Record::InputAccepted(accepted) => accepted.id == *input,
            _ => false,
        });
        assert!(kept, "{what}: an acknowledged input is gone");
    }
    let ends = outcomes(&journal).await;
    for (session, outcome) in &told.ended {
        let kept = ends.iter().any(|(id, ends)| id == session && ends.first() == Some(outcome));
        assert!(kept, "{what}: an end that was told is another one now: {outcome:?}, {ends:?}");
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

/// Every write of every story, before and after it; then every write of the recovery, before and after it (J-1, J-7, N-1, S-1).
async fn sweep(world: World) {
    let world = &world;
    let mut points = 0_u32;
    for story in Story::ALL {
        for at in At::ALL {
            for n in 1.. {
                let memory = Memory::new();
                let (told, writes) = dies(&memory, story, world, at, n).await;
                let (left, begun) = (memory.copy(), begun(&memory));
                let crash = format!("{story:?}, {at:?} write {n}");
                let once = recovered(&memory, world, &told, &begun, &crash).await;
                let mut observed =
                    Observed { recoveries: vec![recovery(&crash, 0, &begun, &once)], ..Observed::default() };
                for (second, m) in (1..).flat_map(|m| At::ALL.map(|second| (second, m))) {
                    let memory = left.copy();
                    let what = format!("{crash}, then {second:?} write {m} of the recovery");
                    let there = dies_in_recovery(&memory, world, second, m).await;
                    points += 1;
                    let twice = recovered(&memory, world, &told, &begun, &what).await;
                    // What goes on may end otherwise: it was at work for longer.
                    if world.word == OnRestart::Fail {
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
    assert!(points > 100, "{points} points only");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_dies_at_any_write_and_again_in_the_recovery_leaves_what_one_clean_recovery_leaves() {
    sweep(World::default()).await;
}

#[tokio::test(start_paused = true)]
async fn runs_that_go_on_come_to_their_ends_whatever_write_their_hosts_die_at() {
    sweep(World { word: OnRestart::Resume, ..World::default() }).await;
}

/// The sweep can fail: where ends put no rows into the outbox, an owner is never told.
#[cfg(feature = "sabotage")]
#[tokio::test(start_paused = true)]
async fn a_missing_outbox_is_noticed_by_the_sweep() {
    use subtend_invariants::bugs::{Bug, Rules};

    let faults = subtend_actors::faults::Faults::default().rules(Rules::without(Bug::NoOutbox));
    let swept = tokio::spawn(sweep(World { faults, ..World::default() })).await;
    assert!(swept.is_err_and(|error| error.is_panic()));
}
