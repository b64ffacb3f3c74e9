//! Sessions whose environment cannot be loaded, since its directory is gone: they take nothing from the host's own.

use crate::support::*;
use subtend_actors::{Approver, Environment, EnvironmentKey};

const HOUR: Duration = Duration::from_secs(3_600);

/// Returns a model of the host, or of a directory: those refuse their first call for an hour.
fn model_of(quota: &'static str) -> Arc<dyn Model> {
    let answer = move |request: Request, _| async move {
        if prompt(&request) == "delegate" {
            return Ok(calls([task("one", false)]));
        }
        let refused = ModelError { retry_after_ms: Some(3_600_000), ..ModelError::new(ModelFail::Rate, "refused") };
        if quota == "elsewhere" && request.attempt.0 == 1 { Err(refused) } else { Ok(text(quota)) }
    };
    Arc::new(fn_model("a", answer).with_quotas([quota]))
}

/// Returns a host whose own agents are `worker` and `own`, and that finds those of existing directories.
async fn host(memory: &Memory, seed: u64) -> (Runtime, Approver) {
    let load = |key: &EnvironmentKey| {
        let workspace = Workspace::open(&*key.workspace).map_err(|error| error.to_string())?;
        let mut catalog = Catalog::builtin();
        catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
        let asks = Rule { action: "task:*".into(), resource: "*".into(), verdict: Verdict::Ask };
        let policy = RuleSet { default: Verdict::Allow, rules: vec![asks] };
        Ok(Environment::default().workspace(workspace).catalog(catalog).policy(policy).model(model_of("elsewhere")))
    };
    let mut own = Catalog::builtin();
    for name in ["worker", "own"] {
        own.insert(Manifest::new(name, AgentMode::All, "You are of the host."));
    }
    let options = Options { seed: Some(seed), ..Options::default() };
    let builder = builder(&reopen(memory)).options(options).catalog(own).model(model_of("host"));
    builder.environments(load).start_attended().await.expect("a runtime")
}

/// Returns a session in `dir` whose run waits: for the reset of its model, or for the approval of a child.
async fn waiting(runtime: &Runtime, dir: &Path, text: &str) -> SessionHandle {
    let (workspace, on_restart) = (Some(dir.to_string_lossy().into()), Some(OnRestart::Resume));
    let options = OpenOptions { workspace, on_restart, ..OpenOptions::agent("worker") };
    let session = runtime.open(options).expect("a session");
    session.send(text).await.expect("accepted");
    seconds(5).await;
    assert_eq!(session.tree().await.expect("a tree").phase, Phase::WaitingMidTurn);
    session
}

async fn found(runtime: &Runtime, id: SessionId) -> SessionHandle {
    runtime.session(id).expect("readable").expect("the session exists")
}

/// A model of a directory refuses calls, the directory is removed, and the host restarts. The controls: the directory
/// stays, or exists again before the reset.
#[tokio::test(start_paused = true)]
async fn park_without_its_environment_pauses_no_other_model() {
    for [removed, exists_again] in [[true, false], [true, true], [false, false]] {
        let (memory, dir) = (Memory::new(), tempfile::tempdir().expect("a directory"));
        let runtime = host(&memory, 1).await.0;
        let id = waiting(&runtime, dir.path(), "go").await.id();
        runtime.shutdown(Duration::ZERO).await;
        if removed {
            std::fs::remove_dir(dir.path()).expect("removed");
        }
        let runtime = host(&memory, 2).await.0;
        let begun = Instant::now();
        let session = found(&runtime, id).await;
        assert_eq!(session.tree().await.expect("a tree").phase, Phase::WaitingMidTurn);
        let other = open(&runtime);
        other.send("go").await.expect("accepted");
        let ended = tokio::time::timeout(10 * HOUR, other.run_ended(RunNo(1))).await.expect("it ends").expect("ended");
        assert_eq!((ended.outcome, begun.elapsed()), (Outcome::Completed, Duration::ZERO), "{removed} {exists_again}");
        if exists_again {
            std::fs::create_dir(dir.path()).expect("created");
        }
        let ended = tokio::time::timeout(10 * HOUR, session.run_ended(RunNo(1))).await.expect("it ends");
        let ended = ended.expect("the runtime is running");
        assert!((3_595..=3_605).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        match removed && !exists_again {
            true => assert!(
                matches!(ended.outcome, Outcome::Failed { kind: FailKind::Workspace { .. } }),
                "{:?}",
                ended.outcome
            ),
            false => assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("elsewhere"))),
        }
        shut(runtime).await;
    }
}

/// The control: without its directory a session is read, cancelled and deleted.
#[tokio::test(start_paused = true)]
async fn session_without_its_environment_has_no_agents_of_the_host() {
    let (memory, dir) = (Memory::new(), tempfile::tempdir().expect("a directory"));
    let runtime = host(&memory, 1).await.0;
    let id = waiting(&runtime, dir.path(), "go").await.id();
    runtime.shutdown(Duration::ZERO).await;
    drop(dir);
    let runtime = host(&memory, 2).await.0;
    let session = found(&runtime, id).await;
    let Err(SendError::BadInput(why)) = session.send("again").await.map(drop) else { panic!("accepted") };
    for agent in ["own", "unknown"] {
        let refused = session.input("again").agent(agent).send().await.map(drop);
        assert!(matches!(&refused, Err(SendError::BadInput(text)) if *text == why), "{refused:?}");
    }
    let summary = session.summarise().await.expect_err("refused").to_string();
    assert!(summary.contains(&why), "{summary}");
    assert_eq!(runtime.journal().children(id).expect("readable"), [], "a session was stored for the summary");
    assert!(session.usage().await.is_ok());
    session.cancel().await.expect("cancelled");
    let ended = session.run_ended(RunNo(1)).await.expect("ended");
    assert!(matches!(ended.outcome, Outcome::Cancelled { .. }), "{:?}", ended.outcome);
    session.delete(false).await.expect("deleted");
    shut(runtime).await;
}

/// The approval of a child arrives after the restart. The control: the directory stays.
#[tokio::test(start_paused = true)]
async fn call_without_its_environment_starts_no_agent_of_the_host() {
    for (stays, started) in [(false, 0), (true, 1)] {
        let (memory, dir) = (Memory::new(), tempfile::tempdir().expect("a directory"));
        let (runtime, approver) = host(&memory, 1).await;
        let id = waiting(&runtime, dir.path(), "delegate").await.id();
        runtime.shutdown(Duration::ZERO).await;
        drop(approver);
        if !stays {
            std::fs::remove_dir(dir.path()).expect("removed");
        }
        let (runtime, approver) = host(&memory, 2).await;
        let session = found(&runtime, id).await;
        seconds(5).await;
        for approval in asked(&runtime).await {
            approver.answer(&approval, AskVerdict::Allow).await.expect("answered");
        }
        seconds(5).await;
        assert_eq!(runtime.journal().children(id).expect("readable").len(), started, "{stays}");
        session.delete(true).await.expect("deleted");
        drop(approver);
        shut(runtime).await;
    }
}
