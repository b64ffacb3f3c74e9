//! The web tools in the command: when they are offered, what they request, and how they are listed.

use super::call::*;
use crate::attacks::web_server::{WebServer, send};

fn write_config(user: &User, text: &str) {
    let file = user.config().join("subtend/subtend.yaml");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(file, text).expect("a file");
}

/// Runs one call and returns the transcript, which has its result.
fn run_call(user: &User, call: serde_json::Value, more: &[&str]) -> String {
    run_rules(user, json!([{"agent": "*", "steps": [{"calls": [call]}, {"text": "over"}]}]), more)
}

fn run_rules(user: &User, rules: serde_json::Value, more: &[&str]) -> String {
    let model = user.script(&json!({ "rules": rules }).to_string());
    let store = format!("redb:{}", user.data().display());
    user.succeeds(&[&["run", "--store", &store, "--model", &model, "--quiet", "go"], more].concat());
    let sessions = user.json(&["sessions", "--json", "--store", &store]);
    let id = sessions[0]["id"].as_str().expect("an id").to_owned();
    user.call(&["show", &id, "--store", &store]).out
}

#[test]
fn r13_fetch_shows_a_page_as_markdown() {
    let user = User::new();
    let server = WebServer::page("content-type: text/html\r\n", "<h1>Title</h1><p>See <a href=/b>this</a>.");
    write_config(&user, &format!("web: {{internal_hosts: [\"{}\"]}}", server.host()));
    let call = json!({"tool": "fetch", "args": {"url": server.url()}});
    let shown = run_call(&user, call.clone(), &["--allow", &format!("net.fetch={}*", server.url())]);
    let expected = format!("# Title\n\nSee [this]({}b).", server.url());
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat(&shown).contains(&flat(&expected)), "{shown}");
    // The control: without a rule the call needs an approval, and no approver is attached.
    let request_count = server.heads().len();
    let shown = run_call(&User::new(), call, &[]);
    assert!(!shown.contains("# Title") && server.heads().len() == request_count, "{shown}");
}

#[test]
fn r13_web_search_asks_the_configured_engine() {
    let user = User::new();
    let hit = json!({"results": [{"url": "https://a.example/", "title": "A page", "content": "of it"}]});
    let server = WebServer::page("content-type: application/json\r\n", hit.to_string());
    write_config(&user, &format!("web: {{search: {{engine: searxng, url: \"{}\"}}}}", server.url()));
    let call = json!({"tool": "web_search", "args": {"query": "words"}});
    let shown = run_call(&user, call, &["--allow", "net.search"]);
    assert!(shown.contains("https://a.example/") && shown.contains("A page"), "{shown}");
}

/// The agent `research` has `web_search` only if an engine is configured, and otherwise no tool with that name.
#[test]
fn r13_research_without_an_engine_has_no_web_search() {
    let user = User::new();
    let hit = json!({"results": [{"url": "https://a.example/", "title": "A page", "content": "of it"}]});
    let server = WebServer::page("content-type: application/json\r\n", hit.to_string());
    let start = json!({"tool": "task", "args": {"subagent_type": "research", "prompt": "go"}});
    let call = json!({"tool": "web_search", "args": {"query": "words"}});
    let rules = json!([
        {"agent": "general", "steps": [{"calls": [start]}, {"text": "over"}]},
        {"agent": "research", "steps": [{"calls": [call]}, {"text": "heard: {last}"}]},
    ]);
    let search = || run_rules(&user, rules.clone(), &["--allow", "task:*", "--allow", "net.search"]);
    let shown = search();
    assert!(shown.contains("heard: ") && shown.contains("web_search") && !shown.contains("A page"), "{shown}");
    assert!(server.heads().is_empty(), "{shown}");
    write_config(&user, &format!("web: {{search: {{engine: searxng, url: \"{}\"}}}}", server.url()));
    let shown = search();
    assert!(shown.contains("A page") && server.heads().len() == 1, "{shown}");
}

#[test]
fn r13_listing_and_doctor_report_the_web_tools() {
    let user = User::new();
    let listed = user.json(&["tools", "list", "--json"]);
    assert!(listed["tools"].as_array().is_some_and(|all| all.contains(&json!("fetch"))), "{listed}");
    assert_eq!(listed["web"], json!(["`web_search` is not offered: no search engine is configured (`web.search`)"]));
    user.file(
        ".subtend/agents/seeker.md",
        "---\nmode: all\ndescription: Seeks.\ntools: [fetch, web_search]\n---\nSeek.\n",
    );
    user.file(
        ".claude/agents/finder.md",
        "---\nname: finder\ndescription: d\ntools: WebFetch, WebSearch\n---\nFind.\n",
    );
    let agents = user.json(&["agents", "--json"]);
    let why = "`tools`: the tool `web_search` is missing: no search engine is configured (`web.search` in your own subtend.yaml); it is not \
               offered";
    let texts: Vec<_> =
        agents["warnings"].as_array().expect("a list").iter().map(|one| one["message"].clone()).collect();
    assert_eq!(texts, [json!(why), json!(why)]);
    write_config(&user, "web: {internal_hosts: [wiki.example], search: {engine: brave}}");
    let mut command = user.command(&["tools", "list", "--json"]);
    command.env("BRAVE_API_KEY", "a-key-of-brave");
    let listed = super::call::RunningCommand::start(command, "").done();
    let listed: serde_json::Value = serde_json::from_str(&listed.out).expect("JSON");
    assert_eq!(listed["web"], json!(["`web_search` asks Brave", "`fetch` may also reach wiki.example"]));
    let listed = user.json(&["tools", "list", "--json"]);
    let unset = "`web_search` is not offered: the variable BRAVE_API_KEY with the key of Brave is not set";
    assert_eq!(listed["web"][0], json!(unset));
    let doctor = user.call(&["doctor", "--store", "memory"]);
    assert!(doctor.out.contains(&format!("web: {unset}; `fetch` may also reach wiki.example")), "{doctor:?}");
}

/// A proxy receives requests with the whole address, and resolves names that the system does not know.
#[test]
fn r13_proxies_are_used() {
    let user = User::new();
    let proxy = WebServer::start(|head, stream| {
        let line = head.lines().next().unwrap_or_default().to_owned();
        send(stream, "200 OK", "content-type: text/plain\r\n", format!("proxied {line}").as_bytes());
    });
    let step = json!({"calls": [{"tool": "fetch", "args": {"url": "http://nowhere.invalid/a"}}, {"tool": "fetch", "args": {"url": "http://127.0.0.1:1/"}}]});
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": [step, {"text": "over"}]}]}).to_string());
    let mut command =
        user.command(&["run", "--store", "memory", "--model", &model, "--json", "--allow", "net.fetch", "go"]);
    command.env("http_proxy", format!("http://127.0.0.1:{}", proxy.port)).env_remove("no_proxy").env_remove("NO_PROXY");
    let done = super::call::RunningCommand::start(command, "").done();
    assert_eq!(done.code, Some(0), "{done:?}");
    let request_lines: Vec<String> =
        proxy.heads().iter().filter_map(|head| head.lines().next().map(str::to_owned)).collect();
    assert_eq!(request_lines, ["GET http://nowhere.invalid/a HTTP/1.1"]);
}
