use super::call::*;

const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {last}", "repeat": true } ] } ] }"#;

struct AnsweredSession {
    user: User,
    model: String,
    id: String,
}

impl AnsweredSession {
    fn start() -> Self {
        let user = User::new();
        let model = user.script(ECHO);
        let done = user.succeeds(&["run", "--json", "--model", &model, "first"]);
        let end = last_event(&done.out);
        let id = end["session"].as_str().expect("an id").to_owned();
        Self { user, model, id }
    }

    /// Returns the output of a verb that runs agents.
    fn run_verb(&self, args: &[&str]) -> String {
        let done = self.user.call(&[args, &["--quiet", "--model", &self.model]].concat());
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        done.out
    }

    /// Returns the output of a verb that changes or reads sessions.
    fn call_verb(&self, args: &[&str]) -> String {
        let done = self.user.call(args);
        assert_eq!(done.code, Some(0), "{args:?}: {done:?}");
        done.out
    }

    /// Returns the messages of a session: type and text, with their records.
    fn messages(&self, id: &str) -> Vec<(String, String)> {
        let shown = self.user.json(&["show", "--json", id]);
        let entries = shown["entries"].as_array().expect("entries").iter();
        let texts = entries.filter(|entry| entry["text"].is_string() && entry["seq"].is_u64());
        let short = shown["short"].as_str().expect("a name").to_owned();
        texts
            .map(|entry| (format!("{short}:{}", entry["seq"]), entry["text"].as_str().expect("text").to_owned()))
            .collect()
    }
}

#[test]
fn session_continues_with_its_transcript_after_a_close() {
    let answered = AnsweredSession::start();
    assert_eq!(answered.run_verb(&["send", &answered.id, "second"]), "heard: second\n");
    assert!(answered.call_verb(&["close", &answered.id]).contains("is closed"));
    assert!(answered.call_verb(&["close", &answered.id]).contains("is closed"), "the second close failed");
    assert_eq!(answered.run_verb(&["send", &answered.id, "--steer", "third"]), "heard: third\n");
    assert_eq!(answered.run_verb(&["continue", &answered.id]), "heard: Continue your previous work.\n");
    let texts: Vec<_> = answered.messages(&answered.id).into_iter().map(|(_, text)| text).collect();
    let all = ["first", "heard: first", "second", "heard: second", "third", "heard: third"];
    assert_eq!(texts[..6], all);
    assert_eq!(answered.user.call(&["verify"]).code, Some(0));
}

#[test]
fn branch_has_only_the_messages_before_it() {
    let answered = AnsweredSession::start();
    answered.run_verb(&["send", &answered.id, "second"]);
    let first = answered.messages(&answered.id)[1].0.clone();
    let branch = answered.call_verb(&["branch", &first, "--title", "another way"]);
    let branch = branch.trim();
    assert_eq!(answered.run_verb(&["send", branch, "aside"]), "heard: aside\n");
    assert_eq!(answered.messages(&answered.id).len(), 4, "the original session has changed");
    let listed = answered.user.json(&["sessions", "--json"]);
    let titles: Vec<_> = listed.as_array().expect("rows").iter().map(|row| row["title"].clone()).collect();
    assert_eq!(titles, [json!("another way"), json!("first")]);
    let long = "x".repeat(5_000);
    for (title, why) in [
        ("", "error: the title is empty: describe the session (--title TEXT)\n"),
        (" \t", "error: the title is empty: describe the session (--title TEXT)\n"),
        (&long, "error: the title has 5000 characters, the limit is 200 (--title TEXT)\n"),
    ] {
        let done = answered.user.call(&["branch", &first, "--title", title]);
        assert_eq!((done.code, &*done.out, &*done.err), (Some(2), "", why));
    }
    assert_eq!(answered.user.json(&["sessions", "--json"]), listed);
    let wrong = answered.user.call(&["branch", &format!("{}:9999", answered.id)]);
    assert!(wrong.code == Some(1) && wrong.err.contains("9999"), "{wrong:?}");
    let none = answered.user.call(&["branch", &format!("{}:last", answered.id)]);
    assert!(none.code == Some(2) && none.err.contains("SESSION:RECORD"), "{none:?}");
}

#[test]
fn b1_branches_appear_in_sessions_by_their_first_message() {
    let answered = AnsweredSession::start();
    let fresh = answered.call_verb(&["branch", &answered.id, "--fresh"]).trim().to_owned();
    let human = answered.call_verb(&["branch", &answered.id]).trim().to_owned();
    let row = |id: &str| {
        let rows = answered.user.json(&["sessions", "--json"]);
        let row = rows.as_array().expect("rows").iter().find(|row| row["id"] == *id).cloned().expect("a row");
        (row["title"].clone(), row["kind"].clone())
    };
    assert_eq!((row(&fresh), row(&human)), ((json!(""), json!("subagent")), (json!("first"), json!("human"))));
    let unsaid = answered.call_verb(&["sessions"]);
    assert!(unsaid.contains("  branch: no message yet\n"), "{unsaid}");
    answered.run_verb(&["send", &fresh, "on its own"]);
    answered.run_verb(&["send", &human, "aside\nfrom that"]);
    let titles = ((json!("on its own"), json!("subagent")), (json!("aside from that"), json!("human")));
    assert_eq!((row(&fresh), row(&human)), titles);
    let listed = answered.call_verb(&["sessions"]);
    assert!(listed.contains("  branch: aside from that\n") && listed.contains("  branch: on its own\n"), "{listed}");
    let tree = answered.call_verb(&["tree", &answered.id]);
    let marked = tree.lines().filter(|line| line.contains(" · branch  ")).count();
    assert_eq!(marked, 2, "{tree}");
    assert_eq!(answered.user.call(&["verify"]).code, Some(0));
}

#[test]
fn regenerate_adds_an_answer_and_switch_returns_the_old() {
    let answered = AnsweredSession::start();
    let answer = answered.messages(&answered.id)[1].0.clone();
    let none = answered.user.call(&["switch", &answer, "next"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("and no other answer has any: regenerate one first"), "{none:?}");
    assert_eq!(answered.run_verb(&["regenerate", &answered.id]), "heard: first\n");
    assert_eq!(answered.call_verb(&["switch", &answered.id, "previous"]), format!("{answer} shows alternative 0\n"));
    let (of, id) = (answer.split_once(':').expect("a record").1.parse::<u64>().expect("a number"), &answered.id);
    let switched = answered.user.json(&["switch", &answer, "1", "--json"]);
    assert_eq!(switched, json!({"session": id, "of": of, "to": 1}));
    let wrong = answered.user.call(&["switch", &answer, "7"]);
    assert!(wrong.code == Some(1) && wrong.err.contains("unknown alternative 7"), "{wrong:?}");
    assert_eq!(answered.user.call(&["verify"]).code, Some(0));
}

#[test]
fn controls_of_an_idle_session_report_its_last_outcome() {
    let answered = AnsweredSession::start();
    for verb in ["cancel", "interrupt"] {
        assert!(
            answered.call_verb(&[verb, &answered.id]).contains("no run is in flight; the last one ended as completed"),
            "{verb}"
        );
    }
    assert_eq!(answered.call_verb(&["cancel", &answered.id, "--tree"]), "cancelled 0 runs in the tree\n");
    let listed = answered.user.call(&["queue", &answered.id]);
    assert!(listed.code == Some(0) && listed.err.contains("is empty"), "{listed:?}");
    assert_eq!(answered.user.json(&["queue", &answered.id, "--json"]), json!([]));
    assert_eq!(answered.call_verb(&["queue", &answered.id, "clear"]), "removed 0 inputs\n");
    let wrong = answered.user.call(&["queue", &answered.id, "remove", "nothing"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("is not the id of an input"), "{wrong:?}");
    let nosuch = answered.user.call(&["cancel", "ffffff"]);
    assert!(nosuch.code == Some(1) && nosuch.err.contains("no session matches"), "{nosuch:?}");
}

#[test]
fn deleted_tree_is_unlisted_and_refuses_input() {
    let answered = AnsweredSession::start();
    let branch = answered.call_verb(&["branch", &answered.id]);
    let refused = answered.user.call(&["delete", &answered.id]);
    assert!(refused.code == Some(2) && refused.err.contains("Use --yes to delete without asking"), "{refused:?}");
    assert_eq!(
        answered.user.json(&["sessions", "--all", "--json"]).as_array().expect("rows").len(),
        2,
        "nothing is deleted"
    );
    let output = answered.call_verb(&["delete", &answered.id, "--yes"]);
    assert_eq!(output, "deleted 2 sessions; `subtend compact` erases their text from the store\n");
    assert_eq!(answered.user.json(&["sessions", "--all", "--json"]), json!([]));
    let gone = answered.user.call(&["send", branch.trim(), "there?", "--model", &answered.model]);
    assert!(gone.code == Some(1) && gone.err.contains("no session matches"), "{gone:?}");
    assert_eq!(answered.user.call(&["verify"]).code, Some(0));
}

#[test]
fn tasks_and_usage_print_without_a_runtime() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [
            { "agent": "general", "steps": [
                { "fan_out": { "n": 2, "agent": "explore", "prompt": "Look at part {n}." } },
                { "text": "done", "usage": { "in": 10, "out": 2 } } ] },
            { "agent": "*", "steps": [ { "text": "found", "usage": { "in": 3, "out": 1 } } ] } ] }"#,
    );
    let done = user.call(&["run", "--json", "--model", &model, "look"]);
    let end = last_event(&done.out);
    let root = end["session"].as_str().expect("an id");
    let tasks = user.json(&["tasks", "--json", "--status", "completed", "--parent", root]);
    assert_eq!(tasks.as_array().map(Vec::len), Some(2), "{tasks:#}");
    assert_eq!(user.json(&["tasks", "--json", "--limit", "1"]).as_array().map(Vec::len), Some(1));
    assert_eq!(user.json(&["tasks", "--json", "--status", "failed"]), json!([]));
    let usage = user.json(&["usage", root, "--json"]);
    let tokens = |part: &str| (usage[part]["in"].clone(), usage[part]["out"].clone());
    assert_eq!(tokens("own"), (json!(10), json!(2)), "{usage:#}");
    assert_eq!((tokens("owned"), tokens("tree")), ((json!(6), json!(2)), (json!(16), json!(4))), "{usage:#}");
    let task = &tasks[0];
    assert_eq!((&task["result"], &task["error"]), (&json!("found"), &Value::Null), "{tasks:#}");
    assert!(task["prompt"].as_str().is_some_and(|prompt| prompt.contains("Look at part ")), "{tasks:#}");
    assert!(task["completed"].as_i64() >= task["created"].as_i64(), "{tasks:#}");
    let seed = ["type", "description", "metadata"].map(|key| task[key].clone());
    assert_eq!(seed, [json!("explore"), task["prompt"].clone(), json!({})], "{tasks:#}");
    let id = task["id"].as_str().expect("an id");
    assert!(id.starts_with("task_"), "{id}");
    assert_eq!(user.json(&["show", id, "--json"])["id"], task["session"], "the task has another session");
    let children = usage["children"].as_array().expect("children");
    let own = |kid: &Value| (kid["agent"].clone(), kid["own"]["in"].clone());
    assert_eq!(children.iter().map(own).collect::<Vec<_>>(), vec![(json!("explore"), json!(3)); 2], "{usage:#}");
    let context = json!({ "used": 12, "window": "unknown", "percent": "unknown" });
    assert_eq!((&usage["parent"], &usage["context"]), (&Value::Null, &context), "{usage:#}");
    let child = children[0]["id"].as_str().expect("an id");
    assert_eq!(user.json(&["usage", child, "--json"])["parent"], json!(root));
    let text = user.call(&["usage", child]).out;
    assert!(
        text.contains("created            just now") && text.contains(&format!("parent             {root}")),
        "{text}"
    );
    assert_eq!(user.json(&["approvals", "--json", "--all"]), json!([]));
}

#[test]
fn memory_store_error_explains_the_missing_session() {
    let answered = AnsweredSession::start();
    let expected = "error: a store in memory holds no earlier sessions: name the store of the session with --data DIR or --store ENGINE:PATH\n";
    let id = &*answered.id;
    let verbs: [&[&str]; 13] = [
        &["cancel", id],
        &["interrupt", id],
        &["close", id],
        &["delete", id, "--yes"],
        &["queue", id],
        &["branch", id],
        &["switch", id, "next"],
        &["rollback", id],
        &["show", id],
        &["send", id, "hi", "--quiet"],
        &["continue", id, "--quiet"],
        &["regenerate", id, "--quiet"],
        &["chat", id, "--quiet"],
    ];
    for verb in verbs {
        let done = answered.user.call(&[verb, &["--store", "memory"]].concat());
        assert_eq!((done.code, &*done.out, &*done.err), (Some(2), "", expected), "{verb:?}");
    }
}

#[test]
fn chat_without_a_terminal_answers_line_by_line() {
    let user = User::new();
    let model = user.script(ECHO);
    let done = user.call_with(&["chat", "--quiet", "--model", &model], "one\n\ntwo\n");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "heard: one\nheard: two\n"), "{done:?}");
    let sessions = user.json(&["sessions", "--json"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "one conversation: {sessions:#}");
    let id = sessions[0]["id"].as_str().expect("an id");
    let more = user.call_with(&["chat", id, "--quiet", "--model", &model], "three\n");
    assert_eq!(more.out, "heard: three\n", "{more:?}");
}

#[test]
fn ask_without_approver_is_denied_and_reported() {
    let user = User::new();
    let write =
        r#"{ "calls": [ { "tool": "write", "args": { "path": "a.txt", "content": "hi" } } ] }, { "text": "{last}" }"#;
    let model = user.script(&format!(r#"{{ "rules": [ {{ "agent": "*", "steps": [ {write} ] }} ] }}"#));
    let done = user.call(&["run", "--quiet", "--model", &model, "--ask", "fs.write=*.txt", "hi"]);
    assert_eq!((done.code, user.workspace().join("a.txt").exists()), (Some(0), false), "{done:?}");
}

/// Changes a text in the files of a closed store, as a failing disk would.
fn damage(folder: &Path, text: &str) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            damage(&path, text);
            continue;
        }
        let mut bytes = std::fs::read(&path).expect("a file");
        let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text.as_bytes())).collect();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        std::fs::write(&path, bytes).expect("damage the file");
    }
}

#[test]
fn asks_are_listed_next_to_an_unreadable_session() {
    let user = User::new();
    let write =
        r#"{ "calls": [ { "tool": "write", "args": { "path": "a.txt", "content": "hi" } } ] }, { "text": "no" }"#;
    let model = user.script(&format!(r#"{{ "rules": [ {{ "agent": "*", "steps": [ {write} ] }} ] }}"#));
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "--ask", "fs.write", "hi"]).code, Some(0));
    let approvals = user.json(&["approvals", "--json", "--all"]);
    assert_eq!(
        (&approvals[0]["verdict"], &approvals[0]["by"]),
        (&json!("deny"), &json!("no_approver")),
        "{approvals:#}"
    );
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "a peculiar answer" } ] } ] }"#);
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "later"]).code, Some(0));
    damage(&user.data(), "peculiar");
    let listed = user.call(&["approvals", "--json", "--all"]);
    assert!(listed.code == Some(0) && listed.err.contains("is not listed: session "), "{listed:?}");
    assert_eq!(serde_json::from_str::<Value>(&listed.out).expect("json"), approvals);
    let waiting = user.call(&["approvals", "--json"]);
    assert_eq!((waiting.code, &*waiting.out, &*waiting.err), (Some(0), "[]\n", ""));
}

/// The records of a damaged session can still be read, but no run starts in it.
#[test]
fn session_with_a_damaged_row_is_listed_and_refuses_input() {
    let answered = AnsweredSession::start();
    // A field name that only rows of the index contain.
    damage(&answered.user.data(), "last_outcome");
    let model = answered.user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "sound" } ] } ] }"#);
    assert_eq!(answered.user.call(&["run", "--quiet", "--model", &model, "later"]).code, Some(0));

    let rows = answered.user.json(&["sessions", "--json"]);
    let notices: Vec<_> = rows
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (row["id"] == answered.id, !row["damaged"].is_null()))
        .collect();
    assert_eq!(notices, [(false, false), (true, true)], "{rows:#}");
    assert!(answered.call_verb(&["sessions"]).contains("damaged"));
    assert!(!answered.call_verb(&["show", &answered.id]).is_empty());
    let tree = answered.user.call(&["tree", &answered.id]);
    assert!(tree.code == Some(1) && tree.out.contains("its row in the index is damaged"), "{tree:?}");
    for verb in [&["send", &answered.id, "hi"][..], &["cancel", &answered.id], &["delete", &answered.id, "--yes"]] {
        let done = answered.user.call(verb);
        assert_eq!((done.code, &*done.out), (Some(3), ""), "{verb:?}: {done:?}");
        assert!(done.err.contains(&format!("session {} is damaged and is not changed", answered.id)), "{done:?}");
    }
}

#[test]
fn x12_doctor_repeats_what_verify_finds() {
    let answered = AnsweredSession::start();
    damage(&answered.user.data(), "last_outcome");
    let found = |verb: &str| {
        let done = answered.user.call(&[verb, "--json"]);
        assert_eq!(done.code, Some(1), "{done:?}");
        serde_json::from_str::<Value>(&done.out).expect("json")
    };
    let (problems, findings) = (found("verify"), found("doctor"));
    let problems = problems["problems"].as_array().expect("problems").iter();
    let problems: Vec<_> = problems.map(|problem| problem["what"].as_str().expect("a text").to_owned()).collect();
    let findings = findings["findings"].as_array().expect("findings").iter();
    let contents: Vec<_> = findings.filter(|finding| finding["check"] == "contents").collect();
    assert!(!problems.is_empty() && problems.len() == contents.len(), "{problems:?} {contents:?}");
    for (what, finding) in problems.iter().zip(contents) {
        let text = finding["found"].as_str().expect("a text");
        assert!(text.contains(&what.split_whitespace().collect::<Vec<_>>().join(" ")), "{text}");
        assert_eq!(finding["grade"], "bad");
    }
}

#[test]
fn m1_context_share_uses_the_configured_window() {
    let user = User::new();
    let model = user
        .script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "x", "usage": { "in": 40, "out": 10 } } ] } ] }"#);
    let done = user.call(&["run", "--json", "--model", &model, "go"]);
    let end = last_event(&done.out);
    let id = end["session"].as_str().expect("an id");
    let context = |percent: Value, window: Value| json!({ "used": 50, "window": window, "percent": percent });
    let unknown = context(json!("unknown"), json!("unknown"));
    assert_eq!(user.json(&["usage", id, "--json"])["context"], unknown);
    assert!(user.call(&["usage", id]).out.contains("context            50 tokens of unknown\n"));
    user.file("subtend.yaml", "llm: {context_windows: {\"scripted:*\": 200}}\n");
    assert_eq!(user.json(&["usage", id, "--json"])["context"], context(json!(25), json!(200)));
    user.file("subtend.yaml", "llm: {context_windows: {lab: 0}}\n");
    let refused = user.call(&["usage", id]);
    assert!(refused.code == Some(2) && refused.err.contains("llm.context_windows.lab"), "{refused:?}");
}

#[test]
fn listings_distinguish_branches_and_closed_sessions() {
    let answered = AnsweredSession::start();
    let branch = answered.call_verb(&["branch", &answered.id]);
    answered.run_verb(&["regenerate", &answered.id]);
    answered.call_verb(&["close", branch.trim()]);
    let tree = answered.user.json(&["tree", "--json", &answered.id]);
    let kinds =
        |of: &str| tree["children"].as_array().expect("children").iter().map(|child| child[of].clone()).collect();
    let (kinds, closed): (Vec<_>, Vec<_>) = (kinds("kind"), kinds("closed"));
    assert_eq!(kinds, [json!("human"), json!("alternative")]);
    assert_eq!(closed, [json!(true), Value::Null]);
    let drawn = answered.call_verb(&["tree", &answered.id]);
    assert!(drawn.contains("branch · closed") && drawn.contains("alternative"), "{drawn}");
    assert!(answered.call_verb(&["sessions"]).contains("closed"));
    assert_eq!(answered.user.json(&["queue", &answered.id, "list", "--json"]), json!([]), "the queue must be empty");
}

pub(crate) fn holding(dir: &Path, text: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if String::from_utf8_lossy(&std::fs::read(&path).expect("a file")).contains(text) {
            found.push(path);
        }
    }
    found
}

#[test]
fn j10_compact_erases_what_delete_deleted() {
    const SECRET: &str = "the-launch-code-is-0451";
    for engine in ["redb", "sled"] {
        let answered = AnsweredSession::start();
        let store = format!("{engine}:{}", answered.user.data().join(engine).display());
        let with =
            |args: &[&'static str]| [args, &["--store", &*store]].concat().into_iter().map(str::to_owned).collect();
        let call = |answered: &AnsweredSession, args: Vec<String>| {
            answered.user.call(&args.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let run = |prompt: &'static str| {
            let mut args: Vec<String> = with(&["run", "--json", prompt]);
            args.extend(["--model".to_owned(), answered.model.clone()]);
            let done = call(&answered, args);
            assert_eq!(done.code, Some(0), "{done:?}");
            let end = last_event(&done.out);
            end["session"].as_str().expect("an id").to_owned()
        };
        let (secret, kept) = (run(SECRET), run("kept"));
        let mut delete: Vec<String> = with(&["delete", "--yes"]);
        delete.insert(1, secret.clone());
        assert_eq!(call(&answered, delete).code, Some(0));
        let export = call(&answered, with(&["export"]));
        assert!(export.code == Some(0) && !export.out.contains(SECRET) && export.out.contains("kept"), "{export:?}");
        assert!(!holding(&answered.user.data(), SECRET).is_empty(), "the deletion already erased the text");
        let done = call(&answered, with(&["compact"]));
        assert!(done.code == Some(0) && done.out.starts_with("erased 1 session ("), "{engine}: {done:?}");
        assert_eq!(holding(&answered.user.data(), SECRET), Vec::<std::path::PathBuf>::new(), "{engine}");
        assert_eq!(call(&answered, with(&["verify"])).code, Some(0), "{engine}");
        let shown = call(&answered, [with(&["show"]), vec![kept]].concat());
        assert!(shown.code == Some(0) && shown.out.contains("heard: kept"), "{engine}: {shown:?}");
        let gone = call(&answered, [with(&["show"]), vec![secret]].concat());
        assert!(gone.code == Some(1) && gone.err.contains("no session matches"), "{engine}: {gone:?}");
    }
}

#[test]
fn a8_deleted_branch_leaves_no_text_in_its_parent() {
    const SECRET: &str = "the-launch-code-is-0451";
    let answered = AnsweredSession::start();
    let branch = answered.call_verb(&["branch", &answered.id]).trim().to_owned();
    assert_eq!(answered.run_verb(&["send", &branch, SECRET]), format!("heard: {SECRET}\n"));
    // The process may have ended before the parent was notified.
    answered.call_verb(&["recover"]);
    let ends = |answered: &AnsweredSession| {
        let shown = answered.user.json(&["show", "--json", &answered.id]);
        let entries = shown["entries"].as_array().expect("entries").clone();
        entries.into_iter().filter_map(|entry| entry["ends"].as_array().cloned()).flatten().collect::<Vec<_>>()
    };
    let message = format!("heard: {SECRET}");
    let end = |text: &str| json!({"child": branch, "outcome": "completed", "text": text, "len": message.len()});
    assert_eq!(ends(&answered), [end(&message)], "the view lacks the end of the branch");
    answered.call_verb(&["delete", &branch, "--yes"]);
    let mut gone = end("");
    gone["deleted"] = json!(true);
    assert_eq!(ends(&answered), [gone]);
    assert!(answered.call_verb(&["show", &answered.id]).contains("its text of 30 B was deleted with its session"));
    let exported = answered.call_verb(&["export"]);
    assert!(!exported.contains(SECRET) && exported.contains("heard: first"), "{exported}");
    answered.call_verb(&["compact"]);
    assert_eq!(holding(&answered.user.data(), SECRET), Vec::<std::path::PathBuf>::new());
    assert_eq!(answered.user.call(&["verify"]).code, Some(0));
}
