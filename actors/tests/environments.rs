//! Environments: each session works in the workspace that its tree was opened in (H5).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{answers, builder, calls, journal, model, open, prompt, results, shut, task, text, tool, tools};
use subtend_actors::builder::Builder;
use subtend_actors::{
    ControlError, Environment, EnvironmentKey, OpenOptions, OpenSessionError, Options, Runtime, SendError,
    SessionHandle,
};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::Journal;
use subtend_journal::memory::Memory;
use subtend_models::model::{Answer, ModelError, Request};
use subtend_session::authority::{Authority, Rule, RuleSet, Verdict};
use subtend_session::call::ToolEffect;
use subtend_session::outcome::Outcome;
use subtend_session::place::OnRestart;
use subtend_tools::registry::Registry;
use subtend_tools::tool::ToolOutput;
use subtend_tools::workspace::Workspace;

type Loads = Arc<Mutex<Vec<EnvironmentKey>>>;

/// A tool that says which directory it works in.
fn where_am_i() -> Registry {
    let at = tool("where", ToolEffect::ReadOnly, |call| async move {
        Ok(ToolOutput::text(call.workspace.path().display().to_string()))
    });
    tools([at])
}

/// Calls `where`, through a child where the prompt says so, and answers with what it said.
async fn asks_where(request: Request) -> Result<Answer, ModelError> {
    match (&*prompt(&request), answers(&request)) {
        ("by a child", 0) => Ok(calls([task("directly", false)])),
        ("slowly", 0) => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(text("too late"))
        }
        (_, 0) => Ok(calls([("where", serde_json::json!({}))])),
        (_, _) => Ok(text(&results(&request).join(" "))),
    }
}

/// The environment of a directory that exists: `worker` may do everything there, and calls `where`.
fn environment(key: &EnvironmentKey) -> Result<Environment, String> {
    let workspace = Workspace::open(&*key.workspace).map_err(|error| error.to_string())?;
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    Ok(Environment::default()
        .workspace(workspace)
        .catalog(catalog)
        .tools(where_am_i())
        .model(model(asks_where))
        .policy(RuleSet::only(Verdict::Allow)))
}

/// A runtime at home in the current directory that loads others.
fn hosting(journal: &Journal, loads: &Loads) -> Builder {
    let loads = Arc::clone(loads);
    builder(journal).tools(where_am_i()).model(model(asks_where)).environments(move |key| {
        loads.lock().unwrap().push(key.clone());
        environment(key)
    })
}

fn opened(runtime: &Runtime, workspace: &Path) -> SessionHandle {
    let workspace = Some(workspace.to_string_lossy().into());
    runtime.open(OpenOptions { workspace, ..OpenOptions::agent("worker") }).expect("a session")
}

async fn answer(session: &SessionHandle, words: &str) -> String {
    let receipt = session.send(words).await.expect("accepted");
    receipt.answer().await.expect("an answer").text.to_string()
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[tokio::test(start_paused = true)]
async fn h5_sessions_and_children_work_in_their_own_workspace() {
    let (journal, loads) = (journal(), Loads::default());
    let runtime = hosting(&journal, &loads).start().await.expect("a runtime");
    let (one, other) = (directory(), directory());
    let homes = [one.path(), other.path()].map(|dir| dir.canonicalize().expect("a path").display().to_string());
    let (first, second) = (opened(&runtime, one.path()), opened(&runtime, other.path()));
    let at_home = open(&runtime);
    let said = [
        answer(&first, "directly").await,
        answer(&second, "by a child").await,
        answer(&first, "by a child").await,
        answer(&at_home, "by a child").await,
    ];
    let home = std::env::current_dir().expect("a directory").canonicalize().expect("a path").display().to_string();
    assert_eq!(said, [homes[0].clone(), homes[1].clone(), homes[0].clone(), home]);
    assert_eq!(loads.lock().unwrap().len(), 2, "each environment is loaded once, and home never");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn h5_a_restart_finds_each_environment_again() {
    let (memory, loads, dir) = (Memory::new(), Loads::default(), directory());
    let reopen = || Journal::open(Box::new(memory.clone()), subtend_journal::Options::default()).expect("a journal");
    let runtime = hosting(&reopen(), &loads).start().await.expect("a runtime");
    let session = opened(&runtime, dir.path());
    let before = answer(&session, "directly").await;
    let id = session.id();
    drop(session);
    runtime.shutdown(Duration::from_secs(1)).await;
    let runtime = hosting(&reopen(), &loads).start().await.expect("another runtime");
    let session = runtime.session(id).expect("readable").expect("a session");
    assert_eq!(answer(&session, "by a child").await, before);
    let keys: Vec<_> = loads.lock().unwrap().iter().map(|key| (key.workspace.clone(), key.model.clone())).collect();
    let name: subtend_session::ids::Text = dir.path().to_string_lossy().into();
    assert_eq!(keys, [(name.clone(), None), (name, Some("test".into()))]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn h5_missing_workspace_refuses_inputs_and_ends_runs() {
    let (memory, loads, dir) = (Memory::new(), Loads::default(), directory());
    let reopen = || Journal::open(Box::new(memory.clone()), subtend_journal::Options::default()).expect("a journal");
    let runtime = hosting(&reopen(), &loads).start().await.expect("a runtime");
    let workspace = Some(dir.path().to_string_lossy().into());
    let options = OpenOptions { workspace, on_restart: Some(OnRestart::Resume), ..OpenOptions::agent("worker") };
    let session = runtime.open(options).expect("a session");
    let receipt = session.send("slowly").await.expect("accepted");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (id, run) = (session.id(), receipt.run);
    drop((session, receipt));
    runtime.shutdown(Duration::ZERO).await;
    drop(dir);
    let runtime = hosting(&reopen(), &loads).start().await.expect("another runtime");
    let session = runtime.session(id).expect("readable").expect("a session");
    let ended = session.run_ended(run).await.expect("it ends");
    let Outcome::Failed { .. } = &ended.outcome else { panic!("{:?}", ended.outcome) };
    let refused = session.send("directly").await.map(drop);
    let Err(SendError::BadInput(why)) = &refused else { panic!("{refused:?}") };
    let branch = session.regenerate(None).await.map(drop);
    assert!(matches!(&branch, Err(ControlError::Refused(text)) if text == why), "{branch:?}");
    // Control: at home nothing is refused.
    assert!(!answer(&open(&runtime), "directly").await.is_empty());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn policy_of_a_session_stays_within_the_bounds() {
    let journal = journal();
    let rule = |verdict| Rule { action: "fs.write".into(), resource: "*".into(), verdict };
    let rules = |default, rules: Vec<Rule>| RuleSet { default, rules };
    let runtime = builder(&journal)
        .model(model(asks_where))
        .bounds(rules(Verdict::Allow, vec![rule(Verdict::Deny)]))
        .start()
        .await
        .expect("a runtime");
    let ceilings: BTreeMap<&str, Verdict> = ["fs.write", "fs.read"]
        .into_iter()
        .map(|action| {
            let policy = Some(Authority::of(RuleSet::only(Verdict::Allow)));
            let session = runtime.open(OpenOptions { policy, ..OpenOptions::agent("worker") }).expect("a session");
            let births = journal.records_from(session.id(), subtend_session::ids::Seq(1), 1).expect("readable");
            let subtend_session::record::Record::SessionCreated(created) = &births[0].record else { panic!("a birth") };
            (action, created.ceiling.body.as_ref().expect("a ceiling").best(action))
        })
        .collect();
    assert_eq!(ceilings, BTreeMap::from([("fs.write", Verdict::Deny), ("fs.read", Verdict::Allow)]));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn another_workspace_is_refused_without_a_loader() {
    let journal = journal();
    let runtime = builder(&journal)
        .options(Options { seed: Some(3), ..Options::default() })
        .model(model(asks_where))
        .start()
        .await
        .expect("a runtime");
    let options = OpenOptions { workspace: Some("/elsewhere".into()), ..OpenOptions::agent("worker") };
    let refused = runtime.open(options).map(drop);
    let Err(OpenSessionError::Workspace(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, "this runtime has one workspace: leave `workspace` out");
    shut(runtime).await;
}
