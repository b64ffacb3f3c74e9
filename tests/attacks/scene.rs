//! A host whose model executes the script in its prompt, as an attacker could make it do.

pub(crate) use std::collections::BTreeMap;
pub(crate) use std::io::{BufReader, Cursor};
pub(crate) use std::net::{TcpListener, TcpStream};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::Command;
pub(crate) use std::sync::{Arc, Mutex};
pub(crate) use std::time::Duration;

pub(crate) use serde_json::{Value, json};
pub(crate) use subtend_agents::manifest::{AgentMode, Manifest};
pub(crate) use subtend_journal::{ImportBounds, Journal};
pub(crate) use subtend_session::authority::Verdict;
pub(crate) use subtend_session::call::ToolEffect;
pub(crate) use subtend_session::dialect::Dialect;
pub(crate) use subtend_session::ids::{RunNo, SessionId};
pub(crate) use subtend_session::limits::Limits;
pub(crate) use subtend_session::message::{Message, ToolSpec};
pub(crate) use subtend_session::outcome::Outcome;
pub(crate) use subtend_session::record::Record;
pub(crate) use subtend_tools::closure::fn_tool;
pub(crate) use subtend_tools::registry::Registry;
pub(crate) use subtend_tools::tool::{Tool, ToolOutput};

use subtend_actors::{Options, Runtime, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_journal::memory::Memory;
use subtend_models::closure::fn_model;
use subtend_models::model::{Answer, Request};
use subtend_session::authority::{Rule, RuleSet};
use subtend_session::record::ToolCall;
use subtend_tools::guard::Guard;
use subtend_tools::registry::LiveTools;
use subtend_tools::workspace::Workspace;
use tempfile::TempDir;

pub(crate) const SECRET: &str = "the-hidden-word";

type Rules<'a> = &'a [(&'a str, &'a str, Verdict)];

pub(crate) fn rules(default: Verdict, rules: Rules<'_>) -> RuleSet {
    let rule = |(action, resource, verdict): &(&str, &str, Verdict)| Rule {
        action: (*action).into(),
        resource: (*resource).into(),
        verdict: *verdict,
    };
    RuleSet { default, rules: rules.iter().map(rule).collect() }
}

pub(crate) fn call(tool: &str, args: Value) -> Value {
    json!([{"tool": tool, "args": args}])
}

pub(crate) fn read(path: &str) -> Value {
    call("read", json!({"path": path}))
}

pub(crate) fn write(path: &str) -> Value {
    call("write", json!({"path": path, "content": "spoiled"}))
}

/// Returns one turn that starts a child with `steps` and waits for it.
pub(crate) fn spawn(agent: &str, steps: &[Value]) -> Value {
    call("task", json!({"subagent_type": agent, "prompt": script(steps)}))
}

pub(crate) fn in_one_turn(turns: &[Value]) -> Value {
    turns.iter().filter_map(Value::as_array).flatten().cloned().collect()
}

pub(crate) fn say(text: &str) -> Value {
    json!(text)
}

pub(crate) fn script(steps: &[Value]) -> String {
    Value::from(steps.to_vec()).to_string()
}

fn next(request: &Request) -> Answer {
    // A user input starts a script; notices and generated messages do not.
    let mut steps = Vec::new();
    let mut answered = 0;
    for message in request.messages.iter() {
        match message {
            Message::User { text, .. } => {
                answered = 0;
                steps = serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
            }
            Message::Assistant { .. } => answered += 1,
            Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => {}
        }
    }
    match steps.get(answered) {
        Some(Value::String(output)) => Answer::of_text(output.as_str()),
        Some(Value::Array(calls)) => {
            let times = |call: &Value| call["times"].as_u64().map_or(1, |times| times as usize);
            let all = calls.iter().flat_map(|call| std::iter::repeat_n(call, times(call)));
            let tool_call = |(ix, call): (usize, &Value)| ToolCall {
                provider_id: call["id"].as_str().map_or_else(|| format!("call-{ix}"), str::to_owned).into(),
                tool: call["tool"].as_str().unwrap_or_default().into(),
                args: arguments(call).into(),
            };
            Answer::of_calls(None, all.enumerate().map(tool_call).collect())
        }
        Some(_) | None => Answer::of_text("done"),
    }
}

/// Returns the arguments of a scripted call, with generated content of the requested size.
fn arguments(call: &Value) -> String {
    let mut args = call["args"].clone();
    if let Some(bytes) = call["fill"].as_u64() {
        args["content"] = "x".repeat(bytes as usize).into();
    }
    args.to_string()
}

/// Returns one turn that writes this many bytes to a file; the model generates them, because prompts are limited.
pub(crate) fn fill(path: &str, bytes: u64) -> Value {
    json!([{"tool": "write", "args": {"path": path}, "fill": bytes}])
}

pub(crate) fn reads(path: &str, times: u64) -> Value {
    json!([{"tool": "read", "args": {"path": path}, "times": times}])
}

/// A workspace, a store, and the settings of a host on them.
pub(crate) struct AttackScene {
    dir: TempDir,
    store: Memory,
    agents: Vec<Manifest>,
    policy: RuleSet,
    limits: Limits,
    guard: Option<Guard>,
    more: Vec<Arc<dyn Tool>>,
    live: Option<Arc<dyn LiveTools>>,
    dialects: Dialects,
    seed: u64,
}

impl AttackScene {
    /// Creates a scene that allows everything, with the agent `worker`, which may do all that its caller may.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["secret/key", ".env", "open/.env"] {
            put(dir.path().join(path), SECRET);
        }
        for path in ["open/a.txt", "top.txt"] {
            put(dir.path().join(path), "plain");
        }
        let worker = Manifest::new("worker", AgentMode::All, "You are a worker.");
        let policy = RuleSet::only(Verdict::Allow);
        let limits = Limits::default();
        let (store, agents, more) = (Memory::new(), vec![worker], Vec::new());
        let dialects = Dialects::default();
        Self { dir, store, agents, policy, limits, guard: None, more, live: None, dialects, seed: 0 }
    }

    pub(crate) fn policy(mut self, default: Verdict, all: Rules<'_>) -> Self {
        self.policy = rules(default, all);
        self
    }

    pub(crate) fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Adds an agent with these rules, or replaces the rules of an existing one.
    pub(crate) fn agent(mut self, name: &str, default: Verdict, all: Rules<'_>) -> Self {
        self.agents.retain(|agent| &*agent.name != name);
        let mut agent = Manifest::new(name, AgentMode::All, "You are an agent.");
        agent.rules = Some(rules(default, all));
        self.manifest(agent)
    }

    pub(crate) fn manifest(mut self, agent: Manifest) -> Self {
        self.agents.push(agent);
        self
    }

    pub(crate) fn forget(&mut self, name: &str) -> &mut Self {
        self.agents.retain(|agent| &*agent.name != name);
        self
    }

    pub(crate) fn guard(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }

    pub(crate) fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.more.push(tool);
        self
    }

    pub(crate) fn live(mut self, tools: Arc<dyn LiveTools>) -> Self {
        self.live = Some(tools);
        self
    }

    pub(crate) fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialects = Dialects { offered: vec![dialect], ..Dialects::default() };
        self
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    /// Starts a host on the store of the earlier ones.
    pub(crate) async fn host(&mut self) -> RunningHost {
        self.seed += 1;
        let mut catalog = Catalog::builtin();
        for agent in &self.agents {
            catalog.insert(agent.clone());
        }
        let tools = Registry::builder().tools(Registry::workspace_tools(self.guard.clone())).expect("names differ");
        let tools = tools.tools(self.more.clone()).expect("names differ");
        let tools = match &self.live {
            Some(live) => tools.live(Arc::clone(live)).build(),
            None => tools.build(),
        };
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let saw = Arc::clone(&seen);
        let scripted = fn_model("puppet", move |request: Request, _| {
            let answer = next(&request);
            saw.lock().expect("not poisoned").insert(request.session, request);
            async { Ok(answer) }
        });
        let store = Box::new(self.store.clone());
        let runtime = Runtime::builder()
            .journal(Journal::open(store, subtend_journal::Options::default()).expect("a journal"))
            .workspace(Arc::new(Workspace::open(self.dir.path()).expect("a workspace")))
            .catalog(catalog)
            .policy(self.policy.clone())
            .limits(self.limits.clone())
            .dialects(self.dialects.clone())
            .tools(tools)
            .model(Arc::new(scripted))
            .options(Options { seed: Some(self.seed), ..Options::default() })
            .start()
            .await;
        RunningHost { runtime: runtime.expect("a host"), seen }
    }
}

fn put(path: PathBuf, content: &str) {
    std::fs::create_dir_all(path.parent().expect("a file is in a directory")).expect("a directory");
    std::fs::write(path, content).expect("a file");
}

pub(crate) struct RunningHost {
    pub(crate) runtime: Runtime,
    seen: Arc<Mutex<BTreeMap<SessionId, Request>>>,
}

impl RunningHost {
    pub(crate) async fn run_steps(&self, agent: &str, steps: &[Value]) -> SessionHandle {
        let session = self.runtime.open(agent).expect("a session");
        self.continue_with(&session, steps).await;
        session
    }

    /// Opens a session of `agent` and runs `steps`; returns the session and the outcome of its run.
    pub(crate) async fn try_steps(&self, agent: &str, steps: &[Value]) -> (SessionHandle, Outcome) {
        let session = self.runtime.open(agent).expect("a session");
        let receipt = session.send(script(steps)).await.expect("accepted");
        let ended = tokio::time::timeout(Duration::from_secs(7_200), session.run_ended(receipt.run)).await;
        let outcome = ended.expect("the run ends").expect("the host lives").outcome;
        (session, outcome)
    }

    /// Returns the size of a session's records as JSON, in bytes.
    pub(crate) async fn size(&self, of: SessionId) -> usize {
        let json = |record: &Record| serde_json::to_string(record).expect("JSON").len();
        self.records(of).await.iter().map(json).sum()
    }

    pub(crate) async fn continue_with(&self, session: &SessionHandle, steps: &[Value]) {
        self.send_input(session, script(steps), None).await;
    }

    /// Sends an input to the session, for another agent if one is named, and waits for the answer.
    pub(crate) async fn send_input(&self, session: &SessionHandle, text: String, agent: Option<&str>) {
        let input = session.input(text);
        let input = if let Some(agent) = agent { input.agent(agent) } else { input };
        let receipt = input.send().await.expect("accepted");
        let ended = tokio::time::timeout(Duration::from_secs(7_200), session.run_ended(receipt.run)).await;
        let outcome = ended.expect("the run ends").expect("the host lives").outcome;
        assert_eq!(outcome, Outcome::Completed);
    }

    pub(crate) fn handle(&self, id: SessionId) -> SessionHandle {
        self.runtime.session(id).expect("a journal").expect("a session")
    }

    pub(crate) fn children(&self, of: SessionId) -> Vec<SessionId> {
        let stored = self.runtime.journal().records(of).expect("records");
        let created = |record| if let Record::ChildSpawned(spawned) = record { Some(spawned.child) } else { None };
        stored.into_iter().filter_map(|stored| created(stored.record)).collect()
    }

    /// Returns the first child of the first child and so on, `depth` levels down.
    pub(crate) fn descendant(&self, of: SessionId, depth: usize) -> SessionId {
        (0..depth).fold(of, |at, _| *self.children(at).first().expect("a child"))
    }

    /// Returns the results of calls since the last input, in the order in which the session's model received them:
    /// whether each failed, and its text.
    pub(crate) fn results(&self, of: SessionId) -> Vec<(bool, String)> {
        let mut results = Vec::new();
        for message in self.request(of).messages.iter() {
            match message {
                Message::User { .. } => results.clear(),
                Message::Result { error, content, .. } => results.push((*error, content.to_string())),
                Message::Assistant { .. } | Message::Notice { .. } | Message::Prompt { .. } => {}
            }
        }
        results
    }

    /// Asserts that each call failed and revealed nothing hidden; returns the results.
    pub(crate) fn refused(&self, of: SessionId, count: usize) -> Vec<String> {
        let results = self.results(of);
        assert_eq!(results.len(), count, "{results:#?}");
        assert!(results.iter().all(|(failed, text)| *failed && !text.contains(SECRET)), "{results:#?}");
        results.into_iter().map(|(_, text)| text).collect()
    }

    pub(crate) fn has_request(&self, of: SessionId) -> bool {
        self.seen.lock().expect("not poisoned").contains_key(&of)
    }

    pub(crate) fn request(&self, of: SessionId) -> Request {
        self.seen.lock().expect("not poisoned").get(&of).expect("a request to its model").clone()
    }

    /// Returns the names of the tools that the session's model received.
    pub(crate) fn tools(&self, of: SessionId) -> Vec<String> {
        self.request(of).tools.iter().map(|tool| tool.name.to_string()).collect()
    }

    pub(crate) async fn records(&self, of: SessionId) -> Vec<Record> {
        self.runtime.journal().settled().await.expect("the journal lives");
        let stored = self.runtime.journal().records(of).expect("records");
        stored.into_iter().map(|stored| stored.record).collect()
    }

    /// Shuts the host down and checks every invariant.
    pub(crate) async fn shut_down(self) {
        self.runtime.journal().settled().await.expect("the journal lives");
        subtend_journal::audit(self.runtime.journal(), true).expect("every invariant holds");
        let report = self.runtime.shutdown(Duration::from_secs(1)).await;
        assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
    }
}
