//! Processes that are killed while runs are parked at a provider's limit (X13).

#![allow(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot continue fails, and most records are not of interest"
)]

use crate::killed::*;
use subtend_session::limits::Limits;
use subtend_session::record::Park;

/// Variable with the directory of [`killed_process`], the moment at which it dies, and its restart policy.
const KILLED: &str = "SUBTEND_TEST_PARKED";
/// Number of parked runs: three tasks, whose parent waits for them, and another root.
const PARKED_RUNS: usize = 4;
const TURN_MS: u64 = 200;
/// Maximum wait for the kill, and for the end of all runs.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "a provider's reset is a time of the system")]
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("a time after 1970").as_millis()).expect("a time before the year 500,000,000")
}

/// Plays a provider whose limit resets at the time in the file `reset`. Only the parent's first call is not limited.
async fn provider(dir: Arc<Path>, request: Request) -> Result<Answer, ModelError> {
    let is_parent = |message: &Message| matches!(message, Message::User { text, .. } if &**text == "parent");
    let is_answer = |message: &Message| matches!(message, Message::Assistant { .. });
    let is_first = request.messages.iter().any(is_parent) && !request.messages.iter().any(is_answer);
    if is_first {
        let task = |prompt: &str, background: bool| ToolCall {
            provider_id: "c".into(),
            tool: "task".into(),
            args: json!({"subagent_type": "worker", "prompt": prompt, "background": background}).to_string().into(),
        };
        return Ok(Answer::of_calls(None, vec![task("one", false), task("two", false), task("three", true)]));
    }
    let left = reset(&dir).saturating_sub(now_ms());
    if left > 0 {
        let refused = ModelError::new(ModelFail::Rate, "the weekly limit is reached");
        return Err(ModelError { retry_after_ms: Some(left.max(TURN_MS)), ..refused });
    }
    note(&dir, &format!("begin {}", request.session));
    tokio::time::sleep(Duration::from_millis(30)).await;
    note(&dir, &format!("end {}", request.session));
    Ok(Answer::of_text("done"))
}

fn reset(dir: &Path) -> u64 {
    fs::read_to_string(dir.join("reset")).expect("a reset").parse().expect("a time")
}

fn host(dir: &Path, policy: OnRestart) -> (Journal, Builder) {
    let journal = store(dir);
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: Some(policy), ..worker });
    let dir: Arc<Path> = dir.into();
    let model = fn_model("limited", move |request, _| provider(Arc::clone(&dir), request)).with_quotas(["limited"]);
    let builder = Runtime::builder()
        .journal(journal.clone())
        .catalog(catalog)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .limits(Limits { turn_ms: TURN_MS, ..Limits::default() })
        .model(Arc::new(model));
    (journal, builder)
}

/// Not a test: starts the runs in a new store or resumes them. Kills this process when all runs are parked, after the
/// recovery, or at a record counted from the first resumption.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process() {
    let Ok(text) = std::env::var(KILLED) else { return };
    let [moment, policy, dir] = &*text.splitn(3, ' ').collect::<Vec<_>>() else { panic!("{text}") };
    let policy = if *policy == "resume" { OnRestart::Resume } else { OnRestart::Fail };
    let is_new = !Path::new(dir).join("store").exists();
    let (journal, builder) = host(Path::new(dir), policy);
    let runtime = builder.start().await.expect("a runtime");
    if *moment == "recovered" {
        die();
    }
    let mut events = runtime.subscribe(None);
    if is_new {
        for prompt in ["parent", "alone"] {
            runtime.open(OpenOptions::agent("worker")).expect("a session").send(prompt).await.expect("accepted");
        }
    }
    let waits = async {
        let (mut resumed, last) = (0, moment.parse::<u32>().ok());
        loop {
            if *moment == "parked" {
                let rows = journal.inflight().expect("readable");
                if rows.iter().filter(|(_, row)| row.limited_until.is_some()).count() == PARKED_RUNS {
                    die();
                }
            }
            let Some(Next::Event(event)) = events.next().await else { continue };
            let EventKind::Record { record, .. } = event.what else { continue };
            resumed += u32::from(resumed > 0 || is_resumption(&record));
            if Some(resumed) == last {
                die();
            }
        }
    };
    // The test then retries with a later reset.
    let _ = tokio::time::timeout(MAX_WAIT / 6, waits).await;
}

/// Returns whether a parked run resumes, or requests the slot that it needs to resume.
fn is_resumption(record: &Record) -> bool {
    matches!(record, Record::RunResumed { why: Park::Limit { .. }, .. } | Record::RunParked { why: Park::Slot, .. })
}

/// Runs [`killed_process`]; returns whether it was killed.
fn kill_at(moment: &str, policy: OnRestart, dir: &Path) -> bool {
    let policy = if policy == OnRestart::Resume { "resume" } else { "fail" };
    is_killed("parked::killed_process", KILLED, &format!("{moment} {policy} {}", dir.display()))
}

/// Kills a process at each of these moments in a new store, before the reset; on a slow machine with a later reset.
fn killed_at(moments: &[&str], policy: OnRestart) -> tempfile::TempDir {
    for reset_s in [2, 8, 32] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("reset"), (now_ms() + reset_s * 1_000).to_string()).expect("written");
        let killed = moments.iter().all(|moment| kill_at(moment, policy, dir.path()));
        if killed && now_ms() + TURN_MS < reset(dir.path()) {
            return dir;
        }
    }
    panic!("this machine is too slow for {moments:?}");
}

/// The contents of the store when no run is in flight, or after `patience`.
struct Outcomes {
    resumed: usize,
    sessions: Vec<(SessionId, Vec<Record>)>,
    /// The model calls of the last process, in order.
    calls: Vec<String>,
}

/// Starts a runtime in this process, and waits for the ends of both roots.
async fn finished(dir: &Path, policy: OnRestart, faults: Faults, patience: Duration) -> Outcomes {
    drop(take_notes(dir));
    let (journal, builder) = host(dir, policy);
    let runtime = builder.faults(faults).start().await.expect("the runtime starts again");
    let resumed = runtime.boot().resumed;
    let ids: Vec<SessionId> = journal.heads().expect("heads").into_iter().map(|(id, _)| id).collect();
    let ends = async {
        for id in &ids {
            let session = runtime.session(*id).expect("readable").expect("a session");
            session.run_ended(RunNo(1)).await.expect("the runtime runs");
        }
    };
    if tokio::time::timeout(patience, ends).await.is_ok() {
        journal.settled().await.expect("the journal is open");
        subtend_journal::audit(&journal, true).expect("every invariant holds");
    }
    let records = |id| journal.records(id).expect("records").into_iter().map(|stored| stored.record).collect();
    let sessions = ids.into_iter().map(|id| (id, records(id))).collect();
    runtime.shutdown(Duration::from_secs(1)).await;
    Outcomes { resumed, sessions, calls: take_notes(dir) }
}

/// Checks that each parked run parked once, resumed once and completed.
fn judge(sessions: &[(SessionId, Vec<Record>)]) -> Result<(), String> {
    let mut parked_runs = 0;
    for (session, records) in sessions {
        let (mut parks, mut resumptions, mut is_parked) = (0, 0, false);
        for record in records {
            if matches!(record, Record::RunParked { why: Park::Limit { .. }, .. }) {
                parks += 1;
                is_parked = true;
            } else if is_resumption(record) {
                resumptions += usize::from(is_parked || matches!(record, Record::RunResumed { .. }));
                is_parked = false;
            }
        }
        if (parks, resumptions) != (0, 0) {
            parked_runs += 1;
        }
        if parks != resumptions || parks > 1 {
            return Err(format!("{session} parked {parks} times and resumed {resumptions} times"));
        }
        let ends: Vec<&Outcome> = records
            .iter()
            .filter_map(|record| match record {
                Record::RunEnded(ended) => Some(&ended.outcome),
                _ => None,
            })
            .collect();
        if ends != [&Outcome::Completed] {
            return Err(format!("the run of {session} ended with {ends:?}"));
        }
    }
    if parked_runs == PARKED_RUNS { Ok(()) } else { Err(format!("{parked_runs} runs were parked")) }
}

/// Checks that only one model call probed the limit: the first call ended before the second began.
fn check_single_probe(calls: &[String]) -> Result<(), String> {
    let kinds: Vec<&str> = calls.iter().filter_map(|line| line.split(' ').next()).collect();
    let begun = kinds.iter().filter(|kind| **kind == "begin").count();
    // The parked runs, and the parent, which continues when its tasks have ended.
    if kinds.starts_with(&["begin", "end"]) && begun > PARKED_RUNS {
        return Ok(());
    }
    Err(format!("{calls:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x13_runs_killed_while_parked_resume_once() {
    let dir = killed_at(&["parked", "recovered", "parked"], OnRestart::Fail);
    let outcomes = finished(dir.path(), OnRestart::Fail, Faults::default(), MAX_WAIT).await;
    assert_eq!(outcomes.resumed, PARKED_RUNS + 1, "the parent waits for its tasks");
    judge(&outcomes.sessions).unwrap_or_else(|error| panic!("{error}"));
    check_single_probe(&outcomes.calls).unwrap_or_else(|error| panic!("the runs did not wait for a probe: {error}"));
    // The controls.
    let mut twice = outcomes.sessions.clone();
    twice.iter_mut().for_each(|(_, records)| {
        let copies: Vec<Record> = records.iter().filter(|record| is_resumption(record)).cloned().collect();
        records.extend(copies);
    });
    assert!(judge(&twice).is_err(), "a second resumption");
    let mut calls = outcomes.calls;
    calls.swap(1, 2);
    assert!(check_single_probe(&calls).is_err(), "a call during the probe");
}

/// Kills during the probe, and while the other runs resume.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn x13_kill_during_the_resumption_resumes_nothing_twice() {
    let mut kills = tokio::task::JoinSet::new();
    for moment in ["1", "3", "6", "12"] {
        kills.spawn(async move {
            let dir = tokio::task::spawn_blocking(|| killed_at(&["parked"], OnRestart::Resume)).await.expect("killed");
            let path = dir.path().to_owned();
            let killed = tokio::task::spawn_blocking(move || kill_at(moment, OnRestart::Resume, &path)).await;
            assert!(killed.expect("it ends"), "record {moment} was not reached");
            let outcomes = finished(dir.path(), OnRestart::Resume, Faults::default(), MAX_WAIT).await;
            judge(&outcomes.sessions).unwrap_or_else(|error| panic!("killed at record {moment}: {error}"));
        });
    }
    while let Some(kill) = kills.join_next().await {
        kill.expect("each kill leaves a tree that resumes once");
    }
}

/// The control: with a runtime that forgets the reset after a restart, the runs remain parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x13_reset_forgotten_after_a_kill_is_noticed() {
    let dir = killed_at(&["parked"], OnRestart::Fail);
    let patience = Duration::from_millis(reset(dir.path()).saturating_sub(now_ms()) + 1_000);
    let outcomes = finished(dir.path(), OnRestart::Fail, Faults::named("no-reset"), patience).await;
    let noticed = judge(&outcomes.sessions).expect_err("the bug is not noticed: a parked run does not resume");
    assert!(noticed.ends_with("parked 1 times and resumed 0 times") || noticed.ends_with("ended with []"), "{noticed}");
}
