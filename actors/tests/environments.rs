//! Environments: each session works in the workspace in which its tree was opened (H5).

use crate::support::*;
use subtend_actors::{AgentChanges, Environment, EnvironmentKey};
use subtend_session::authority::Authority;

type Loads = Arc<Mutex<Vec<EnvironmentKey>>>;

/// Returns a tool that reports the directory in which it works.
fn where_am_i() -> Registry {
    let at = tool("where", ToolEffect::ReadOnly, |call| async move {
        Ok(ToolOutput::text(call.workspace.path().display().to_string()))
    });
    tools([at])
}

/// Calls `where`, through a child if the prompt says so, and answers with the result.
async fn asks_where(request: Request) -> Result<Answer, ModelError> {
    match (&*prompt(&request), answers(&request)) {
        ("by a child", 0) => Ok(calls([task("directly", false)])),
        ("slowly", 0) => {
            seconds(60).await;
            Ok(text("too late"))
        }
        (_, 0) => Ok(calls([("where", json!({}))])),
        (_, _) => Ok(text(&results(&request).join(" "))),
    }
}

/// Returns the environment of an existing directory: `worker` may do everything there, and calls `where`.
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

/// Returns a builder whose own workspace is the current directory, and that loads others.
fn hosting(journal: &Journal, loads: &Loads) -> Builder {
    let loads = Arc::clone(loads);
    builder(journal).tools(where_am_i()).model(model(asks_where)).environments(move |key| {
        loads.lock().unwrap().push(key.clone());
        environment(key)
    })
}

fn opened(runtime: &Runtime, workspace: &Path) -> SessionHandle {
    try_open(runtime, workspace).expect("a session")
}

async fn answer(session: &SessionHandle, text: &str) -> String {
    let receipt = session.send(text).await.expect("accepted");
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
    let home_root = open(&runtime);
    let answers = [
        answer(&first, "directly").await,
        answer(&second, "by a child").await,
        answer(&first, "by a child").await,
        answer(&home_root, "by a child").await,
    ];
    let home = std::env::current_dir().expect("a directory").canonicalize().expect("a path").display().to_string();
    assert_eq!(answers, [homes[0].clone(), homes[1].clone(), homes[0].clone(), home]);
    assert_eq!(loads.lock().unwrap().len(), 2, "expected one load of each environment, and none of the own one");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn h5_restart_finds_each_environment_again() {
    let (memory, loads, dir) = (Memory::new(), Loads::default(), directory());
    let runtime = hosting(&reopen(&memory), &loads).start().await.expect("a runtime");
    let session = opened(&runtime, dir.path());
    let before = answer(&session, "directly").await;
    let id = session.id();
    drop(session);
    runtime.shutdown(Duration::from_secs(1)).await;
    let runtime = hosting(&reopen(&memory), &loads).start().await.expect("another runtime");
    let session = runtime.session(id).expect("readable").expect("a session");
    assert_eq!(answer(&session, "by a child").await, before);
    let keys: Vec<_> = loads.lock().unwrap().iter().map(|key| (key.workspace.clone(), key.model.clone())).collect();
    let name: subtend_session::ids::Text = dir.path().to_string_lossy().into();
    assert_eq!(keys, [(name.clone(), None), (name, Some("test".into()))]);
    shut(runtime).await;
}

/// Regression test: the first session loads the environment; the host deadlocked there on its own lock.
#[tokio::test(start_paused = true)]
async fn restart_serves_all_sessions_of_a_workspace() {
    let (memory, loads, dir) = (Memory::new(), Loads::default(), directory());
    let runtime = hosting(&reopen(&memory), &loads).start().await.expect("a runtime");
    let mut before = Vec::new();
    for _ in 0..3 {
        let session = opened(&runtime, dir.path());
        before.push((session.id(), answer(&session, "directly").await));
    }
    runtime.shutdown(Duration::from_secs(1)).await;
    loads.lock().unwrap().clear();
    let runtime = hosting(&reopen(&memory), &loads).start().await.expect("another runtime");
    let mut after = Vec::new();
    for (id, _) in &before {
        let session = runtime.session(*id).expect("readable").expect("a session");
        after.push((*id, answer(&session, "directly").await));
    }
    assert_eq!(after, before);
    assert_eq!(loads.lock().unwrap().len(), 1, "expected one load for all sessions of the workspace");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn h5_missing_workspace_refuses_inputs_and_ends_runs() {
    let (memory, loads, dir) = (Memory::new(), Loads::default(), directory());
    let runtime = hosting(&reopen(&memory), &loads).start().await.expect("a runtime");
    let session = try_open(&runtime, dir.path()).expect("a session");
    let receipt = session.send("slowly").await.expect("accepted");
    seconds(5).await;
    let (id, run) = (session.id(), receipt.run);
    drop((session, receipt));
    runtime.shutdown(Duration::ZERO).await;
    drop(dir);
    let runtime = hosting(&reopen(&memory), &loads).start().await.expect("another runtime");
    let session = runtime.session(id).expect("readable").expect("a session");
    let ended = session.run_ended(run).await.expect("the run ends");
    let refused = session.send("directly").await.map(drop);
    let Err(SendError::BadInput(why)) = &refused else { panic!("{refused:?}") };
    assert_eq!(ended.outcome, Outcome::Failed { kind: FailKind::Workspace { message: why.as_str().into() } });
    let branch = session.regenerate(None).await.map(drop);
    assert!(matches!(&branch, Err(ControlError::Refused(text)) if text == why), "{branch:?}");
    // The control: in its own workspace nothing is refused.
    assert!(!answer(&open(&runtime), "directly").await.is_empty());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn policy_of_a_session_stays_within_the_bounds() {
    let journal = journal();
    let rule = |verdict| Rule { action: "fs.write".into(), resource: "*".into(), verdict };
    let rules = |default, rules: Vec<Rule>| RuleSet { default, rules };
    let runtime =
        started(builder(&journal).model(model(asks_where)).bounds(rules(Verdict::Allow, vec![rule(Verdict::Deny)])))
            .await;
    let ceilings: BTreeMap<&str, Verdict> = ["fs.write", "fs.read"]
        .into_iter()
        .map(|action| {
            let policy = Some(Authority::of(RuleSet::only(Verdict::Allow)));
            let session = runtime.open(OpenOptions { policy, ..OpenOptions::agent("worker") }).expect("a session");
            let creations = journal.records_from(session.id(), subtend_session::ids::Seq(1), 1).expect("readable");
            let subtend_session::record::Record::SessionCreated(created) = &creations[0].record else {
                panic!("not a creation")
            };
            (action, created.ceiling.body.as_ref().expect("a ceiling").best(action))
        })
        .collect();
    assert_eq!(ceilings, BTreeMap::from([("fs.write", Verdict::Deny), ("fs.read", Verdict::Allow)]));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn another_workspace_is_refused_without_a_loader() {
    let runtime =
        started(builder(&journal()).options(Options { seed: Some(3), ..Options::default() }).model(model(asks_where)))
            .await;
    let options = OpenOptions { workspace: Some("/elsewhere".into()), ..OpenOptions::agent("worker") };
    let refused = runtime.open(options).map(drop);
    let Err(OpenSessionError::Workspace(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(why, "this runtime has only one workspace. Omit `workspace`");
    shut(runtime).await;
}

/// Returns the agents that the tool `task` of the next model call offers.
async fn offers(session: &SessionHandle) -> String {
    answer(session, "offers").await
}

fn general(runtime: &Runtime) -> SessionHandle {
    runtime.open(OpenOptions::agent("general")).expect("a session")
}

/// Answers with the lines of the tool `task` that name agents of this test.
async fn lists_agents(request: Request) -> Result<Answer, ModelError> {
    let task = request.tools.iter().find(|tool| &*tool.name == "task").map_or("", |tool| &*tool.description);
    let named: Vec<&str> = ["first-one", "second-one"].into_iter().filter(|name| task.contains(name)).collect();
    Ok(text(if named.is_empty() { "none".to_owned() } else { named.join(" ") }.as_str()))
}

#[tokio::test(start_paused = true)]
async fn registered_and_removed_agents_apply_to_later_sessions() {
    let manifest = |name: &str, text: &str| Manifest::new(name, AgentMode::Subagent, text);
    let runtime = builder(&journal()).model(model(lists_agents)).start().await.expect("a runtime");
    let before = general(&runtime);
    assert_eq!(offers(&before).await, "none");
    assert_eq!(runtime.register_agent(manifest("first-one", "You are first.")), None);
    let between = general(&runtime);
    let replaced = runtime.register_agent(manifest("first-one", "You are new."));
    assert_eq!(replaced.map(|manifest| manifest.body.to_string()), Some("You are first.".to_owned()));
    assert!(runtime.remove_agent("first-one").is_some());
    runtime.register_agent(manifest("second-one", "You are second."));
    let after = general(&runtime);
    assert_eq!(
        [offers(&before).await, offers(&between).await, offers(&after).await],
        ["none", "first-one", "second-one"]
    );
    let changes = before.reload().expect("loaded again");
    assert_eq!(changes, AgentChanges { added: vec!["second-one".into()], ..AgentChanges::default() });
    let changes = between.reload().expect("loaded again");
    let (added, removed) = (vec!["second-one".into()], vec!["first-one".into()]);
    assert_eq!(changes, AgentChanges { added, removed, ..AgentChanges::default() });
    assert_eq!([offers(&before).await, offers(&between).await], ["second-one", "second-one"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn changed_files_apply_to_new_and_reloaded_sessions() {
    let files: Arc<Mutex<Result<Vec<&str>, String>>> = Arc::new(Mutex::new(Ok(vec![])));
    let read = Arc::clone(&files);
    let runtime = builder(&journal()).model(model(lists_agents)).home_loader(move || {
        let mut catalog = Catalog::builtin();
        for name in read.lock().unwrap().clone()? {
            catalog.insert(Manifest::new(name, AgentMode::Subagent, "You are here."));
        }
        Ok(Some(Environment::default().catalog(catalog).model(model(lists_agents))))
    });
    let runtime = runtime.start().await.expect("a runtime");
    let before = general(&runtime);
    *files.lock().unwrap() = Ok(vec!["first-one"]);
    let after = general(&runtime);
    assert_eq!([offers(&before).await, offers(&after).await], ["none", "first-one"]);
    *files.lock().unwrap() = Err("the file is half written".to_owned());
    let refused = before.reload().expect_err("refused");
    assert_eq!(refused, ControlError::Refused("the file is half written".to_owned()));
    let not_opened = runtime.open(OpenOptions::agent("general")).map(|_| ()).expect_err("refused");
    assert!(
        matches!(&not_opened, OpenSessionError::Workspace(why) if why == "the file is half written"),
        "{not_opened:?}"
    );
    assert_eq!(
        [offers(&before).await, offers(&after).await],
        ["none", "first-one"],
        "a failed reload changed an environment"
    );
    *files.lock().unwrap() = Ok(vec!["second-one"]);
    before.reload().expect("loaded again");
    assert_eq!([offers(&before).await, offers(&after).await], ["second-one", "first-one"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn reload_reaches_a_tree_of_another_workspace() {
    let (dir, names) = (directory(), Arc::new(Mutex::new(vec!["first-one"])));
    let read = Arc::clone(&names);
    let runtime = builder(&journal()).model(model(lists_agents)).environments(move |key| {
        let mut catalog = Catalog::builtin();
        catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
        for name in read.lock().unwrap().iter() {
            catalog.insert(Manifest::new(*name, AgentMode::Subagent, "You are here."));
        }
        let workspace = Workspace::open(&*key.workspace).map_err(|error| error.to_string())?;
        Ok(Environment::default().workspace(workspace).catalog(catalog).model(model(lists_agents)))
    });
    let runtime = runtime.start().await.expect("a runtime");
    let session = opened(&runtime, dir.path());
    assert_eq!(offers(&session).await, "first-one");
    *names.lock().unwrap() = vec!["second-one"];
    assert_eq!(offers(&session).await, "first-one", "the environment changed without a reload");
    session.reload().expect("loaded again");
    assert_eq!(offers(&session).await, "second-one");
    shut(runtime).await;
}

/// Clients open sessions without end, each with the files of its workspace. The control: an environment of each session
/// that is open at most some time before.
#[tokio::test(start_paused = true)]
async fn endless_sessions_keep_few_environments() {
    let kept = |version: fn(usize) -> Option<u64>| async move {
        let (dir, loads, marker) = (directory(), Mutex::new(0), Arc::new(()));
        let held = Arc::downgrade(&marker);
        let runtime = builder(&journal()).model(model(lists_agents)).environments(move |key| {
            let mut loads = loads.lock().unwrap();
            *loads += 1;
            let (marker, environment) = (Arc::clone(&marker), environment(key)?);
            let environment = environment.model_source(move |_| {
                let _ = &marker;
                None
            });
            Ok(version(*loads).into_iter().fold(environment, Environment::version))
        });
        let runtime = runtime.start().await.expect("a runtime");
        let mut most = 0;
        for _ in 0..100 {
            drop(opened(&runtime, dir.path()));
            most = most.max(held.strong_count());
        }
        shut(runtime).await;
        // The loader has one of its own.
        most - 1
    };
    assert_eq!(kept(|_| None).await, 8);
    assert_eq!(kept(|loads| u64::try_from(loads).ok()).await, 8);
    assert_eq!(kept(|_| Some(7)).await, 1);
    assert_eq!(kept(|loads| u64::try_from(loads / 51).ok()).await, 2);
}

#[tokio::test(start_paused = true)]
async fn unchanged_files_share_one_environment() {
    let reads = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&reads);
    let runtime = builder(&journal()).model(model(lists_agents)).home_loader(move || {
        *counted.lock().unwrap() += 1;
        Ok(None)
    });
    let runtime = runtime.start().await.expect("a runtime");
    let first = general(&runtime);
    assert_eq!(runtime.register_agent(Manifest::new("first-one", AgentMode::Subagent, "You are first.")), None);
    let second = general(&runtime);
    assert_eq!([offers(&first).await, offers(&second).await], ["none", "first-one"]);
    assert_eq!(first.reload().expect("loaded again").added, ["first-one".into()]);
    assert_eq!((offers(&first).await, *reads.lock().unwrap()), ("first-one".to_owned(), 3));
    shut(runtime).await;
}

/// Files of the host's own directory change without end while sessions are opened.
#[tokio::test(start_paused = true)]
async fn own_environments_are_forgotten_when_unused() {
    let marker = Arc::new(());
    let held = Arc::downgrade(&marker);
    let runtime = builder(&journal()).model(model(lists_agents)).home_loader(move || {
        let marker = Arc::clone(&marker);
        let environment = Environment::default().model(model(lists_agents)).model_source(move |_| {
            let _ = &marker;
            None
        });
        Ok(Some(environment))
    });
    let runtime = runtime.start().await.expect("a runtime");
    let mut most = 0;
    for _ in 0..100 {
        drop(general(&runtime));
        most = most.max(held.strong_count());
    }
    shut(runtime).await;
    // The loader has one of its own.
    assert_eq!(most - 1, 8);
}

/// Returns a host whose environments in use may take that many MiB. Each directory has an agent of 1 MiB.
async fn bounded_host(journal: &Journal, most: usize, idle: u64) -> Runtime {
    let load = |key: &EnvironmentKey| {
        let mut catalog = Catalog::builtin();
        catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
        catalog.insert(Manifest::new("large", AgentMode::All, format!("{}{}", key.workspace, "x".repeat(1 << 20))));
        Ok(environment(key)?.catalog(catalog))
    };
    let options = Options { environments: most << 20, idle: Duration::from_secs(idle), ..Options::default() };
    builder(journal).options(options).model(model(asks_where)).environments(load).start().await.expect("a runtime")
}

/// Clients work in ever more directories, whose files take much memory. The controls: sessions that do not work yet, and
/// those of before that left memory.
#[tokio::test]
async fn environments_in_use_take_bounded_memory() {
    let (runtime, directories) = (bounded_host(&journal(), 10, 3_600).await, [(); 12].map(|()| directory()));
    directories.iter().for_each(|dir| drop(opened(&runtime, dir.path())));
    let (mut active, mut refused) = (0, BTreeSet::new());
    for dir in &directories {
        match try_open(&runtime, dir.path()) {
            Ok(session) => {
                assert!(!answer(&session, "directly").await.is_empty());
                active += 1;
            }
            Err(error) => _ = refused.insert(error.to_string()),
        }
    }
    let why = "agents, instructions and skills of the workspaces in use would take 11 MiB, and the limit is 10 MiB. Try again \
               when sessions of other workspaces are done, or remove large files of agents and skills";
    assert_eq!((active, refused), (9, BTreeSet::from([why.to_owned()])));
    tokio::time::pause();
    seconds(7_200).await;
    assert!(!answer(&opened(&runtime, directories[11].path()), "directly").await.is_empty());
    shut(runtime).await;
}

/// A client chooses a model for each session of one directory, which is loaded for each of them.
#[tokio::test]
async fn environments_of_one_directory_share_its_files() {
    let (runtime, dir) = (bounded_host(&journal(), 10, 3_600).await, directory());
    for number in 0..20 {
        let workspace = Some(dir.path().to_string_lossy().into());
        let model = Some(format!("model-{number}").into());
        let session =
            runtime.open(OpenOptions { workspace, model, ..OpenOptions::agent("worker") }).expect("a session");
        assert!(!answer(&session, "directly").await.is_empty());
    }
    shut(runtime).await;
}

/// Opens a session in `workspace`, or returns why this is refused.
fn try_open(runtime: &Runtime, workspace: &Path) -> Result<SessionHandle, OpenSessionError> {
    let workspace = Some(workspace.to_string_lossy().into());
    runtime.open(OpenOptions { workspace, on_restart: Some(OnRestart::Resume), ..OpenOptions::agent("worker") })
}

/// Environments that take all memory refuse new work only, and only as long as they do. The control: openings and inputs.
#[tokio::test(start_paused = true)]
async fn runs_in_flight_continue_when_environments_are_too_large() {
    let (memory, directories) = (Memory::new(), [(); 13].map(|()| directory()));
    let runtime = bounded_host(&reopen(&memory), 100, 10).await;
    let idle = try_open(&runtime, directories[12].path()).expect("a session");
    assert!(!answer(&idle, "directly").await.is_empty());
    let mut runs = Vec::new();
    for dir in &directories[..12] {
        let session = try_open(&runtime, dir.path()).expect("a session");
        let receipt = session.send("slowly").await.expect("accepted");
        runs.push((session.id(), receipt.run));
    }
    seconds(5).await;
    runtime.shutdown(Duration::ZERO).await;
    let (idle, runtime) = (idle.id(), bounded_host(&reopen(&memory), 10, 10).await);
    let session = |id| runtime.session(id).expect("readable").expect("a session");
    seconds(5).await;
    let opened = try_open(&runtime, directories[12].path()).map(drop);
    assert!(matches!(&opened, Err(OpenSessionError::Memory(_))), "{opened:?}");
    let sent = session(idle).send("directly").await.map(drop);
    assert!(matches!(&sent, Err(SendError::BadInput(why)) if why.contains("the limit is 10 MiB")), "{sent:?}");
    let mut outcomes = BTreeSet::new();
    for (id, run) in runs {
        outcomes.insert(format!("{:?}", session(id).run_ended(run).await.expect("it ends").outcome));
    }
    assert_eq!(outcomes, BTreeSet::from(["Completed".to_owned()]));
    seconds(60).await;
    assert!(session(idle).send("directly").await.is_ok());
    shut(runtime).await;
}

/// Clients register large agents, which all directories share. The control: replaced ones, which sessions still use.
#[tokio::test]
async fn registered_agents_count_once_for_all_directories() {
    let (runtime, directories) = (bounded_host(&journal(), 10, 3_600).await, [(); 5].map(|()| directory()));
    let register = |text: &str| {
        let body = format!("{text}{}", "x".repeat(3 << 20));
        runtime.register_agent(Manifest::new("shared", AgentMode::All, body));
    };
    register("first");
    for dir in &directories {
        assert!(!answer(&opened(&runtime, dir.path()), "directly").await.is_empty());
    }
    let mut opened = Vec::new();
    for version in 0..4 {
        register(&version.to_string());
        let Ok(session) = try_open(&runtime, directories[0].path()) else { break };
        assert!(!answer(&session, "directly").await.is_empty());
        opened.push(session);
    }
    assert!(opened.len() < 3);
    shut(runtime).await;
}

/// A directory on a server that does not respond delays no session of other directories.
#[tokio::test]
async fn hanging_load_delays_no_other_directory() {
    let ((started, starts), (release, released)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let hanging = directory();
    let (name, channels) = (hanging.path().to_string_lossy().into_owned(), Mutex::new((started, released)));
    let load = move |key: &EnvironmentKey| {
        if *key.workspace == *name {
            let (started, released) = &*channels.lock().unwrap();
            started.send(()).map_err(|error| error.to_string())?;
            released.recv_timeout(Duration::from_secs(20)).map_err(|_| "it was not released".to_owned())?;
        }
        environment(key)
    };
    let runtime = builder(&journal()).model(model(asks_where)).environments(load).start().await.expect("a runtime");
    let results = std::thread::scope(|scope| {
        let first = scope.spawn(|| try_open(&runtime, hanging.path()).map(drop).map_err(|error| error.to_string()));
        starts.recv().expect("it starts");
        let others = [try_open(&runtime, directory().path()).map(drop), runtime.open("worker").map(drop)];
        let _ = release.send(());
        (others.map(|other| other.is_ok()), first.join().expect("joined"))
    });
    assert_eq!(results, ([true, true], Ok(())));
    shut(runtime).await;
}
