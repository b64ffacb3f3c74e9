//! Nodes as processes, with a database server of their own and a proxy in between.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::NodeClient;
use crate::history;
use crate::proxy::Proxy;
use crate::server::Server;

/// Lease duration of tests in seconds. It is short, so that other nodes take over soon.
pub(crate) const LEASE: u64 = 3;

/// Time limit of waits. It is long, so that a busy machine alone does not fail a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// Exit code of a process that cannot use its store.
pub(crate) const STORE_FAILED: i32 = 3;

pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) nodes: Vec<NodeProcess>,
    pub(crate) client: NodeClient,
    pub(crate) lease: u64,
    /// Number of restarts of nodes that ended during their start.
    pub(crate) restarts: u32,
    /// Number of opened sessions. Makes each idempotency key unique.
    opened: AtomicU64,
    dir: TempDir,
}

pub(crate) struct NodeProcess {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) proxy: Proxy,
    /// The program that the next start runs.
    pub(crate) program: PathBuf,
    /// More arguments of the next start.
    pub(crate) args: Vec<&'static str>,
    pub(crate) child: Option<Child>,
}

pub(crate) fn this_version() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_subtend"))
}

/// Returns the command of another version (`SUBTEND_OTHER`), or that of this build.
pub(crate) fn other_version() -> PathBuf {
    std::env::var_os("SUBTEND_OTHER").map_or_else(this_version, PathBuf::from)
}

/// A worker that appends a line to the file `effects`, starts two children, and ends.
const SCRIPT: &str = r#"{ "leaves_process": true, "rules": [
    { "agent": "general", "steps": [
        [ { "when": { "prompt_contains": "wide" }, "fan_out": { "n": 8, "agent": "explore", "background": false, "prompt": "slow {n}" } },
          { "when": { "prompt_contains": "quick" }, "text": "Done at once." },
          { "when": { "prompt_contains": "slow" }, "latency_ms": 15000, "text": "Done at last." },
          { "latency_ms": 30, "calls": [ { "tool": "shell", "args": { "command": "echo '{prompt}' >> effects" } } ] } ],
        { "latency_ms": 30, "fan_out": { "n": 2, "agent": "explore", "background": false, "prompt": "part {n}" } },
        { "latency_ms": 30, "text": "Done: {prompt}" } ] },
    { "agent": "*", "steps": [
        [ { "when": { "prompt_contains": "slow" }, "latency_ms": 8000, "text": "A late part.", "repeat": true },
          { "latency_ms": 60, "text": "A part.", "repeat": true } ] ] }
] }"#;

impl Cluster {
    pub(crate) fn start(count: usize, shards: u16) -> Self {
        Self::start_with_args(count, shards, &[])
    }

    pub(crate) fn start_with_args(count: usize, shards: u16, args: &[&'static str]) -> Self {
        Self::start_with(count, shards, LEASE, this_version(), args)
    }

    pub(crate) fn with_lease(count: usize, shards: u16, lease: u64) -> Self {
        Self::start_with(count, shards, lease, this_version(), &[])
    }

    /// Starts nodes with long leases, which they keep even on a busy machine.
    pub(crate) fn steady(count: usize, shards: u16) -> Self {
        Self::start_with(count, shards, 60, this_version(), &[])
    }

    /// Starts steady nodes of another version, which a rolling update replaces.
    pub(crate) fn of_another_version(count: usize, shards: u16) -> Self {
        Self::start_with(count, shards, 60, other_version(), &[])
    }

    fn start_with(count: usize, shards: u16, lease: u64, program: PathBuf, args: &[&'static str]) -> Self {
        let server = Server::start(&[]);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("workspace")).unwrap();
        std::fs::write(dir.path().join("script.json"), SCRIPT).unwrap();
        let client = NodeClient { token: String::new() };
        let mut cluster =
            Self { client, server, nodes: Vec::new(), lease, restarts: 0, opened: AtomicU64::new(0), dir };
        cluster.client.token = cluster.token();
        for _ in 0..count {
            cluster.add_node(program.clone(), args, shards);
        }
        cluster.wait_with_restarts(shards, |members| {
            owned(members) == usize::from(shards) && shares(members).len() == count
        });
        history::record(&cluster.server);
        cluster
    }

    pub(crate) fn add_node(&mut self, program: PathBuf, args: &[&'static str], shards: u16) -> usize {
        let number = self.nodes.len();
        let port = crate::server::port();
        let name = ["a", "b", "c", "d"][number].to_owned();
        let proxy = Proxy::to(self.server.port());
        self.nodes.push(NodeProcess { name, port, proxy, program, args: args.to_vec(), child: None });
        self.start_node(number, shards);
        number
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &Path, store: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path("workspace"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("SUBTEND_STORE", store).stdin(Stdio::null());
        command
    }

    fn token(&self) -> String {
        let mut command = self.command(&this_version(), &self.server.address());
        let made =
            command.args(["token", "create", "client", "--scope", "admin", "--tokens"]).arg(self.path("tokens.json"));
        let made = made.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn start_node(&mut self, number: usize, shards: u16) {
        let node = &self.nodes[number];
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.path(&node.name)).unwrap();
        // Nodes with long leases also get a long time limit for replies.
        let reply = (self.lease / 3).clamp(2, 10);
        let store = format!("{}&reply_timeout={reply}", crate::server::address(node.proxy.port));
        let mut command = self.command(&node.program, &store);
        command.env("SUBTEND_DATA", self.path(&format!("data-{}", node.name)));
        command.args([
            "serve",
            "--node",
            &node.name,
            "--json",
            "--log",
            "json",
            "--trust",
            "--allow",
            "shell.run",
            "--allow",
            "fs.write",
        ]);
        command.args(["--shards", &shards.to_string(), "--lease", &self.lease.to_string(), "--drain", "20"]);
        command.args(["--listen", &format!("127.0.0.1:{}", node.port), "--tokens"]).arg(self.path("tokens.json"));
        command.arg("--model").arg(format!("scripted:{}", self.path("script.json").display()));
        // The node reports to this file that it has joined.
        let ready = std::fs::File::create(self.ready_file(number)).unwrap();
        command.args(&node.args).stdout(ready).stderr(log);
        self.nodes[number].child = Some(command.spawn().unwrap());
    }

    pub(crate) fn ready_file(&self, number: usize) -> PathBuf {
        self.path(&format!("{}.ready", self.nodes[number].name))
    }

    /// Restarts nodes that ended before they joined: a busy machine may not answer their first requests in time.
    fn restart_ended_at_start(&mut self, shards: u16) {
        for number in 0..self.nodes.len() {
            let Some(child) = &mut self.nodes[number].child else { continue };
            let ended = child.try_wait().unwrap().is_some_and(|status| status.code() == Some(STORE_FAILED));
            if ended && std::fs::metadata(self.ready_file(number)).unwrap().len() == 0 {
                eprintln!("a node ended at its start and is started again: {}", self.log(number));
                self.restarts += 1;
                self.start_node(number, shards);
            }
        }
    }

    /// Makes the next start of the node run the other version.
    pub(crate) fn change_version(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.program = if node.program == this_version() { other_version() } else { this_version() };
    }

    pub(crate) fn signal(&self, number: usize, name: &str) {
        let pid = self.nodes[number].child.as_ref().unwrap().id().to_string();
        let done = Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(done.success());
    }

    /// Waits for the exit of a node's process.
    pub(crate) fn ended(&mut self, number: usize) -> Option<i32> {
        self.nodes[number].child.take().unwrap().wait().unwrap().code()
    }

    pub(crate) fn kill(&mut self, number: usize) {
        self.signal(number, "KILL");
        self.ended(number);
    }

    /// Sends a request to a node, and retries while it gets no connection or response.
    pub(crate) fn ask(&self, number: usize, request: &str, headers: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.client.ask(self.nodes[number].port, request, headers, &body) {
                Ok(answer) => return answer,
                Err(error) => assert!(Instant::now() < give_up, "{request}: {error}\n{}", self.log(number)),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens a session as clients do: with a key, and with retries if the response asks for one. Returns its id.
    pub(crate) fn open(&self, number: usize, text: &str) -> String {
        let give_up = Instant::now() + PATIENCE;
        let key = format!("idempotency-key: open {}\r\n", self.opened.fetch_add(1, Ordering::Relaxed));
        loop {
            let (status, opened) = self.ask(number, "POST /v1/sessions", &key, &json!({"input": {"text": text}}));
            if status == 201 {
                return opened["session"]["id"].as_str().unwrap().to_owned();
            }
            // The node has left, or the shard has no owner yet.
            let asks_again = matches!(status, 502 | 503) && Instant::now() < give_up;
            assert!(asks_again, "{status} {opened}\n{}", self.log(number));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits for the end of a session's first run; returns its outcome.
    pub(crate) fn outcome(&self, number: usize, session: &str) -> Value {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let (status, run) = self.ask(
                number,
                &format!("GET /v1/sessions/{session}/runs/1?wait=true&timeout=20000"),
                "",
                &Value::Null,
            );
            if status == 200 && !run["outcome"].is_null() {
                return run["outcome"].clone();
            }
            assert!(Instant::now() < give_up, "{status} {run}\n{}", self.log(number));
        }
    }

    pub(crate) fn members(&self, number: usize) -> Value {
        self.ask(number, "GET /v1/nodes", "", &Value::Null).1
    }

    /// Returns the number of the node that owns the shard of a session. Waits while the shard has no owner.
    pub(crate) fn owner_of(&self, session: &str) -> usize {
        let key = session.replace('-', "");
        let sql = format!(
            "SELECT node.name FROM subtend.head JOIN subtend.shard ON shard.id = head.shard JOIN subtend.node ON node.lease = shard.lease \
             WHERE head.key = '\\x{key}'"
        );
        let give_up = Instant::now() + PATIENCE;
        loop {
            let node = self.server.sql(&sql);
            if let Some(owner) = self.nodes.iter().position(|known| known.name == node) {
                return owner;
            }
            assert!(Instant::now() < give_up, "session {session} has no owner\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn wait_for(&self, holds: impl Fn(&Value) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let live = self.nodes.iter().position(|node| node.child.is_some()).unwrap();
            let members = self.members(live);
            if holds(&members) {
                return;
            }
            assert!(Instant::now() < give_up, "{members}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// As [`Self::wait_for`], and restarts nodes that ended during their start.
    pub(crate) fn wait_with_restarts(&mut self, shards: u16, holds: impl Fn(&Value) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        loop {
            self.restart_ended_at_start(shards);
            let mut answers =
                self.nodes.iter().filter_map(|node| self.client.ask(node.port, "GET /v1/nodes", "", "").ok());
            let members = answers.next().map_or(Value::Null, |(_, members)| members);
            if holds(&members) {
                return;
            }
            assert!(Instant::now() < give_up, "{members}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn logs(&self) -> String {
        (0..self.nodes.len()).map(|at| self.log(at)).collect()
    }

    pub(crate) fn log(&self, number: usize) -> String {
        let text = std::fs::read_to_string(self.path(&self.nodes[number].name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("\"INFO\"")).collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    /// Shuts down all nodes in order.
    pub(crate) fn end(&mut self) {
        let live: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].child.is_some()).collect();
        live.iter().for_each(|at| self.signal(*at, "TERM"));
        for at in live {
            assert_eq!(self.ended(at), Some(0), "{}", self.log(at));
        }
    }

    /// Returns the lines that commands appended in the workspace.
    pub(crate) fn effects(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("workspace").join("effects")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.nodes.iter_mut().filter_map(|node| node.child.as_mut()) {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Returns the number of shards that live nodes own.
pub(crate) fn owned(members: &Value) -> usize {
    members["shards"].as_array().into_iter().flatten().filter(|shard| shard["node"].is_string()).count()
}

/// Returns the number of shards of each node by name.
pub(crate) fn shares(members: &Value) -> Vec<(String, usize)> {
    let mut shares = std::collections::BTreeMap::new();
    for shard in members["shards"].as_array().into_iter().flatten() {
        *shares.entry(shard["node"].as_str().unwrap_or("none").to_owned()).or_insert(0) += 1;
    }
    shares.into_iter().collect()
}
