//! `subtend serve` and its clients: sockets, tokens, logins, and shutdown.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use super::call::*;

use super::second_terminal::{ALWAYS, HANG};

pub(crate) struct ServedHost {
    pub(crate) host: RunningCommand,
    pub(crate) address: String,
    pub(crate) socket: String,
    login: String,
}

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

pub(crate) fn serve(user: &User, model: &str) -> ServedHost {
    serve_at(user, model, "127.0.0.1:0")
}

pub(crate) fn serve_at(user: &User, model: &str, address: &str) -> ServedHost {
    serve_with(user, &["--listen", address, "--model", model])
}

pub(crate) fn serve_with(user: &User, args: &[&str]) -> ServedHost {
    let listen: &[&str] = if args.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
    let host = user.start(&[&["serve", "--json"], listen, args].concat());
    let line: Value = serde_json::from_str(&host.line().expect("a line")).expect("JSON");
    assert_eq!((&line["type"], &line["pid"]), (&json!("serving"), &json!(host.pid())));
    let word = |name: &str| line[name].as_str().expect("a word").to_owned();
    ServedHost { address: word("address"), socket: word("socket"), login: word("login"), host }
}

fn http(mut stream: impl Read + Write, request: &str, headers: &str, body: &str) -> HttpResponse {
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).expect("the head is written");
    stream.write_all(body.as_bytes()).expect("the body is written");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a head in {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
    HttpResponse { status, head: head.to_owned(), body }
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    body
}

impl ServedHost {
    pub(crate) fn tcp(&self, request: &str, headers: &str, body: &str) -> HttpResponse {
        let stream = TcpStream::connect(&self.address).expect("connected");
        http(stream, request, &format!("host: {}\r\n{headers}", self.address), body)
    }

    pub(crate) fn unix(&self, request: &str, body: &str) -> HttpResponse {
        let stream = UnixStream::connect(&self.socket).expect("connected");
        http(stream, request, "host: local\r\ncontent-type: application/json\r\n", body)
    }

    /// Sends `body` over TCP to `request`, which names a session as `{id}`, with a token of the scope `act`.
    pub(crate) fn request_to_act(&self, user: &User, request: &str, body: &str) -> (u16, Value) {
        let id = self.completed_session("Good morning.");
        let made = user.succeeds(&["token", "create", "client", "--scope", "act"]);
        let headers = format!("authorization: Bearer {}\r\ncontent-type: application/json\r\n", made.out.trim());
        let reply = self.tcp(&request.replace("{id}", &id), &headers, body);
        (reply.status, reply.json()["code"].clone())
    }

    pub(crate) fn completed_session(&self, text: &str) -> String {
        let opened = self.unix("POST /v1/sessions", &json!({"input": {"text": text}}).to_string());
        assert_eq!(opened.status, 201, "{opened:?}");
        let id = opened.json()["session"]["id"].as_str().expect("an id").to_owned();
        let run = self.unix(&format!("GET /v1/sessions/{id}/runs/1?wait=true&timeout=60000"), "");
        assert_eq!(run.json()["outcome"], "completed", "{run:?}");
        id
    }
}

#[test]
fn host_serves_until_stopped_and_keeps_its_sessions() {
    let user = User::new();
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let id = serving.completed_session("Good morning.");
    let dir = Path::new(&serving.socket).parent().expect("a directory").to_owned();
    let mode = |path: &Path| std::fs::metadata(path).expect("an existing file").permissions().mode() & 0o777;
    assert_eq!((mode(&dir), mode(Path::new(&serving.socket))), (0o700, 0o600));
    let second = user.call(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, Some(3), "a second host has started: {second:?}");
    serving.host.signal("TERM");
    let socket = serving.socket.clone();
    let done = serving.host.done();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!Path::new(&socket).exists());
    let sessions = user.json(&["sessions", "--json"]);
    assert_eq!((&sessions[0]["id"], &sessions[0]["outcome"]), (&json!(id), &json!("completed")));
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn h7_requests_over_tcp_need_a_token_that_is_not_revoked() {
    let user = User::new();
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    assert_eq!(serving.tcp("GET /v1/sessions", "", "").status, 401);
    let made = user.succeeds(&["token", "create", "phone", "--scope", "read"]);
    let bearer = format!("authorization: Bearer {}\r\n", made.out.trim());
    assert_eq!(serving.tcp("GET /v1/sessions", &bearer, "").json(), json!({"items": [], "next": null}));
    let json = format!("{bearer}content-type: application/json\r\n");
    assert_eq!(serving.tcp("POST /v1/sessions", &json, "{}").json()["code"], "scope_too_small");
    let listed = user.json(&["token", "list", "--json"]);
    assert_eq!(listed, json!([{"name": "phone", "scope": "read"}]));
    assert_eq!(user.call(&["token", "revoke", "phone"]).code, Some(0));
    assert_eq!(serving.tcp("GET /v1/sessions", &bearer, "").status, 401);
    serving.host.signal("INT");
    assert_eq!(serving.host.done().code, Some(0));
}

#[test]
fn login_link_is_opened_once() {
    let user = User::new();
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let path = serving.login.split_once(&serving.address).expect("the address").1.to_owned();
    let opened = serving.tcp(&format!("GET {path}"), "", "");
    assert_eq!(opened.status, 303, "{opened:?}");
    let cookie = opened.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let cookie = format!("cookie: {}\r\n", cookie.split(';').next().expect("a pair"));
    assert_eq!(serving.tcp("GET /v1/sessions", &cookie, "").status, 200);
    assert_eq!(serving.tcp(&format!("GET {path}"), "", "").status, 401);
    // As another browser, or this browser after its login has ended.
    let made = user.succeeds(&["token", "login"]);
    let path = made.out.trim().split_once(&serving.address).expect("the address").1.to_owned();
    assert_eq!(serving.tcp(&format!("GET {path}"), "", "").status, 303);
    assert_eq!(serving.tcp("POST /login/links", "", "").status, 401, "over TCP it is not a resource");
    serving.host.stops();
    let none = user.call(&["token", "login"]);
    assert!(none.code == Some(2) && none.err.contains("no process hosts the store"), "{none:?}");
}

#[test]
fn h3_resent_prompt_runs_once_after_a_kill_of_the_host() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let open = |serving: &ServedHost| {
        let stream = UnixStream::connect(&serving.socket).expect("connected");
        let headers = "host: local\r\ncontent-type: application/json\r\nidempotency-key: invoice-17\r\n";
        http(stream, "POST /v1/sessions", headers, &json!({"input": {"text": "Pay the invoice."}}).to_string()).json()
    };
    let serving = serve(&user, &model);
    let first = open(&serving);
    serving.host.signal("KILL");
    drop(serving.host.done());
    let serving = serve(&user, &model);
    let again = open(&serving);
    assert_eq!(again["session"]["id"], first["session"]["id"]);
    assert_eq!((&again["input"]["input"], &again["input"]["again"]), (&first["input"]["input"], &json!(true)));
    let id = again["session"]["id"].as_str().expect("an id");
    let records = serving.unix(&format!("GET /v1/sessions/{id}/records"), "").json();
    let opened =
        records.as_array().expect("records").iter().filter(|stored| stored["record"]["run_opened"].is_object());
    assert_eq!(opened.count(), 1, "{records}");
    serving.host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// The choice of the client applies to the whole tree, because the agents make none.
#[test]
fn children_resume_with_a_session_opened_over_http() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [
            { "agent": "general", "steps": [
                { "fan_out": { "n": 2, "agent": "explore", "prompt": "Look at part {n}." } } ] },
            { "agent": "*", "steps": [ { "hang": true, "repeat": true } ] } ] }"#,
    );
    let serving = serve(&user, &model);
    let opened = |on_restart: &str| {
        let body = json!({"on_restart": on_restart, "input": {"text": "look"}}).to_string();
        let opened = serving.unix("POST /v1/sessions", &body).json();
        opened["session"]["id"].as_str().expect("an id").to_owned()
    };
    let children = |id: &str| {
        let tree = user.json(&["tree", id, "--json"]);
        let children = tree["children"].as_array().expect("children").iter();
        children.map(|child| (child["state"].clone(), child["outcome"].clone())).collect::<Vec<_>>()
    };
    let working = vec![(json!("working"), Value::Null); 2];
    let (resumed, lost) = (opened("resume"), opened("fail"));
    while [&resumed, &lost].map(|id| children(id)) != [working.clone(), working.clone()] {
        std::thread::yield_now();
    }
    serving.host.signal("KILL");
    drop(serving.host.done());
    let serving = serve(&user, &model);
    assert_eq!(children(&resumed), working);
    assert_eq!(children(&lost), vec![(json!("quiet"), json!("lost")); 2]);
    assert_eq!(user.call(&["cancel", &resumed]).code, Some(0));
    serving.host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn serve_refuses_options_without_effect() {
    let user = User::new();
    let memory = user.call(&["serve", "--store", "memory"]);
    assert_eq!(memory.code, Some(2), "{memory:?}");
    assert!(memory.err.contains("`serve` needs a store on disk"), "{memory:?}");
    let raw = user.call(&["serve", "--raw"]);
    assert_eq!(raw.code, Some(2), "{raw:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let address = taken.local_addr().expect("an address").to_string();
    let busy = user.call(&["serve", "--listen", &address]);
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(
        busy.err.contains(&format!("cannot listen on {address}")) && busy.err.contains("--listen ADDRESS"),
        "{busy:?}"
    );
    assert_eq!(user.call(&["token", "revoke", "none"]).code, Some(2));
}

/// A host in one directory opens sessions in another with that one's permissions, and finds them after a restart.
#[test]
fn h5_one_host_serves_two_workspaces() {
    let user = User::new();
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let other = user.data().with_file_name("other");
    std::fs::create_dir(&other).expect("a directory");
    let other = other.canonicalize().expect("its name");
    let writes = json!({"rules": [{"agent": "*", "steps": [
        {"calls": [{"tool": "write", "args": {"path": "made.txt", "content": "made"}}]},
        {"text": "wrote"},
    ]}]});
    let model = user.script(&writes.to_string());
    let open = json!({"workspace": other, "model": model, "allow": ["fs.write"], "input": {"text": "write"}});
    let opened = serving.unix("POST /v1/sessions", &open.to_string());
    assert_eq!(opened.status, 201, "{opened:?}");
    let id = opened.json()["session"]["id"].as_str().expect("an id").to_owned();
    let run = serving.unix(&format!("GET /v1/sessions/{id}/runs/1?wait=true&timeout=60000"), "");
    assert_eq!(run.json()["outcome"], "completed", "{run:?}");
    let made = |dir: &Path| dir.join("made.txt").exists();
    assert_eq!((made(&other), made(&user.workspace())), (true, false));
    let home_root = serving.completed_session("Good morning.");
    serving.host.stops();
    std::fs::remove_dir_all(&other).expect("removed");
    let serving = serve(&user, &user.script_named("hello", "Hello again."));
    let send = |id: &str| serving.unix(&format!("POST /v1/sessions/{id}/inputs"), r#"{"text": "and now?"}"#);
    let refused = send(&id);
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("invalid_input")), "{refused:?}");
    assert!(refused.body.contains(&*other.to_string_lossy()), "{refused:?}");
    assert_eq!(send(&home_root).status, 202);
    serving.host.stops();
}

/// Opens a session, and returns the hashes of its limits and of its permissions.
fn opened_bounds(serving: &ServedHost, open: &Value) -> [Value; 2] {
    let opened = serving.unix("POST /v1/sessions", &open.to_string());
    assert_eq!(opened.status, 201, "{opened:?}");
    let id = opened.json()["session"]["id"].as_str().expect("an id").to_owned();
    let records = serving.unix(&format!("GET /v1/sessions/{id}/records?limit=1"), "").json();
    let created = &records[0]["record"]["session_created"];
    ["limits", "ceiling"].map(|field| {
        assert!(created[field]["hash"].is_string(), "{records}");
        created[field]["hash"].clone()
    })
}

/// A list of models is loaded with the configuration of the directory, and still gets the limits of `serve`. The
/// controls: other limits in the request, and another directory.
#[test]
fn list_of_models_in_the_hosts_directory_has_its_limits() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let serving = serve_with(&user, &["--model", &model, "--limit", "turns=3", "--limit", "wall_ms=60000"]);
    let other = user.data().with_file_name("other");
    std::fs::create_dir(&other).expect("a directory");
    let limits = |open: Value| opened_bounds(&serving, &open)[0].clone();
    let own = limits(json!({}));
    let list = "offline,ollama/alpha";
    assert_eq!(limits(json!({"model": list})), own);
    assert_eq!(limits(json!({"model": list, "limits": {"turns": 7}})), limits(json!({"limits": {"turns": 7}})));
    assert_eq!(
        limits(json!({"model": list, "limits": {"wall_ms": null}})),
        limits(json!({"limits": {"wall_ms": null}}))
    );
    let elsewhere = limits(json!({"model": list, "workspace": other.canonicalize().expect("its name")}));
    assert_ne!(elsewhere, own);
    serving.host.signal("TERM");
    assert_eq!(serving.host.done().code, Some(0));
}

/// As for limits, such sessions get the host's permissions. The controls: rules in the request, another directory.
#[test]
fn list_of_models_in_the_hosts_directory_has_its_policy() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let serving = serve_with(&user, &["--model", &model, "--ask", "fs.read", "--allow", "fs.write=src/**"]);
    let other = user.data().with_file_name("other");
    std::fs::create_dir(&other).expect("a directory");
    let policy = |open: Value| opened_bounds(&serving, &open)[1].clone();
    let own = policy(json!({}));
    let list = "offline,ollama/alpha";
    assert_eq!(policy(json!({"model": list})), own);
    let asks = ["shell.run"];
    assert_eq!(policy(json!({"model": list, "ask": asks})), policy(json!({"ask": asks})));
    assert_ne!(policy(json!({"ask": asks})), own);
    let elsewhere = policy(json!({"model": list, "workspace": other.canonicalize().expect("its name")}));
    assert_ne!(elsewhere, own);
    serving.host.signal("TERM");
    assert_eq!(serving.host.done().code, Some(0));
}

#[test]
fn a11_limit_above_the_slots_of_the_serving_host_is_refused() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let args = ["serve", "--json", "--listen", "none", "--host", "slots=2", "--model", &model];
    let host = user.start(&args);
    let line: Value = serde_json::from_str(&host.line().expect("a line")).expect("JSON");
    let other = user.data().with_file_name("other");
    std::fs::create_dir(&other).expect("a directory");
    let open = |live_runs: u32| {
        std::fs::write(other.join("subtend.yaml"), format!("limits: {{live_runs: {live_runs}}}\n")).expect("written");
        assert_eq!(user.call(&["trust", "--yes", &other.to_string_lossy()]).code, Some(0));
        let stream = UnixStream::connect(line["socket"].as_str().expect("a socket")).expect("connected");
        http(
            stream,
            "POST /v1/sessions",
            "host: local\r\ncontent-type: application/json\r\n",
            &json!({"workspace": other}).to_string(),
        )
    };
    let refused = open(3);
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body.contains("the limit `live_runs` of 3 is above `slots` of the host, 2"), "{refused:?}");
    host.stops();
    let host = user.start(&args);
    let line: Value = serde_json::from_str(&host.line().expect("a line")).expect("JSON");
    std::fs::write(other.join("subtend.yaml"), "limits: {live_runs: 2}\n").expect("written");
    assert_eq!(user.call(&["trust", "--yes", &other.to_string_lossy()]).code, Some(0));
    let stream = UnixStream::connect(line["socket"].as_str().expect("a socket")).expect("connected");
    let opened = http(
        stream,
        "POST /v1/sessions",
        "host: local\r\ncontent-type: application/json\r\n",
        &json!({"workspace": other}).to_string(),
    );
    assert_eq!(opened.status, 201, "{opened:?}");
    host.stops();
}

#[test]
fn h8_log_has_a_line_for_each_request_with_its_trace() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    user.file(".subtend/agents/broken.md", "---\nmode: sideways\n---\nx\n");
    user.file("subtend.yaml", "no_such_key: 1\n");
    let host = user.start(&["serve", "--json", "--log", "json", "--listen", "none", "--model", &model]);
    let line: Value = serde_json::from_str(&host.line().expect("a line")).expect("JSON");
    let stream = UnixStream::connect(line["socket"].as_str().expect("a socket")).expect("connected");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let headers = format!("host: local\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let reply = http(stream, "GET /v1/sessions/none?limit=1", &headers, "");
    assert!(reply.head.contains(&format!("traceresponse: 00-{trace}-")), "{reply:?}");
    host.signal("TERM");
    let done = host.done();
    let parsed = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error} in {line}"));
    let lines: Vec<Value> = done.err.lines().map(parsed).collect();
    let has_end = |line: &Value| line["fields"]["message"].as_str().is_some_and(|text| text.contains("shutting down"));
    assert!(lines.iter().any(has_end), "notes are lines of the log: {done:?}");
    for warning in ["broken.md: `mode` must be primary", "unknown key `no_such_key`"] {
        let is = |line: &&Value| line["fields"]["message"].as_str().is_some_and(|text| text.contains(warning));
        assert_eq!(lines.iter().find(is).map(|line| &line["level"]), Some(&json!("WARN")), "{warning}: {done:?}");
    }
    let logged: Vec<Value> = lines.into_iter().filter(|line| line["fields"]["message"] == "answered").collect();
    let fields = |line: &Value| (line["fields"]["status"].clone(), line["spans"][0]["resource"].clone());
    assert_eq!(logged.iter().map(fields).collect::<Vec<_>>(), [(json!(404), json!("/v1/sessions/{id}"))], "{done:?}");
    let span = &logged[0]["spans"][0];
    assert_eq!((&span["trace_id"], &span["parent_id"]), (&json!(trace), &json!("00f067aa0ba902b7")));
    assert_eq!(span["path"], "/v1/sessions/none", "the query is logged");
    let refused = user.call(&["serve", "--json", "--log", "json", "--listen", "192.0.2.1:1", "--model", &model]);
    let last: Value = refused.err.lines().last().map(parsed).expect("a line");
    assert_eq!((refused.code, &last["level"]), (Some(1), &json!("ERROR")), "{refused:?}");
    let lines: Vec<_> = refused.err.lines().map(parsed).collect();
    assert!(lines.len() > 1, "{refused:?}");
    let alone = user.call(&["serve", "--log", "json"]);
    assert_eq!(alone.code, Some(2), "without `--log` the login link would be lost: {alone:?}");
}

/// An exported variable is a default for commands that host the store themselves; it does not change another host.
#[test]
fn h1_exported_model_variables_do_not_stop_host_commands() {
    let user = User::new();
    let model = user.script(ALWAYS);
    let host = user.start(&["serve", "--json", "--listen", "none", "--model", &model]);
    host.line().expect("the first line of the host");
    let exported = |text: &str, args: &[&str], stdin: &str| {
        let mut command = user.command(args);
        command.env("SUBTEND_MODEL", text).env("SUBTEND_BASE_URL", "http://127.0.0.1:9");
        RunningCommand::start(command, stdin).done()
    };
    let first = user.call(&["run", "--json", "one"]);
    let id = last_event(&first.out)["session"].as_str().expect("an id").to_owned();
    let sent = exported("openai/other", &["send", &id, "two"], "");
    assert_eq!((sent.code, &*sent.out), (Some(0), "Hello.\n"), "{sent:?}");
    let note =
        format!("SUBTEND_MODEL is not used: process {} hosts the store, and the session keeps its model", host.pid());
    assert!(sent.err.contains(&note), "{sent:?}");
    let chat = exported("openai/other", &["chat", &id], "three\n");
    assert_eq!((chat.code, &*chat.out), (Some(0), "Hello.\n"), "{chat:?}");
    for args in [
        &["tree", &id][..],
        &["show", &id],
        &["sessions"],
        &["usage", &id],
        &["approvals"],
        &["regenerate", &id],
        &["summary", &id],
        &["condense", &id],
        &["close", &id],
        &["continue", &id],
        &["verify"],
    ] {
        let done = exported("openai/other", args, "");
        assert_eq!(done.code, user.call(args).code, "{args:?}: {done:?}");
        assert!(!done.err.contains("leave it out"), "{args:?}: {done:?}");
    }
    // A new session is opened with the exported values, as if this process hosted the store.
    let new = exported("offline", &["run", "--json", "hi"], "");
    assert_eq!(new.code, Some(0), "{new:?}");
    let id = last_event(&new.out)["session"].as_str().expect("an id").to_owned();
    let shown = user.json(&["show", &id, "--json"]);
    let answer = shown["entries"].as_array().expect("entries").iter().find(|entry| entry["type"] == "answer");
    assert_eq!(answer.expect("an answer")["model"], json!("offline"));
    let script = exported(&model, &["run", "hi"], "");
    assert_eq!(
        (script.code, script.err.contains("which only the command line can name")),
        (Some(2), true),
        "{script:?}"
    );
    // An option of the command line is refused, not ignored.
    for option in ["--model", "--base-url"] {
        let refused = user.call(&["send", &id, "x", option, "openai/other"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(
            refused.err.contains(&format!("`{option}`: the store is hosted by process {}", host.pid())),
            "{refused:?}"
        );
    }
    host.stops();
}

/// A host serves sessions of many directories: a slash command comes from the session's, wherever it is sent from.
#[test]
fn x7_slash_commands_come_from_the_session_directory() {
    let user = User::new();
    let echo = json!({"rules": [{"agent": "*", "steps": [{"text": "{last}", "repeat": true}]}]});
    let model = user.script(&echo.to_string());
    let other = user.data().with_file_name("other");
    for (folder, text) in [(user.workspace(), "Greet from here: $1."), (other.clone(), "Greet from there: $1.")] {
        std::fs::create_dir_all(folder.join(".claude/commands")).expect("a folder");
        std::fs::write(folder.join(".claude/commands/greet.md"), text).expect("a file");
        assert_eq!(user.call(&["trust", "--yes", &folder.to_string_lossy()]).code, Some(0));
    }
    let serving = serve(&user, &model);
    let opened = |folder: &Path| {
        let done =
            user.call(&["run", "--json", "--model", &model, "--workspace", &folder.to_string_lossy(), "/greet me"]);
        let end = last_event(&done.out);
        (end["session"].as_str().expect("an id").to_owned(), end["answer"].clone())
    };
    let (here, there) = (opened(&user.workspace()), opened(&other));
    assert_eq!([here.1, there.1], [json!("Greet from here: me."), json!("Greet from there: me.")]);
    for (id, place) in [(&here.0, "here"), (&there.0, "there")] {
        let message = format!("Greet from {place}: you.\n");
        let sent = user.call(&["send", id, "/greet you"]);
        assert_eq!((sent.code, &*sent.out), (Some(0), &*message), "{sent:?}");
        let chat = user.call_with(&["chat", id], "/greet you\n");
        assert_eq!((chat.code, &*chat.out), (Some(0), &*message), "{chat:?}");
        let slip = user.call(&["send", id, "/gret you"]);
        assert!(slip.code == Some(2) && slip.err.contains("unknown command /gret: did you mean /greet? "), "{slip:?}");
        assert_eq!(user.call(&["send", id, " /greet you"]).out, " /greet you\n", "a text");
        // Clients of the API must request the expansion.
        let post = |body: Value| {
            let stream = UnixStream::connect(&serving.socket).expect("connected");
            let headers = "host: localhost\r\ncontent-type: application/json\r\n";
            http(stream, &format!("POST /v1/sessions/{id}/inputs"), headers, &body.to_string())
        };
        let answer = |accepted: &HttpResponse| {
            let path =
                format!("/v1/sessions/{id}/inputs/{}?wait=true", accepted.json()["input"].as_str().expect("an id"));
            let stream = UnixStream::connect(&serving.socket).expect("connected");
            http(stream, &format!("GET {path}"), "host: localhost\r\n", "").json()["text"].clone()
        };
        let expanded = post(json!({"text": "/greet you", "expand": true}));
        assert_eq!(answer(&expanded), json!(message.trim_end()));
        assert_eq!(answer(&post(json!({"text": "/greet you"}))), json!("/greet you"), "a text");
        let refused = post(json!({"text": "/gret you", "expand": true}));
        let detail = "unknown command /gret: did you mean /greet? leave `expand` out to send it as text";
        assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("unknown_command")));
        assert_eq!(refused.json()["detail"], json!(detail));
    }
    let sessions = user.json(&["sessions", "--json"]).as_array().map(Vec::len);
    let open = json!({"workspace": other, "input": {"text": "/gret", "expand": true}}).to_string();
    let stream = UnixStream::connect(&serving.socket).expect("connected");
    let refused = http(stream, "POST /v1/sessions", "host: localhost\r\ncontent-type: application/json\r\n", &open);
    assert_eq!((refused.status, &refused.json()["code"]), (422, &json!("unknown_command")));
    assert_eq!(
        user.json(&["sessions", "--json"]).as_array().map(Vec::len),
        sessions,
        "a session was opened for a refused command"
    );
    serving.host.stops();
}

/// Starts a command whose stderr is in its stdout.
fn start_merged(user: &User, args: &[&str]) -> RunningCommand {
    let plain = user.command(args);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(user.workspace()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    RunningCommand::start(command, "")
}

fn until_line(command: &RunningCommand, word: &str) -> String {
    loop {
        let line = command.line().unwrap_or_else(|| panic!("no line with {word:?}"));
        if line.contains(word) {
            return line;
        }
    }
}

/// The host of a detached run ends with it, and the waiting host takes over. Nothing waits for a permanent host.
#[test]
fn h2_serve_waits_for_the_host_of_a_detached_run() {
    let user = User::new();
    let model = user.script(HANG);
    let left = user.call(&["run", "--detach", "--model", &model, "hang"]);
    let id = left.out.trim().to_owned();
    let args = ["serve", "--json", "--listen", "none", "--model", &model];
    let stopped = start_merged(&user, &args);
    until_line(&stopped, "Ctrl-C stops waiting");
    stopped.signal("INT");
    assert_eq!(stopped.done().code, Some(130));
    assert_eq!(user.json(&["tree", &id, "--json"])["state"], json!("working"));
    let waiting = start_merged(&user, &args);
    let note = until_line(&waiting, "waiting for process");
    assert!(note.contains("`subtend cancel ID` ends a run"), "{note}");
    assert_eq!(user.call(&["cancel", &id]).code, Some(0));
    let line: Value = serde_json::from_str(&until_line(&waiting, "\"serving\"")).expect("JSON");
    assert_eq!(line["pid"], json!(waiting.pid()));
    let second = user.call(&args);
    assert_eq!(second.code, Some(3), "{second:?}");
    assert!(second.err.contains(&format!("is served by process {} already", waiting.pid())), "{second:?}");
    waiting.stops();
}
