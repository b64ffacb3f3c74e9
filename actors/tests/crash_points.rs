//! Crash points: whole runs of example sessions, killed at each write and again at each write of the recovery.
//!
//! A kill is either before the write reaches the disk, or after it and before any waiter is notified. Torn batches are
//! tested with the engines: `journal/tests`.

use crate::support::*;
use subtend_invariants::observed::Recovery;
use subtend_invariants::{self as invariant, InvariantId, Observed};
use subtend_journal::faulty::Faults;
use subtend_session::ids::RunKey;
use subtend_session::record::{CompactionCause, From, QueueChange};
use subtend_tools::message;

/// The first prompt of a conversation that is compacted.
const HISTORY: &str = "a conversation with a long history";

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
enum Scenario {
    /// A task, a background task that ends while its owner rests, and a tool with side effects.
    Tree,
    /// A nested task that an ancestor's cancel ends.
    Cancelled,
    /// A queued input, an ended task that continues, and a task that its owner's model cancels.
    Managed,
    /// Tasks, and then their owner, that are parked at a provider's limit.
    Limited,
    /// A compaction after an overflow with a live task, then one on request, which is undone.
    Compacted,
    /// Tasks that write to each other and to their parent.
    Messages,
}

impl Scenario {
    /// The scenarios that are killed together.
    const COMMON: [Self; 4] = [Self::Tree, Self::Cancelled, Self::Managed, Self::Limited];
}

/// Returns the sibling that the error of a message to a stranger names.
fn sibling(request: &Request) -> String {
    let error = results(request).into_iter().next().unwrap_or_default();
    let names = error.split("running: ").nth(1).unwrap_or_default().to_owned();
    let sibling = names.split(", ").find_map(|name| name.split_once(" (")).map(|(id, _)| id.to_owned());
    sibling.unwrap_or_default()
}

fn message_to(to: &str, text: &str) -> (&'static str, Value) {
    ("message", json!({"to": to, "text": text}))
}

async fn fake_model(request: Request) -> Result<Answer, ModelError> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let child = || short(&request);
    if &*request.agent == "compaction" {
        return Ok(text("The marks are set."));
    }
    match (prompt(&request).as_str(), answers(&request)) {
        (HISTORY, 0) => Ok(text(&HISTORY.repeat(20))),
        (HISTORY, 1) => Ok(calls([("mark", json!({}))])),
        (HISTORY, 2) => Ok(calls([("mark", json!({})), task("slow", true)])),
        (HISTORY, 3) if request.attempt.0 == 1 => {
            Err(ModelError::new(ModelFail::ContextOverflow, "the prompt is too long"))
        }
        ("family", 0) => Ok(calls([task("waits", true), task("writes", true)])),
        ("waits", 0) => {
            seconds(30).await;
            Ok(text("waited"))
        }
        ("writes", 0) => Ok(calls([message_to("stranger", "hello")])),
        ("writes", 1) => {
            Ok(calls([message_to(&sibling(&request), "for the sibling"), message_to("parent", "for the parent")]))
        }
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
            seconds(30).await;
            Ok(text("slept"))
        }
        _ => Ok(text("done")),
    }
}

#[derive(Clone, Default)]
struct CrashWorld {
    on_restart: OnRestart,
    faults: subtend_actors::faults::Faults,
}

fn host(journal: &Journal, seed: u64, world: &CrashWorld) -> Builder {
    let mark = tool("mark", ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("marked ".repeat(300))) });
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: Some(world.on_restart), ..worker });
    let options = Options { seed: Some(seed), ..Options::default() };
    let registry = Registry::builder().tool(Arc::new(mark)).and_then(|tools| tools.tool(message::tool()));
    let tools = registry.expect("names differ").build();
    let builder = builder(journal).catalog(catalog).options(options).tools(tools).model(model(fake_model));
    builder.faults(world.faults.clone())
}

#[derive(Debug, Default)]
struct Replies {
    inputs: Vec<(SessionId, InputId)>,
    ended: Vec<(SessionId, Outcome)>,
}

async fn run_scenario(scenario: Scenario, runtime: &Runtime) -> Replies {
    let mut received = Replies::default();
    let Ok(session) = runtime.open(OpenOptions::agent("worker")) else { return received };
    let text = match scenario {
        Scenario::Tree => "tree",
        Scenario::Cancelled => "cancelled",
        Scenario::Managed => "managed",
        Scenario::Limited => "limited",
        Scenario::Compacted => HISTORY,
        Scenario::Messages => "family",
    };
    let Ok(receipt) = session.send(text).await else { return received };
    received.inputs.push((session.id(), receipt.input));
    match scenario {
        Scenario::Tree | Scenario::Limited | Scenario::Messages => {}
        Scenario::Cancelled => {
            seconds(5).await;
            if session.cancel().await.is_err() {
                return received;
            }
        }
        Scenario::Managed => {
            let Ok(second) = session.send("and then").await else { return received };
            received.inputs.push((session.id(), second.input));
        }
        Scenario::Compacted => return compacted(&session, receipt.run, received).await,
    }
    let ended = tokio::time::timeout(Duration::from_secs(7_200), session.run_ended(receipt.run)).await;
    if let Ok(ended) = ended.expect("it ends, or its host does") {
        received.ended.push((session.id(), ended.outcome));
    }
    received
}

/// Continues the conversation after its first run past an overflow, then compacts it on request and undoes that.
async fn compacted(session: &SessionHandle, first: RunNo, mut received: Replies) -> Replies {
    if session.run_ended(first).await.is_err() {
        return received;
    }
    let Ok(second) = session.send("set the marks").await else { return received };
    received.inputs.push((session.id(), second.input));
    if session.run_ended(second.run).await.is_ok() && session.compact().await.is_ok() {
        // A host that dies meanwhile refuses the undo.
        drop(session.undo_compaction().await);
    }
    received
}

/// Checks that each message of a relative was accepted once and taken once, or removed with the run of its receiver; and
/// that each message that was reported as delivered was accepted. Returns the number of taken messages.
fn delivered(sessions: &[(SessionId, Vec<Record>)]) -> Result<usize, String> {
    let mut accepted: BTreeMap<InputId, (From, String)> = BTreeMap::new();
    let (mut left, mut reported) = (BTreeMap::new(), BTreeSet::new());
    for (session, records) in sessions {
        for record in records {
            match record {
                Record::InputAccepted(input) if input.is_from_relative() => {
                    let before = accepted.insert(input.id, (input.from.clone(), input.text.to_string()));
                    if before.is_some() {
                        return Err(format!("{} was accepted twice", input.text));
                    }
                }
                Record::InputsTaken { ids, .. } => ids.iter().for_each(|id| *left.entry(*id).or_insert(0) += 1),
                Record::QueueChanged { change: QueueChange::Removed(ids), .. } => {
                    ids.iter().for_each(|id| *left.entry(*id).or_insert(0) += 1);
                }
                Record::CallFinished(done) if done.end == CallEnd::Ok && done.content.contains("Delivered to ") => {
                    reported.insert((*session, done.call));
                }
                _ => {}
            }
        }
    }
    let texts: BTreeSet<&String> = accepted.values().map(|(_, text)| text).collect();
    if texts.len() < accepted.len() {
        return Err(format!("a message was accepted twice: {accepted:?}"));
    }
    if let Some((_, (_, text))) = accepted.iter().find(|(id, _)| left.get(*id) != Some(&1)) {
        return Err(format!("{text} was not taken or removed once"));
    }
    let sent = accepted.values().filter_map(|(from, _)| match from {
        From::Model { session, call, .. } => Some((*session, *call)),
        From::Person | From::Host | From::AgentResult => None,
    });
    let sent: BTreeSet<_> = sent.collect();
    match reported.difference(&sent).next() {
        Some(call) => Err(format!("{call:?} was reported as delivered, and was not accepted")),
        None => Ok(accepted.len()),
    }
}

async fn all_records(journal: &Journal) -> Vec<(SessionId, Vec<Record>)> {
    let mut all = Vec::new();
    for (id, _) in journal.heads().expect("heads") {
        all.push((id, records(journal, id).await));
    }
    all
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
async fn dies(memory: &Memory, scenario: Scenario, world: &CrashWorld, at: CrashSide, n: u64) -> (Replies, u64) {
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    at.order(&faults, n);
    let journal = on(Box::new(faulty));
    let mut received = Replies::default();
    if let Ok(runtime) = host(&journal, 7, world).start().await {
        received = run_scenario(scenario, &runtime).await;
        runtime.shutdown(Duration::from_secs(1)).await;
    }
    (received, faults.writes())
}

/// Starts a host that only recovers, and dies at the `n`-th write of the recovery. Returns the number of writes.
async fn dies_in_recovery(memory: &Memory, world: &CrashWorld, at: CrashSide, n: u64) -> u64 {
    let (faulty, faults) = Faulty::new(Box::new(memory.clone()));
    at.order(&faults, n);
    let journal = on(Box::new(faulty));
    if let Ok(runtime) = host(&journal, 8, world).start().await {
        seconds(600).await;
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
    world: &CrashWorld,
    received: &Replies,
    begun: &[(SessionId, usize)],
    what: &str,
) -> Vec<Outcome> {
    let journal = on(Box::new(memory.clone()));
    let runtime = host(&journal, 9, world).start().await.expect("the runtime starts again");
    seconds(7_200).await;
    let at_rest = (journal.outbox().expect("outbox"), journal.inflight().expect("inflight"));
    assert_eq!(at_rest, (Vec::new(), Vec::new()), "{what}");
    let report = journal.verify(&mut |_| ()).expect("readable");
    assert_eq!(report.problems, Vec::new(), "{what}");
    delivered(&all_records(&journal).await).unwrap_or_else(|error| panic!("{what}: {error}"));
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
    Recovery { crash: crash.into(), interrupted: cut, ends: begun.iter().map(run).zip(ends.iter().cloned()).collect() }
}

/// Tests every write of these scenarios and of their recovery, before and after it (J-1, J-7, N-1, S-1).
async fn kill_at_each_write(world: CrashWorld, scenarios: &[Scenario]) {
    let world = &world;
    let mut points = 0_u32;
    for scenario in scenarios.iter().copied() {
        for at in CrashSide::ALL {
            for n in 1.. {
                let memory = Memory::new();
                let (received, writes) = dies(&memory, scenario, world, at, n).await;
                let (left, begun) = (memory.copy(), begun(&memory));
                let crash = format!("{scenario:?}, {at:?} write {n}");
                let once = recovered(&memory, world, &received, &begun, &crash).await;
                let mut observed =
                    Observed { recoveries: vec![recovery(&crash, 0, &begun, &once)], ..Observed::default() };
                for (second, m) in (1..).flat_map(|m| CrashSide::ALL.map(|second| (second, m))) {
                    let memory = left.copy();
                    let what = format!("{crash}, then {second:?} write {m} of the recovery");
                    let writes = dies_in_recovery(&memory, world, second, m).await;
                    points += 1;
                    let twice = recovered(&memory, world, &received, &begun, &what).await;
                    // A resumed run may end differently, because it ran longer. Parked runs always resume.
                    if world.on_restart == OnRestart::Fail && scenario != Scenario::Limited {
                        observed.recoveries.push(recovery(&crash, 1, &begun, &twice));
                    }
                    if writes < m {
                        break;
                    }
                }
                let nothing = BTreeSet::new();
                let seen = invariant::World::new([], &nothing, None, false).with_observations(&observed);
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
    kill_at_each_write(CrashWorld::default(), &Scenario::COMMON).await;
}

#[tokio::test(start_paused = true)]
async fn resumed_runs_end_after_a_crash_at_any_write() {
    kill_at_each_write(CrashWorld { on_restart: OnRestart::Resume, ..CrashWorld::default() }, &Scenario::COMMON).await;
}

/// Each step of a compaction: the discarded attempt, the service and its run, the summary, and the undo.
#[tokio::test(start_paused = true)]
async fn g14_compaction_killed_at_any_write_keeps_what_is_owed() {
    for on_restart in [OnRestart::Fail, OnRestart::Resume] {
        kill_at_each_write(CrashWorld { on_restart, ..CrashWorld::default() }, &[Scenario::Compacted]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn x16_messages_are_delivered_once_over_crashes() {
    for on_restart in [OnRestart::Fail, OnRestart::Resume] {
        kill_at_each_write(CrashWorld { on_restart, ..CrashWorld::default() }, &[Scenario::Messages]).await;
    }
}

/// Returns the records of `scenario` without a crash.
async fn records_without_crash(scenario: Scenario) -> Vec<(SessionId, Vec<Record>)> {
    let memory = Memory::new();
    dies(&memory, scenario, &CrashWorld::default(), CrashSide::Before, u64::MAX).await;
    all_records(&on(Box::new(memory))).await
}

/// The control: each kind of a lost or repeated message is found.
#[tokio::test(start_paused = true)]
async fn x16_lost_or_repeated_message_is_noticed() {
    let good = records_without_crash(Scenario::Messages).await;
    assert_eq!(delivered(&good), Ok(2));
    let each = |edit: &dyn Fn(&mut Vec<Record>)| {
        let mut bad = good.clone();
        bad.iter_mut().for_each(|(_, records)| edit(records));
        delivered(&bad).is_err()
    };
    let is_message = |record: &Record| matches!(record, Record::InputAccepted(input) if input.is_from_relative());
    let is_taken = |record: &Record| matches!(record, Record::InputsTaken { .. });
    let repeated = |of: &dyn Fn(&Record) -> bool| {
        each(&|records| {
            let copies: Vec<Record> = records.iter().filter(|record| of(record)).cloned().collect();
            records.extend(copies);
        })
    };
    let lost = |of: &dyn Fn(&Record) -> bool| each(&|records| records.retain(|record| !of(record)));
    assert!(repeated(&is_message), "accepted twice");
    assert!(repeated(&is_taken), "taken twice");
    assert!(lost(&is_message), "reported as delivered, and not accepted");
    assert!(lost(&is_taken), "never taken");
}

/// The scenario compacts after an overflow and on request, while a task is live.
#[tokio::test(start_paused = true)]
async fn g14_swept_scenario_compacts_and_undoes() {
    let records = records_without_crash(Scenario::Compacted).await;
    let all = || records.iter().flat_map(|(_, records)| records);
    let causes = all().filter_map(|record| match record {
        Record::Compacted(compacted) => Some((compacted.cause, compacted.verbatim.is_empty())),
        _ => None,
    });
    let causes: Vec<_> = causes.collect();
    assert_eq!(causes, [(CompactionCause::Overflow, false), (CompactionCause::Asked, true)]);
    assert_eq!(all().filter(|record| matches!(record, Record::CompactionUndone { .. })).count(), 1);
}

/// The control: the test fails if a compaction hides an input that its run has not answered.
#[cfg(feature = "sabotage")]
#[tokio::test(start_paused = true)]
async fn g14_sweep_detects_a_hidden_input() {
    use subtend_invariants::bugs::{Bug, Rules};

    let faults = subtend_actors::faults::Faults::default().rules(Rules::without(Bug::OwedCompacted));
    let world = CrashWorld { faults, ..CrashWorld::default() };
    let result = tokio::spawn(async move { kill_at_each_write(world, &[Scenario::Compacted]).await }).await;
    let panic = result.expect_err("the bug is not detected").into_panic();
    let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.contains("which the model has not answered"), "{message}");
}

/// The control: without outbox rows the owner is never notified, and the test fails.
#[cfg(feature = "sabotage")]
#[tokio::test(start_paused = true)]
async fn sweep_detects_a_missing_outbox() {
    use subtend_invariants::bugs::{Bug, Rules};

    let faults = subtend_actors::faults::Faults::default().rules(Rules::without(Bug::NoOutbox));
    let result = tokio::spawn(async move {
        kill_at_each_write(CrashWorld { faults, ..CrashWorld::default() }, &Scenario::COMMON).await;
    });
    let result = result.await;
    assert!(result.is_err_and(|error| error.is_panic()));
}
