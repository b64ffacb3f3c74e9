//! A named model answers or the command fails. Records name the model that answered.

use std::io::{BufRead as _, Read as _, Write as _};
use std::sync::{Arc, Mutex};

use super::call::*;

/// A server for OpenAI's chat protocol: each model answers `from MODEL`, and requests are recorded.
struct EchoServer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl EchoServer {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if let Some(model) = answer(stream) {
                    kept.lock().expect("the list").push(model);
                }
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().expect("the list"))
    }
}

fn answer(mut stream: TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let model = body["model"].as_str()?.to_owned();
    let text = body["messages"].to_string();
    let delta = match text.contains("start a minion")
        && !text.contains("minionChatId\\\\\\\"")
        && !text.contains("\"tool\"")
    {
        true => json!({"role": "assistant", "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {
            "name": "minion", "arguments": "{\"message\": \"scan\", \"enableWeb\": false, \"enabledTools\": []}"}}]}),
        false => json!({"role": "assistant", "content": format!("from {model}")}),
    };
    let reason = if delta["tool_calls"].is_null() { "stop" } else { "tool_calls" };
    let chunk = |delta: Value, reason: Value| json!({"model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let events = [chunk(delta, Value::Null), chunk(json!({}), json!(reason))];
    let body: String =
        events.iter().map(|event| format!("data: {event}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).ok()?;
    Some(model)
}

/// A session that `openai/alpha` answered, and the server of its models.
fn session() -> (User, EchoServer, String) {
    let (user, server) = (User::new(), EchoServer::new());
    user.file("subtend.yaml", "sessions: {titles: false}\n");
    let done = user.call(&["run", "--quiet", "--model", "openai/alpha", "--base-url", &server.url, "hello"]);
    assert_eq!((done.code, &*done.out), (Some(0), "from alpha\n"), "{done:?}");
    server.requests();
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    (user, server, id)
}

fn repeating_script(user: &User, text: &str) -> String {
    user.script(&json!({"rules": [{"agent": "*", "steps": [{"text": text, "repeat": true}]}]}).to_string())
}

fn answers(user: &User, id: &str) -> Vec<(String, String)> {
    let shown = user.json(&["show", "--json", id]);
    let entries = shown["entries"].as_array().expect("entries").iter().filter(|entry| entry["type"] == "answer");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries.map(|entry| (text(&entry["agent"]), text(&entry["model"]))).collect()
}

#[test]
fn a6_named_model_answers_in_an_existing_session() {
    let (user, server, id) = session();
    let beta = ["--quiet", "--model", "openai/beta", "--base-url", &server.url];
    let verbs = [vec!["send", &id, "again"], vec!["continue", &id], vec!["regenerate", &id]];
    for verb in &verbs {
        let done = user.call(&[&verb[..], &beta].concat());
        assert_eq!((done.code, &*done.out), (Some(0), "from beta\n"), "{verb:?}: {done:?}");
        assert_eq!(server.requests(), ["beta"], "{verb:?}");
    }
    let chat = user.call_with(&[&["chat", &id][..], &beta].concat(), "hello\n");
    assert_eq!(
        (chat.code, &*chat.out, server.requests()),
        (Some(0), "from beta\n", vec!["beta".to_owned()]),
        "{chat:?}"
    );
    for verb in &verbs {
        let mut command = user.command(&[&verb[..], &["--quiet", "--base-url", &server.url]].concat());
        command.env("SUBTEND_MODEL", "openai/gamma");
        let by_variable = super::call::RunningCommand::start(command, "").done();
        assert_eq!((by_variable.code, &*by_variable.out), (Some(0), "from gamma\n"), "{verb:?}: {by_variable:?}");
        assert_eq!(server.requests(), ["gamma"], "{verb:?}");
    }
    let script = repeating_script(&user, "from a script");
    let scripted = user.call(&["send", &id, "again", "--quiet", "--model", &script]);
    assert_eq!((scripted.code, &*scripted.out), (Some(0), "from a script\n"), "{scripted:?}");
    server.requests();
    let own = user.call(&["send", &id, "again", "--quiet", "--base-url", &server.url]);
    assert_eq!(
        (own.code, &*own.out, server.requests()),
        (Some(0), "from alpha\n", vec!["alpha".to_owned()]),
        "{own:?}"
    );
}

#[test]
fn g11_summaries_use_the_sessions_own_model() {
    let (user, server, id) = session();
    user.file("subtend.yaml", "sessions: {titles: false}\nllm: {pools: {cheap: [openai/tiny]}}\n");
    let by = |more: &[&str]| {
        let args = ["summary", &id, "--base-url", &server.url];
        let done = user.succeeds(&[&args[..], more].concat());
        (done.out, server.requests())
    };
    assert_eq!(by(&[]), ("from alpha\n".to_owned(), vec!["alpha".to_owned()]));
    assert_eq!(by(&["--model", "openai/beta"]), ("from beta\n".to_owned(), vec!["beta".to_owned()]));
    let (other, _) = (user.call(&["send", &id, "again", "--quiet", "--base-url", &server.url]), server.requests());
    assert_eq!(other.code, Some(0), "{other:?}");
    let closed = user.call(&["close", &id, "--base-url", &server.url]);
    assert_eq!((closed.code, &*closed.err, server.requests()), (Some(0), "", vec!["alpha".to_owned()]), "{closed:?}");
    assert_eq!(user.json(&["show", "--json", &id])["summary"], json!("from alpha"));
}

#[test]
fn a6_show_prints_model_and_agent_of_each_answer() {
    let (user, server, id) = session();
    let beta = ["--quiet", "--base-url", &server.url, "--model", "openai/beta", "--agent", "plan"];
    assert_eq!(user.call(&[&["send", &id, "plan it"][..], &beta].concat()).code, Some(0));
    let script = repeating_script(&user, "from a script");
    assert_eq!(user.call(&["send", &id, "again", "--quiet", "--model", &script]).code, Some(0));
    let pair = |agent: &str, model: &str| (agent.to_owned(), model.to_owned());
    assert_eq!(
        answers(&user, &id),
        [pair("general", "openai/alpha"), pair("plan", "openai/beta"), pair("plan", &script)]
    );
    let text = user.call(&["show", &id]).out;
    assert!(text.contains(" · plan · openai/beta · "), "{text}");
}

/// All outputs show the full name of a model, with its provider.
#[test]
fn a6_model_has_one_name_in_show_records_and_errors() {
    let (user, server, id) = session();
    let shown = user.json(&["show", "--json", &id]);
    let answer = &shown["entries"].as_array().expect("entries").iter().find(|entry| entry["type"] == "answer");
    assert_eq!(
        (&shown["model"], &answer.expect("an answer")["model"]),
        (&json!("openai/alpha"), &json!("openai/alpha"))
    );
    assert!(user.call(&["export", &id]).out.contains(r#""model":"openai/alpha""#));
    assert!(!user.call(&["export", &id]).out.contains(r#""model":"alpha""#));
    let limited =
        ["--quiet", "--base-url", &server.url, "--limit", "cost_micro=5000000", "--price", "openai/alpha=1,1"];
    let run = |model: &str| user.call(&[&["run", "hi", "--model", model], &limited[..]].concat());
    assert_eq!(run("openai/alpha").code, Some(0));
    for model in ["openai/beta", "openai/alpha,openai/beta"] {
        let done = run(model);
        assert!(done.code == Some(2) && done.err.contains("the model `openai/beta` has no price"), "{done:?}");
    }
    let rows = user.json(&["sessions", "--json"]);
    let priced = rows.as_array().expect("rows").iter().find(|row| row["id"] != *id).expect("a session")["id"].clone();
    let sent = user.call(&[
        "send",
        priced.as_str().expect("an id"),
        "again",
        "--base-url",
        &server.url,
        "--price",
        "openai/alpha=1,1",
        "--model",
        "openai/alpha,openai/beta",
    ]);
    assert!(sent.code == Some(2) && sent.err.contains("the model `openai/beta` has no price"), "{sent:?}");
}

/// A script is shown by the name that the user gave, and answers only if the user names it.
#[test]
fn a6_script_has_one_name_in_show_records_and_errors() {
    let user = User::new();
    user.file("play.json", r#"{ "name": "other", "rules": [ { "agent": "*", "steps": [ { "text": "played" } ] } ] }"#);
    let done = user.call(&["run", "--model", "scripted:play.json", "--json", "go"]);
    assert!(done.err.contains("model: scripted:play.json (--model)\n"), "{done:?}");
    let end = last_event(&done.out);
    let id = end["session"].as_str().expect("an id");
    assert_eq!(user.json(&["show", "--json", id])["model"], json!("scripted:play.json"));
    assert_eq!(answers(&user, id), [("general".to_owned(), "scripted:play.json".to_owned())]);
    assert!(user.call(&["export", id]).out.contains(r#""model":"scripted:play.json""#));
    let own = user.call(&["send", id, "again"]);
    let expected = "the session's own model cannot answer: `scripted:play.json` is a script, which only the command line can name: add `--model scripted:play.json`";
    assert!(own.code == Some(2) && own.err.contains(expected), "{own:?}");
}

#[test]
fn a6_unusable_model_fails_at_the_start() {
    let (user, server, id) = session();
    let before = user.json(&["show", "--json", &id]);
    let assert_refused = |done: CommandOutput, text: &str| {
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(text), "{done:?}");
    };
    assert_refused(
        user.call(&["send", &id, "x", "--model", "scripted:/gone.json"]),
        "the script /gone.json cannot be read",
    );
    assert_refused(user.call(&["send", &id, "x", "--model", "opnai/x"]), "did you mean `openai/x`?");
    assert_eq!(user.json(&["show", "--json", &id]), before);
    // The session keeps the server that was named when it was opened, which needs no key.
    let mut command = user.command(&["send", &id, "x"]);
    command.env_remove("OPENAI_API_KEY");
    let own = super::call::RunningCommand::start(command, "").done();
    assert_eq!((own.code, &*own.out), (Some(0), "from alpha\n"), "{own:?}");
    user.file(".subtend/agents/played.md", "---\nmode: all\nmodel: scripted:/gone.json\n---\nPlay.\n");
    assert_refused(
        user.call(&["run", "x", "--agent", "played"]),
        "the model of the agent `played` cannot answer: `scripted:/gone.json` is a script",
    );
    drop(server);
}

#[test]
fn a6_model_of_the_agent_answers_when_none_is_named() {
    let (user, server) = (User::new(), EchoServer::new());
    user.file(".subtend/agents/other.md", "---\nmode: all\nmodel: openai/gamma\n---\nServe.\n");
    user.file(".subtend/agents/served.md", "---\nmode: all\nmodel: openai/delta\n---\nServe.\n");
    user.file("subtend.yaml", "sessions: {titles: false}\nllm: {model: openai/alpha}\n");
    let run = |agent: &str, more: &[&str]| {
        let args = ["run", "--quiet", "hi", "--agent", agent, "--base-url", &server.url];
        user.call(&[&args[..], more].concat()).out
    };
    assert_eq!(run("other", &[]), "from gamma\n");
    assert_eq!(run("served", &[]), "from delta\n");
    assert_eq!(run("served", &["--model", "openai/beta"]), "from beta\n", "the option must override the agent's file");
}

#[test]
fn a6_tool_option_names_the_answering_model() {
    let (user, server) = (User::new(), EchoServer::new());
    let options = "{systemPrompt: \"\", model: openai/beta}";
    user.file(
        "subtend.yaml",
        &format!("sessions: {{titles: false}}\ntools: {{minion: {{enabled: true, options: {options}}}}}\n"),
    );
    let args = ["run", "--quiet", "--model", "openai/alpha", "--base-url", &server.url, "start a minion"];
    let done = user.call(&args);
    assert_eq!((done.code, &*done.out), (Some(0), "from alpha\n"), "{done:?}");
    let all = user.json(&["sessions", "--all", "--json"]);
    let rows = all.as_array().expect("rows");
    let child = rows.iter().find(|row| row["parent"].is_string() || row["depth"] == 1).expect("a minion");
    assert_eq!(
        answers(&user, child["id"].as_str().expect("an id")),
        [("general".to_owned(), "openai/beta".to_owned())]
    );
}

/// A model without a server answers where the option names it; a script is refused there.
#[test]
fn a6_tool_option_accepts_offline_and_refuses_a_script() {
    let (user, server) = (User::new(), EchoServer::new());
    let run = |model: &str| {
        let options = format!("{{systemPrompt: \"\", model: {model}}}");
        user.file(
            "subtend.yaml",
            &format!("sessions: {{titles: false}}\ntools: {{minion: {{enabled: true, options: {options}}}}}\n"),
        );
        user.call(&["run", "--quiet", "--model", "openai/alpha", "--base-url", &server.url, "start a minion"])
    };
    let done = run("offline");
    assert_eq!((done.code, &*done.out), (Some(0), "from alpha\n"), "{done:?}");
    assert_eq!(server.requests(), ["alpha", "alpha"], "the minion called a server");
    let all = user.json(&["sessions", "--all", "--json"]);
    let child = all.as_array().expect("rows").iter().find(|row| row["parent"].is_string() || row["depth"] == 1);
    let child = child.expect("a minion")["id"].as_str().expect("an id").to_owned();
    let models: Vec<String> = answers(&user, &child).into_iter().map(|(_, model)| model).collect();
    assert!(!models.is_empty() && models.iter().all(|model| model == "offline"), "{models:?}");
    let script = repeating_script(&user, "from a script");
    for model in [&*script, "scripted:/gone.json"] {
        let refused = run(model);
        let expected =
            format!("`tools.minion.options.model`: `{model}` is a script, which only the command line can name");
        assert!(refused.code == Some(2) && refused.err.contains(&expected), "{refused:?}");
        assert_eq!(server.requests(), Vec::<String>::new(), "a server was called");
    }
}

#[test]
fn a6_replaced_model_of_a_tool_option_is_a_warning() {
    let user = User::new();
    user.file("subtend.yaml", "tools: {minion: {enabled: true, options: {systemPrompt: \"\", model: openai/beta}}}\n");
    let text = user.call(&["run", "--model", "offline", "hi"]).err;
    let warns = "`tools.minion.options.model`: `offline` answers instead of `openai/beta`, since no model with a server is named";
    assert!(text.lines().any(|line| line.contains(warns)), "{text}");
    user.file("subtend.yaml", "tools: {minion: {enabled: true, options: {systemPrompt: \"\", model: offline}}}\n");
    assert!(!user.call(&["run", "--model", "offline", "hi"]).err.contains("tools.minion"));
}

#[test]
fn s6_default_pool_answers_and_agents_use_theirs() {
    let (user, server) = (User::new(), EchoServer::new());
    user.file(".subtend/agents/frugal.md", "---\nmode: primary\npool: cheap\n---\nYou save.\n");
    let pools = "llm:\n  default_pool: smart\n  pools:\n    smart: [openai/alpha]\n    cheap: [openai/beta]\n";
    user.file("subtend.yaml", &format!("sessions: {{titles: false}}\n{pools}"));
    let run = |args: &[&str]| user.call(&[&["run", "--base-url", &server.url], args, &["hi"]].concat()).out;
    assert_eq!([run(&[]), run(&["--agent", "frugal"])], ["from alpha\n", "from beta\n"]);
}
