//! Rollback of a failed run: its entries are marked for people and hidden from models.

use super::call::*;

/// Refuses the input `break`; answers others with the number of messages in the request.
const SCRIPT: &str = r#"{ "rules": [ { "agent": "*", "steps": [
    { "text": "fine" },
    [ { "when": { "user_contains": "break" }, "text": "Never", "refuse": true },
      { "text": "{n}: {last}" } ] ] } ] }"#;

/// A session whose first run completed and whose second failed.
fn failed_session() -> (User, String, String) {
    let user = User::new();
    let model = user.script(SCRIPT);
    let done = user.succeeds(&["run", "--json", "--model", &model, "first"]);
    let end = last_event(&done.out);
    let id = end["session"].as_str().expect("an id").to_owned();
    let broken = user.call(&["send", "--model", &model, &id, "break it"]);
    assert_eq!(broken.code, Some(1), "{broken:?}");
    (user, model, id)
}

/// Returns the types of the entries, each with whether it is rolled back.
fn shown(user: &User, id: &str) -> Vec<(String, bool)> {
    let shown = user.json(&["show", "--json", id]);
    let entries = shown["entries"].as_array().expect("entries").iter();
    entries.map(|entry| (entry["type"].as_str().expect("a type").to_owned(), entry["rolled_back"] == true)).collect()
}

#[test]
fn m10_rollback_marks_a_failed_run_and_the_session_continues() {
    let (user, model, id) = failed_session();
    let short = user.json(&["show", "--json", &id])["short"].as_str().expect("a name").to_owned();
    let done = user.call(&["rollback", &id]);
    let says = format!("session {short}: run 2 is rolled back; files that it changed stay as they are\n");
    assert_eq!((done.code, done.out, done.err.as_str()), (Some(0), says, ""));
    let again = user.json(&["rollback", "--json", "--run", "2", &short]);
    assert_eq!(again, json!({"session": id, "run": 2, "rolled_back": true}));
    let kinds =
        |all: &[(&str, bool)]| all.iter().map(|(kind, hidden)| ((*kind).to_owned(), *hidden)).collect::<Vec<_>>();
    let expected = kinds(&[
        ("input", false),
        ("answer", false),
        ("ended", false),
        ("input", true),
        ("answer", true),
        ("ended", false),
        ("rolled_back", false),
    ]);
    assert_eq!(shown(&user, &id), expected);
    let people = user.call(&["show", &id]).out;
    assert_eq!(people.matches(" · rolled back").count(), 2, "{people}");
    assert!(people.contains("run 2 is rolled back: its messages are hidden from the model from here on"), "{people}");
    let sent = user.call(&["send", "--quiet", "--model", &model, &id, "continue"]);
    assert_eq!((sent.code, sent.out.as_str()), (Some(0), "2: continue\n"), "the model received run 2: {sent:?}");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn m10_rollback_refuses_completed_and_missing_runs() {
    let (user, _, id) = failed_session();
    for (args, code, why) in [
        (&["--run", "1"][..], 1, "run 1 completed: only a run that did not complete can be rolled back"),
        (&["--run", "7"], 1, "the session has no run 7: its runs are 1 to 2"),
        (&["--run", "0"], 2, "invalid value '0' for '--run <N>'"),
    ] {
        let done = user.call(&[&["rollback", &id], args].concat());
        assert!(done.code == Some(code) && done.err.contains(why) && done.out.is_empty(), "{args:?}: {done:?}");
    }
    let none = user.call(&["rollback", "ffffff"]);
    assert!(none.code == Some(1) && none.err.contains("no session matches"), "{none:?}");
    assert!(shown(&user, &id).iter().all(|(_, hidden)| !hidden), "an entry is hidden");
}
