//! A host whose agents write files: `general` in a workspace, `worker` in a worktree of its own.

use std::path::Path;
use std::process::Command;

use crate::support::*;
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_models::model::ModelError;
use subtend_session::outcome::ModelFail;
use subtend_session::place::Isolation;
use subtend_tools::checkpoint::Checkpoints;
use subtend_tools::message;
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::Worktrees;
use tempfile::TempDir;

use super::{get, post};

pub(crate) struct FilesHost {
    dir: TempDir,
    pub(crate) host: Host,
    pub(crate) app: Router,
}

/// Answers turn N with line N of the prompt: a call as JSON, `fail`, `hang`, or the text of the answer.
async fn play(request: subtend_models::model::Request) -> Result<Answer, ModelError> {
    let prompt = request.messages.iter().find_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    let turn = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
    let prompt = prompt.unwrap_or_default();
    match prompt.lines().nth(turn).unwrap_or("done") {
        "fail" => Err(ModelError::new(ModelFail::Auth, "no key")),
        "hang" => std::future::pending().await,
        line => Ok(match serde_json::from_str::<Value>(line) {
            Ok(call) => {
                let (tool, args) = call.as_object().and_then(|call| call.iter().next()).expect("a call");
                let call =
                    ToolCall { provider_id: "c".into(), tool: tool.as_str().into(), args: args.to_string().into() };
                Answer::of_calls(None, vec![call])
            }
            Err(_) => Answer::of_text(line),
        }),
    }
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).args(["-c", "user.name=p", "-c", "user.email=p@localhost"]).args(args);
    let done = command.output().expect("git runs");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

pub(crate) fn write(path: &str, content: &str) -> String {
    json!({"write": {"path": path, "content": content}}).to_string()
}

impl FilesHost {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let work = dir.path().join("work");
        std::fs::create_dir(&work).expect("a directory");
        std::fs::write(work.join("a.txt"), "one\ntwo\n").expect("written");
        git(&work, &["init", "-q", "-b", "main"]);
        git(&work, &["add", "-A"]);
        git(&work, &["commit", "-q", "-m", "first"]);
        let mut catalog = Catalog::builtin();
        let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
        catalog.insert(Manifest { isolation: Isolation::Worktree, ..worker });
        let tools = Registry::builder().tools(Registry::workspace_tools(None)).expect("names");
        let journal = Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal");
        let runtime = Runtime::builder()
            .journal(journal)
            .policy(RuleSet::only(Verdict::Allow))
            .catalog(catalog)
            .workspace(Workspace::open(&work).expect("a workspace"))
            .tools(tools.tool(message::tool()).expect("a name").build())
            .worktrees(Worktrees::new(dir.path().join("worktrees"), None))
            .checkpoints(Checkpoints::new(dir.path().join("checkpoints")))
            .options(Options { titles: false, summaries: false, ..Options::default() })
            .model(Arc::new(fn_model("play", |request, _| play(request))))
            .start()
            .await
            .expect("a runtime");
        let host = Host::new(runtime, HostOptions::default());
        Self { app: host.router(), dir, host }
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.dir.path().join("work").join(path)).ok()
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        std::fs::write(self.dir.path().join("work").join(path), text).expect("written");
    }

    /// Changes a file of a worktree as its session could.
    pub(crate) fn put_in(&self, session: &str, path: &str, text: &str) {
        std::fs::write(self.dir.path().join("worktrees").join(session).join(path), text).expect("written");
    }

    pub(crate) fn damage(&self, session: &str) {
        std::fs::write(self.dir.path().join("worktrees").join(format!("{session}.json")), "{").expect("written");
    }

    /// Locks a worktree as another process does.
    pub(crate) fn lock(&self, session: &str) -> std::fs::File {
        let path = self.dir.path().join("worktrees").join(format!("{session}.lock"));
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(path).expect("opened");
        file.lock().expect("locked");
        file
    }

    pub(crate) fn delete_branch(&self, name: &str) {
        git(&self.dir.path().join("work"), &["branch", "-q", "-D", name]);
    }

    pub(crate) fn branches(&self) -> String {
        git(&self.dir.path().join("work"), &["for-each-ref", "--format=%(refname:short)", "refs/heads"])
    }

    /// Opens a session of `agent` that plays `steps`, and returns its id.
    pub(crate) async fn open(&self, agent: &str, steps: &[String]) -> String {
        let body = json!({"agent": agent, "input": {"text": steps.join("\n")}});
        let opened = post(&self.app, "/v1/sessions", &body).await;
        assert_eq!(opened.status, 201, "{}", opened.body);
        opened.json()["session"]["id"].as_str().expect("an id").to_owned()
    }

    /// As [`FilesHost::open`], and waits for the end of its run.
    pub(crate) async fn run_to_end(&self, agent: &str, steps: &[String]) -> String {
        let id = self.open(agent, steps).await;
        let run = get(&self.app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=60000")).await.json();
        assert_eq!(run["in_flight"], false, "{run}");
        id
    }

    pub(crate) async fn end(self) {
        drop(self.app);
        super::end(self.host).await;
    }
}
