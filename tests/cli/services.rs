//! Services of the host: titles and summaries.

use super::call::*;

/// An agent and the two services.
const SCRIPT: &str = r#"{ "rules": [
    { "agent": "title", "steps": [ { "text": "\"Fix the login test.\"" } ] },
    { "agent": "summary", "steps": [ { "text": "What changed\n\nNothing yet." } ] },
    { "agent": "*", "steps": [ { "text": "done", "repeat": true } ] } ] }"#;

/// The same agent; the services do not answer.
const SILENT: &str = r#"{ "rules": [ { "agent": "general", "steps": [ { "text": "done", "repeat": true } ] } ] }"#;

fn call(user: &User, on: bool, args: &[&str]) -> CommandOutput {
    let mut command = user.command(args);
    if on {
        command.env("SUBTEND_SESSIONS_TITLES", "true").env("SUBTEND_SESSIONS_SUMMARIES", "true");
    }
    super::call::RunningCommand::start(command, "").done()
}

/// Runs "inspect it" in a new session; returns its id.
fn run(user: &User, on: bool, model: &str) -> String {
    let done = call(user, on, &["run", "--json", "--model", model, "inspect it"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let end = last_event(&done.out);
    end["session"].as_str().expect("an id").to_owned()
}

fn shown(user: &User, id: &str) -> (Value, Value) {
    let shown = user.json(&["show", "--json", id]);
    (shown["title"].clone(), shown["summary"].clone())
}

#[test]
fn configured_title_is_set_and_shown_by_reading_verbs() {
    let user = User::new();
    let model = user.script(SCRIPT);
    let id = run(&user, true, &model);
    assert_eq!(shown(&user, &id), (json!("Fix the login test"), Value::Null));
    for verb in [&["sessions"][..], &["tree", &id], &["show", &id]] {
        let done = user.call(verb);
        assert!(done.code == Some(0) && done.out.contains("Fix the login test"), "{verb:?}: {done:?}");
    }
    let rows = user.json(&["sessions", "--json"]);
    assert_eq!(rows.as_array().expect("rows").len(), 1, "listings show services");
    let other = run(&user, false, &model);
    assert_eq!(
        shown(&user, &other),
        (json!("inspect it"), Value::Null),
        "services are off by default with a scripted model"
    );
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn summary_is_written_on_close_and_on_request() {
    let user = User::new();
    let model = user.script(SCRIPT);
    let (closed, with_title) = (run(&user, false, &model), run(&user, false, &model));
    let done = call(&user, true, &["close", &closed, "--model", &model]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.out.contains("is closed"), "{done:?}");
    let summary = json!("What changed\n\nNothing yet.");
    assert_eq!(shown(&user, &closed), (json!("inspect it"), summary.clone()));
    assert!(
        user.call(&["show", &closed]).out.contains("summary\n  What changed\n"),
        "the summary is not shown to people"
    );
    let done = call(&user, false, &["summary", &with_title, "--model", &model]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "What changed\n\nNothing yet.\n"), "{done:?}");
    assert_eq!(shown(&user, &with_title).1, summary);
    let again = call(&user, false, &["close", &with_title, "--model", &model]);
    assert_eq!((again.code, again.err.as_str()), (Some(0), ""), "{again:?}");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn built_in_rules_write_no_titles_or_summaries() {
    let user = User::new();
    let id = run(&user, true, "offline");
    let done = call(&user, false, &["summary", &id]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
    assert!(done.err.contains("cannot summarise with the built-in model `offline`"), "{done:?}");
    let done = call(&user, true, &["close", &id]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert_eq!(shown(&user, &id), (json!("inspect it"), Value::Null));
    assert_eq!(user.json(&["tree", "--json", &id])["children"], json!([]), "a service was started");
}

#[test]
fn g11_close_prints_why_a_summary_failed() {
    let user = User::new();
    let model = user.script(SILENT);
    let id = run(&user, false, &model);
    let short: String = user.json(&["show", "--json", &id])["short"].as_str().expect("a name").to_owned();
    let done = call(&user, true, &["close", &id, "--model", &model]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("is closed"), "{done:?}");
    let why = "cannot summarise the session: its run failed: ";
    let again = format!(" (retry with `subtend summary {short}`)");
    assert!(done.err.contains(why) && done.err.contains("script") && done.err.contains(&again), "{done:?}");
    let bad = call(&user, true, &["close", &id, "--model", "nosuch/nothing"]);
    assert!(bad.code == Some(0) && bad.err.contains("no summary: "), "{bad:?}");
    let output = call(&user, false, &["summary", &id, "--model", &model]);
    assert!(
        output.code == Some(1) && output.err.contains("cannot summarise the session: its run failed"),
        "{output:?}"
    );
    let none = call(&user, false, &["summary", "ffffff", "--model", &model]);
    assert!(none.code == Some(1) && none.err.contains("no session matches"), "{none:?}");
}

#[test]
fn g11_close_is_silent_when_summaries_are_off() {
    let user = User::new();
    let model = user.script(SILENT);
    let id = run(&user, false, &model);
    let mut command = user.command(&["close", &id, "--model", "nosuch/nothing"]);
    command.env("SUBTEND_SESSIONS_SUMMARIES", "false");
    let done = super::call::RunningCommand::start(command, "").done();
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
}

#[test]
fn ctrl_c_stops_a_summary_and_sets_the_exit_code() {
    const SLOW: &str = r#"{ "rules": [
        { "agent": "summary", "steps": [ { "hang": true, "repeat": true } ] },
        { "agent": "*", "steps": [ { "text": "done", "repeat": true } ] } ] }"#;
    let user = User::new();
    let model = user.script(SLOW);
    let id = run(&user, false, &model);
    let summary = user.start(&["summary", &id, "--model", &model]);
    let (lock, pid) = (user.data().join("redb/LOCK"), summary.pid().to_string());
    while !std::fs::read_to_string(&lock).expect("a lock").lines().any(|line| line.contains(&pid)) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    summary.signal("INT");
    let done = summary.done();
    let expected = "cancelled: the session is not summarised\n";
    assert_eq!((done.code, &*done.out, &*done.err), (Some(130), "", expected));

    let mut command = user.command(&["close", &id, "--model", &model]);
    command.env("SUBTEND_SESSIONS_SUMMARIES", "true");
    let close = super::call::RunningCommand::start(command, "");
    let text = close.line().expect("a line");
    assert!(text.contains("is closed"), "{text}");
    close.signal("INT");
    let done = close.done();
    assert!(
        done.code == Some(130) && done.err.contains("no summary: it was cancelled (retry with `subtend summary "),
        "{done:?}"
    );
    assert_eq!(shown(&user, &id).1, Value::Null);
}

#[test]
fn close_succeeds_without_a_summary() {
    let user = User::new();
    let model = user.script(SCRIPT);
    let id = run(&user, false, &model);
    let branch = user.call(&["branch", &id]).out;
    assert_eq!(call(&user, false, &["send", branch.trim(), "more", "--model", &model]).code, Some(0));
    let done = call(&user, true, &["close", branch.trim(), "--model", &model]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let mut command = user.command(&["close", &id, "--model", "openai/gpt-zzz"]);
    command
        .env("SUBTEND_SESSIONS_SUMMARIES", "true")
        .env("SUBTEND_LIMITS_COST_MICRO", "1000")
        .env("OPENAI_API_KEY", "key");
    let done = super::call::RunningCommand::start(command, "").done();
    assert!(done.code == Some(0) && done.out.contains("is closed"), "{done:?}");
    assert!(done.err.contains("no summary: money is limited"), "{done:?}");
}

#[test]
fn limits_for_an_existing_session_are_refused() {
    let user = User::new();
    let model = user.script(SCRIPT);
    let id = run(&user, false, &model);
    let before = user.json(&["show", "--json", &id]);
    for verb in [&["send", &id, "more"][..], &["continue", &id], &["regenerate", &id], &["chat", &id]] {
        let done = user.call(&[verb, &["--model", &model, "--limit", "turns=2"]].concat());
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{verb:?}: {done:?}");
        assert!(done.err.contains("`--limit turns=2`: a session keeps the limits that it was opened with"), "{done:?}");
    }
    assert_eq!(user.json(&["show", "--json", &id]), before);
}
