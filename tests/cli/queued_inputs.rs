//! Inputs that no run has taken remain queued, and every verb names a remedy.

use super::call::*;

const HANG: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "hang": true, "repeat": true } ] } ] }"#;
const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {last}", "repeat": true } ] } ] }"#;

/// A session whose run resumes after a kill, and an input that was sent before a signal stopped the process.
struct QueuedInputScene {
    user: User,
    model: String,
    id: String,
    short: String,
    sent: CommandOutput,
    input: Value,
}

impl QueuedInputScene {
    fn new(send: &[&str]) -> Self {
        Self::stopped_by("INT", "send", send)
    }

    fn stopped_by(signal: &str, verb: &str, send: &[&str]) -> Self {
        let user = User::new();
        user.resumable_agent("steady", "primary");
        let model = user.script(HANG);
        let killed = user.start(&["run", "--json", "--agent", "steady", "--model", &model, "hang"]);
        let event = killed.until(|event| event["record"]["turn_started"].is_object());
        killed.signal("KILL");
        assert_eq!(killed.done().code, None);
        let id = event["session"].as_str().expect("an id").to_owned();
        let sent = user.start(&[&[verb, &id], send, &["--json", "--model", &model]].concat());
        let accepted = sent.until(|event| event["record"]["input_accepted"].is_object());
        sent.signal(signal);
        let sent = sent.done();
        let short = user.json(&["show", "--json", &id])["short"].as_str().expect("a name").to_owned();
        let input = accepted["record"]["input_accepted"]["id"].clone();
        user.script(ECHO);
        Self { user, model, id, short, sent, input }
    }

    fn rows_without_time(&self) -> Value {
        let mut rows = self.user.json(&["queue", &self.id, "--json"]);
        for row in rows.as_array_mut().expect("rows") {
            let time = row.as_object_mut().expect("an object").remove("time_ms");
            assert!(time.as_ref().is_some_and(|time| time.as_i64() > Some(0)), "{time:?}");
        }
        rows
    }

    fn queue_without_age(&self) -> String {
        let out = self.user.call(&["queue", &self.id]).out;
        let without = |line: &str| {
            let mut columns: Vec<_> = line.split("  ").collect();
            let age = columns.remove(2);
            assert!(age == "just now" || age.ends_with(" ago"), "{line}");
            columns.join("  ") + "\n"
        };
        out.lines().map(without).collect()
    }
}

#[test]
fn input_queued_at_ctrl_c_is_reported_resumed_or_removed() {
    let left = QueuedInputScene::new(&["and this"]);
    let (name, input) = (&left.short, left.input.as_str().expect("an id"));
    assert_eq!(left.sent.code, Some(130), "{:?}", left.sent);
    let expected = format!(
        "the input was not taken and is queued in session {name}: run it with `subtend continue {name}`, or remove it with `subtend queue {name} \
         remove {input}`\n"
    );
    assert!(left.sent.err.contains(&expected), "{:?}", left.sent);
    let rows = json!([{ "id": input, "kind": "user", "lane": "send", "taken_at": "run", "text": "and this", "metadata": null }]);
    assert_eq!(left.rows_without_time(), rows);
    assert_eq!(left.queue_without_age(), format!("{input}  user, by the next run  and this\n"));
    let on = left.user.call(&["continue", name, "--quiet", "--model", &left.model]);
    assert_eq!((on.code, &*on.err), (Some(0), ""), "an input that was taken is reported as queued: {on:?}");
    assert_eq!(left.user.json(&["queue", name, "--json"]), json!([]));
    let shown = left.user.call(&["show", &left.id]).out;
    assert!(shown.contains("heard: and this"), "{shown}");
}

#[test]
fn close_is_refused_with_advice_while_an_input_is_queued() {
    let left = QueuedInputScene::new(&["and this"]);
    let name = &left.short;
    let done = left.user.call(&["close", &left.id]);
    let expected = "error: queued inputs: 1. Continue the session so that it takes them, or clear its queue\n";
    assert_eq!((done.code, &*done.out, &*done.err), (Some(1), "", expected));
    let input = left.input.as_str().expect("an id");
    assert_eq!(left.user.call(&["queue", name, "remove", input]).out, format!("removed {input}\n"));
    assert_eq!(left.user.call(&["close", &left.id]).code, Some(0));
}

#[test]
fn steering_lines_differ_from_queued_ones() {
    for (verb, sent) in [("send", &["faster", "--steer"][..]), ("steer", &["faster"][..])] {
        let left = QueuedInputScene::stopped_by("INT", verb, sent);
        let input = left.input.as_str().expect("an id");
        assert_eq!(left.queue_without_age(), format!("{input}  user, steers, by the next run  faster\n"));
        let rows = json!([{ "id": input, "kind": "user", "lane": "steer", "taken_at": "run", "text": "faster", "metadata": null }]);
        assert_eq!(left.rows_without_time(), rows);
    }
}

#[test]
fn interrupt_of_an_idle_session_keeps_its_queue() {
    let left = QueuedInputScene::new(&["and this"]);
    let done = left.user.call(&["interrupt", &left.id]);
    let expected =
        format!("session {}: no run is in flight; the last one ended as cancelled by a person\n", left.short);
    assert_eq!((done.code, &*done.out, &*done.err), (Some(0), &*expected, ""));
    assert_eq!(left.user.json(&["queue", &left.id, "--json"])[0]["id"], left.input);
}

#[test]
fn interrupt_is_refused_and_cancel_works_with_queued_input() {
    let left = QueuedInputScene::stopped_by("KILL", "send", &["and this"]);
    let name = &left.short;
    let done = left.user.call(&["interrupt", &left.id]);
    let expected = format!(
        "error: cannot interrupt session {name}: 1 input is queued, and the run would take the next one at once, but this \
         process does not run agents. Remove them with `subtend queue {name} clear`, or end the run with `subtend cancel \
         {name}`\n"
    );
    assert_eq!((done.code, &*done.out), (Some(1), ""), "{done:?}");
    assert!(done.err.ends_with(&expected), "{done:?}");
    let done = left.user.call(&["cancel", &left.id]);
    assert_eq!((done.code, &*done.out), (Some(0), &*format!("session {name}: run 1 is cancelled\n")), "{done:?}");
    assert_eq!(left.user.json(&["queue", &left.id, "--json"])[0]["id"], left.input);
    assert_eq!(left.user.call(&["verify"]).code, Some(0));
}

/// A completion that arrives during a model call is listed in the queue with its type and age, even after a kill.
#[test]
fn b11_queue_prints_a_held_completion() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [
            { "agent": "general", "steps": [
                { "calls": [ { "tool": "task", "args": {
                    "subagent_type": "explore", "prompt": "Look.", "background": true } } ] },
                { "hang": true } ] },
            { "agent": "*", "steps": [ { "text": "found it\nin two lines" } ] } ] }"#,
    );
    let run = user.start(&["run", "--json", "--model", &model, "go"]);
    let ended = run.until(|event| event["record"]["run_ended"].is_object());
    let child = ended["session"].as_str().expect("an id").to_owned();
    let root = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let listed = || {
        let done = user.succeeds(&["queue", &root]);
        done.out
    };
    let shown = listed();
    let line = format!("{child}  completion, at a turn boundary  ");
    assert!(shown.starts_with(&line) && shown.ends_with("  found it in two lines\n"), "{shown}");
    let age = &shown[line.len()..].split("  ").next().expect("an age");
    assert!(*age == "just now" || age.ends_with(" ago"), "{shown}");
    run.signal("KILL");
    assert_eq!(run.done().code, None);
    assert!(listed().starts_with(&line), "{}", listed());
    assert_eq!(user.call(&["recover"]).code, Some(0));
    assert_eq!(listed(), "");
}

/// Two messages are queued for one run, which answers one per turn: each terminal prints the answer to its own message.
#[test]
fn b11_send_prints_the_answer_to_its_own_message() {
    let user = User::new();
    let model = user.script(
        r#"{ "rules": [ { "agent": "*", "steps": [
            { "latency_ms": 4000, "text": "begun" }, { "text": "heard: {last}", "repeat": true } ] } ] }"#,
    );
    let run = user.start(&["run", "--json", "--model", &model, "go"]);
    let event = run.until(|event| event["record"]["turn_started"].is_object());
    let id = event["session"].as_str().expect("an id");
    let queued = |n: usize| {
        let listed = || user.json(&["queue", id, "--json"]).as_array().expect("rows").len();
        assert!((0..200).any(|_| listed() == n), "the queue does not have {n} messages");
    };
    let first = user.start(&["send", id, "one", "--quiet"]);
    queued(1);
    let second = user.start(&["send", id, "two", "--quiet"]);
    queued(2);
    for (sent, expected) in [(first, "heard: one\n"), (second, "heard: two\n")] {
        let done = sent.done();
        assert_eq!((done.code, &*done.out), (Some(0), expected), "{done:?}");
    }
    assert_eq!(run.done().code, Some(0));
}

/// Kills a process during the runs of a parent and its child. Returns the child, and a function for its scripts.
fn killed_owned_run(user: &User) -> (String, impl Fn(&str) -> String) {
    user.resumable_agent("steady", "primary");
    user.resumable_agent("hand", "subagent");
    let script = |user: &User, hang: &str| {
        user.script(&format!(
            r#"{{ "rules": [
                {{ "agent": "steady", "steps": [
                    {{ "calls": [ {{ "tool": "task", "args": {{ "subagent_type": "hand", "prompt": "Look." }} }} ] }},
                    {{ "text": "done" }} ] }},
                {{ "agent": "*", "steps": [
                    {{ "text": "the result"{hang} }}, {{ "text": "heard: {{last}}", "repeat": true }} ] }} ] }}"#
        ))
    };
    let model = script(user, r#", "hang": true"#);
    let killed = user.start(&["run", "--json", "--agent", "steady", "--model", &model, "go"]);
    let spawned = killed.until(|event| event["record"]["child_spawned"].is_object());
    let child = spawned["record"]["child_spawned"]["child"].as_str().expect("an id").to_owned();
    killed.until(|event| event["session"] == json!(child) && event["record"]["turn_started"].is_object());
    killed.signal("KILL");
    assert_eq!(killed.done().code, None);
    (child, move |hang| script(user, hang))
}

#[test]
fn k26_send_to_an_owned_child_prints_its_own_answer() {
    let user = User::new();
    let (child, script) = killed_owned_run(&user);
    let model = script("");
    let done = user.call(&["send", &child, "and this", "--model", &model, "--quiet"]);
    assert_eq!((done.code, &*done.out, &*done.err), (Some(0), "heard: and this\n", ""), "{done:?}");
    let shown = user.json(&["show", "--json", &child]);
    let entries = shown["entries"].as_array().expect("entries");
    let ends: Vec<_> = entries.iter().filter_map(|entry| entry["outcome"].as_str()).collect();
    assert_eq!(ends, ["completed", "completed"], "the owned run and the run of the message must complete: {shown:#}");
}

#[test]
fn k26_message_waits_when_ctrl_c_ends_the_owned_run() {
    let user = User::new();
    let (child, script) = killed_owned_run(&user);
    let sent = user.start(&["send", &child, "and this", "--json", "--model", &script(r#", "hang": true"#)]);
    sent.until(|event| event["record"]["input_accepted"].is_object());
    sent.signal("INT");
    let done = sent.done();
    assert!(
        done.code == Some(130) && done.err.contains("the input was not taken and is queued in session"),
        "{done:?}"
    );
    assert_eq!(user.json(&["queue", &child, "--json"])[0]["text"], json!("and this"));
}
