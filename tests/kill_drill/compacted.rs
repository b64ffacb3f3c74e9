//! Processes that are killed while a conversation is compacted (G14).

#![allow(
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot continue fails, and most records are not of interest"
)]

use std::path::PathBuf;

use crate::killed::*;
use subtend_actors::SessionHandle;
use subtend_journal::AuditError;
use subtend_session::ids::{InputId, TurnNo};
use subtend_session::record::CompactionCause;

/// Variable with the moment at which [`killed_process`] dies, and its directory.
const KILLED: &str = "SUBTEND_TEST_COMPACTED";
const HISTORY: &str = "a conversation with a long history";
const SUMMARY: &str = "The history in short.";
const TASK: &str = "the slow task";
/// The turn whose first attempt overflows.
const OVERFLOW: TurnNo = TurnNo(3);
/// Maximum wait for the kill, and for the end of all runs.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits until another process has created the file.
async fn exists(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn ready(dir: &Path) -> PathBuf {
    dir.join(format!("ready-{}", std::process::id()))
}

/// Plays a conversation that overflows once while a task is running. The task ends when the file `released` exists.
async fn fake_model(dir: Arc<Path>, moment: Arc<str>, request: Request) -> Result<Answer, ModelError> {
    if &*request.agent == "compaction" {
        exists(&ready(&dir)).await;
        if *moment == *"called" || (*moment == *"asked-called" && dir.join("asked").exists()) {
            die();
        }
        return Ok(Answer::of_text(SUMMARY));
    }
    let is_task = |message: &Message| matches!(message, Message::User { text, .. } if **text == *TASK);
    if request.messages.iter().any(is_task) {
        exists(&dir.join("released")).await;
        return Ok(Answer::of_text("the task is done"));
    }
    let all: String = request.messages.iter().map(|message| format!("{message:?}")).collect();
    note(&dir, &format!("{} {} {}", request.turn.0, all.contains(SUMMARY), all.contains(HISTORY)));
    match request.turn {
        TurnNo(1) => Ok(Answer::of_text(HISTORY.repeat(200))),
        TurnNo(2) => {
            exists(&dir.join("accepted")).await;
            let args = json!({"subagent_type": "worker", "prompt": TASK, "background": true}).to_string().into();
            Ok(Answer::of_calls(None, vec![ToolCall { provider_id: "c".into(), tool: "task".into(), args }]))
        }
        OVERFLOW if request.attempt.0 == 1 => {
            Err(ModelError::new(ModelFail::ContextOverflow, "the prompt is too long"))
        }
        _ => Ok(Answer::of_text("done")),
    }
}

fn host(dir: &Path, moment: &str) -> (Journal, Builder) {
    let journal = store(dir);
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { on_restart: Some(OnRestart::Resume), ..worker });
    let (dir, moment): (Arc<Path>, Arc<str>) = (dir.into(), moment.into());
    let model = fn_model("short", move |request, _| fake_model(Arc::clone(&dir), Arc::clone(&moment), request));
    let builder = Runtime::builder()
        .journal(journal.clone())
        .catalog(catalog)
        .policy(RuleSet { default: Verdict::Allow, rules: Vec::new() })
        .model(Arc::new(model));
    (journal, builder)
}

/// Returns whether the process is killed at `record`.
fn is_moment(moment: &str, record: &Record) -> bool {
    match record {
        Record::TurnStarted { compacts, .. } => moment == "due" && compacts.is_some(),
        Record::RunEnded(ended) => moment == "summarised" && ended.text.as_deref() == Some(SUMMARY),
        Record::Compacted(compacted) if compacted.cause == CompactionCause::Asked => moment == "asked-recorded",
        Record::Compacted(_) => moment == "recorded",
        _ => false,
    }
}

/// Not a test: starts or resumes the conversation, and kills this process at a moment of the compaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process() {
    let Ok(text) = std::env::var(KILLED) else { return };
    let (moment, dir) = text.split_once(' ').expect("an instruction");
    let (dir, is_new) = (Path::new(dir), !Path::new(dir).join("store").exists());
    let (journal, builder) = host(dir, moment);
    let runtime = builder.start().await.expect("a runtime");
    let mut events = runtime.subscribe(None);
    std::fs::write(ready(dir), "").expect("written");
    let work = async {
        let session = match is_new {
            true => conversation(&runtime, dir).await,
            false => root(&runtime, &journal),
        };
        if moment.starts_with("asked") {
            std::fs::write(dir.join("released"), "").expect("written");
            session.run_ended(RunNo(2)).await.expect("the runtime runs");
            std::fs::write(dir.join("asked"), "").expect("written");
            drop(session.compact().await);
        }
        std::future::pending::<()>().await;
    };
    let dies = async {
        loop {
            let Some(Next::Event(event)) = events.next().await else { continue };
            if matches!(&event.what, EventKind::Record { record, .. } if is_moment(moment, record)) {
                die();
            }
        }
    };
    let _ = tokio::time::timeout(MAX_WAIT, async { tokio::join!(work, dies) }).await;
}

/// Opens the session, and sends a long input and one that is queued behind it. Writes acknowledged inputs to a file.
async fn conversation(runtime: &Runtime, dir: &Path) -> SessionHandle {
    let session = runtime.open(OpenOptions::agent("worker")).expect("a session");
    let first = session.send(HISTORY).await.expect("accepted");
    session.run_ended(first.run).await.expect("the runtime runs");
    let mut accepted = vec![first.input];
    for text in ["start the task, ".repeat(300), "and then".to_owned()] {
        accepted.push(session.send(text).await.expect("accepted").input);
    }
    let (new, path) = (dir.join("new"), dir.join("accepted"));
    std::fs::write(&new, json!(accepted).to_string()).and_then(|()| std::fs::rename(new, path)).expect("written");
    session
}

fn root(runtime: &Runtime, journal: &Journal) -> SessionHandle {
    let heads = journal.heads().expect("heads");
    let (id, _) = heads.into_iter().find(|(_, head)| head.parent.is_none()).expect("a root");
    runtime.session(id).expect("readable").expect("a session")
}

/// The contents of the store when no run is in flight.
struct CompactedConversation {
    root: SessionId,
    accepted: Vec<InputId>,
    sessions: Vec<(SessionId, Vec<Record>)>,
    /// The model calls of the last process: turn, whether the request has the summary, and whether it has the history.
    calls: Vec<String>,
    audit: Result<(), AuditError>,
}

/// Starts a runtime in this process, releases the task, and waits for the end of all runs.
async fn finished(dir: &Path, faults: Faults) -> CompactedConversation {
    let (journal, builder) = host(dir, "none");
    std::fs::write(ready(dir), "").expect("written");
    let runtime = builder.faults(faults).start().await.expect("the runtime starts again");
    let session = root(&runtime, &journal);
    std::fs::write(dir.join("released"), "").expect("written");
    let ends = async {
        session.run_ended(RunNo(2)).await.expect("the runtime runs");
        while !journal.inflight().expect("readable").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, ends).await.expect("all runs end");
    journal.settled().await.expect("the journal is open");
    let audit = subtend_journal::audit(&journal, true);
    let records = |id| journal.records(id).expect("records").into_iter().map(|stored| stored.record).collect();
    let sessions = journal.heads().expect("heads").into_iter().map(|(id, _)| (id, records(id))).collect();
    runtime.shutdown(Duration::from_secs(1)).await;
    let accepted = std::fs::read_to_string(dir.join("accepted")).expect("inputs were accepted");
    let accepted = serde_json::from_str(&accepted).expect("a list");
    CompactedConversation { root: session.id(), accepted, sessions, calls: take_notes(dir), audit }
}

impl CompactedConversation {
    fn records(&self) -> &[Record] {
        let own = self.sessions.iter().find(|(id, _)| *id == self.root);
        own.map(|(_, records)| &**records).expect("the records of the root")
    }

    /// Checks that the compaction ended once, that each input was taken once, and that the end of the task was taken once.
    fn judge(&self, asked: usize) -> Result<(), String> {
        self.audit.as_ref().map_err(ToString::to_string)?;
        let (mut causes, mut taken, mut notices) = (Vec::new(), BTreeMap::new(), 0);
        for record in self.records() {
            match record {
                Record::Compacted(compacted) => causes.push(compacted.cause),
                Record::CompactionFailed(failed) => return Err(format!("the compaction failed: {:?}", failed.why)),
                Record::InputsTaken { ids, .. } => ids.iter().for_each(|id| *taken.entry(*id).or_insert(0) += 1),
                Record::NoticeTaken(_) => notices += 1,
                _ => {}
            }
        }
        let expected: Vec<_> =
            [CompactionCause::Overflow].into_iter().chain(vec![CompactionCause::Asked; asked]).collect();
        if causes != expected {
            return Err(format!("the compactions: {causes:?}"));
        }
        if let Some(input) = self.accepted.iter().find(|input| taken.get(*input) != Some(&1)) {
            return Err(format!("the input {input} was taken {:?} times", taken.get(input)));
        }
        if notices != 1 {
            return Err(format!("the end of the task was taken {notices} times"));
        }
        let ends = self.records().iter().filter_map(|record| match record {
            Record::RunEnded(ended) => Some(ended.outcome.clone()),
            _ => None,
        });
        let ends: Vec<Outcome> = ends.collect();
        if ends.iter().any(|end| *end != Outcome::Completed) {
            return Err(format!("the runs ended with {ends:?}"));
        }
        // The model sees the summary in place of the history from the compaction on.
        let shows_history = |call: &&String| call.starts_with(['4', '5']) && !call.ends_with(" true false");
        match self.calls.iter().find(shows_history) {
            Some(call) => Err(format!("a request shows the hidden history: {call}")),
            None => Ok(()),
        }
    }
}

/// Kills a process at each moment in turn, in a new store.
fn killed_at(moments: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    for moment in moments {
        let instruction = format!("{moment} {}", dir.path().display());
        assert!(is_killed("compacted::killed_process", KILLED, &instruction), "{moment} was not reached");
    }
    dir
}

/// Kills before, during and after the call of the compaction agent, after the record, and during the recovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g14_killed_compaction_ends_once_after_the_restart() {
    let mut kills = tokio::task::JoinSet::new();
    let moments: [&[&str]; 5] =
        [&["due"], &["called"], &["summarised"], &["recorded"], &["called", "called", "recorded"]];
    for moments in moments {
        kills.spawn(async move {
            let dir = tokio::task::spawn_blocking(|| killed_at(moments)).await.expect("killed");
            let done = finished(dir.path(), Faults::default()).await;
            done.judge(0).unwrap_or_else(|error| panic!("killed at {moments:?}: {error}"));
        });
    }
    while let Some(kill) = kills.join_next().await {
        kill.expect("each kill leaves a conversation that is compacted once");
    }
}

/// A requested compaction ends with its process: the compaction is recorded completely or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn g14_killed_request_compacts_once_or_not_at_all() {
    for (moment, compactions) in [("asked-called", 0), ("asked-recorded", 1)] {
        let dir = tokio::task::spawn_blocking(move || killed_at(&[moment])).await.expect("killed");
        let done = finished(dir.path(), Faults::default()).await;
        done.judge(compactions).unwrap_or_else(|error| panic!("killed at {moment}: {error}"));
    }
}

/// Controls of the check: a compaction that hides an unanswered input, a second one, a lost input and a lost end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g14_input_or_end_lost_after_a_kill_is_noticed() {
    let dir = tokio::task::spawn_blocking(|| killed_at(&["called"])).await.expect("killed");
    let hides = finished(dir.path(), Faults::named("no-debt")).await;
    let noticed = hides.judge(0).expect_err("the hidden input is not noticed");
    assert!(noticed.contains("which the model has not answered"), "{noticed}");

    let dir = tokio::task::spawn_blocking(|| killed_at(&["called"])).await.expect("killed");
    let mut done = finished(dir.path(), Faults::default()).await;
    assert_eq!(done.judge(0), Ok(()));
    let records = done.records().to_vec();
    let mut judged = |records: Vec<Record>| {
        done.sessions.iter_mut().filter(|(id, _)| *id == done.root).for_each(|(_, own)| *own = records.clone());
        done.judge(0)
    };
    let twice =
        |is: fn(&Record) -> bool| records.iter().cloned().chain(records.iter().filter(move |it| is(it)).cloned());
    let without = |is: fn(&Record) -> bool| records.iter().filter(|it| !is(it)).cloned().collect::<Vec<_>>();
    assert!(judged(twice(|record| matches!(record, Record::Compacted(_))).collect()).is_err(), "a second compaction");
    assert!(judged(without(|record| matches!(record, Record::InputsTaken { .. }))).is_err(), "a lost input");
    assert!(judged(without(|record| matches!(record, Record::NoticeTaken(_)))).is_err(), "a lost end");
}
