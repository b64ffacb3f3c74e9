//! Compacted conversations: a summary replaces old messages, and an undo shows them again.

use super::call::*;

/// A script that answers with the number of messages in the request.
const SCRIPT: &str = r#"{ "rules": [
    { "agent": "compaction", "steps": [ { "text": "Two questions were answered.", "repeat": true } ] },
    { "agent": "*", "steps": [ { "text": "fine", "repeat": true } ] } ] }"#;

fn compacted(user: &User, id: &str) -> Vec<(String, bool)> {
    let shown = user.json(&["show", "--json", id]);
    let entries = shown["entries"].as_array().expect("entries").iter();
    entries.map(|entry| (entry["type"].as_str().expect("a type").to_owned(), entry["compacted"] == true)).collect()
}

#[test]
fn g14_condensed_conversation_is_shown_and_undone() {
    let user = User::new();
    let model = user.script(SCRIPT);
    let long = |what: &str| format!("{what} ").repeat(500);
    let done = user.succeeds(&["run", "--json", "--model", &model, &long("first")]);
    let end = last_event(&done.out);
    let id = end["session"].as_str().expect("an id").to_owned();
    let early = user.call(&["condense", "--undo", &id]);
    assert_eq!(early.code, Some(1), "{early:?}");
    assert!(early.err.contains("no compaction to undo: all messages are visible"), "{early:?}");
    assert_eq!(user.call(&["send", "--model", &model, &id, &long("second")]).code, Some(0));
    let done = user.call(&["condense", "--model", &model, &id]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    assert!(done.out.starts_with("condensed 3 messages: about "), "{done:?}");
    let kinds = |hidden: bool, more: &[&str]| {
        let first = ["input", "answer", "ended", "input"].map(|kind| (kind, hidden && kind != "ended"));
        let all = first.into_iter().chain([("answer", false), ("ended", false)]);
        let all = all.chain(more.iter().map(|kind| (*kind, false)));
        all.map(|(kind, hidden)| (kind.to_owned(), hidden)).collect::<Vec<_>>()
    };
    let without_service =
        |all: Vec<(String, bool)>| all.into_iter().filter(|(kind, _)| kind != "branch").collect::<Vec<_>>();
    assert_eq!(without_service(compacted(&user, &id)), kinds(true, &["compacted"]));
    let people = user.call(&["show", &id]).out;
    assert_eq!(people.matches(" · compacted").count(), 3, "{people}");
    assert!(people.contains("compacted, on request") && people.contains("Two questions were answered."), "{people}");
    let short = user.json(&["show", "--json", &id])["short"].as_str().expect("a name").to_owned();
    let undone = user.call(&["condense", "--undo", &id]);
    let expected =
        format!("session {short}: the messages hidden by the last compaction are visible to the model again\n");
    assert_eq!((undone.code, undone.out), (Some(0), expected));
    assert_eq!(without_service(compacted(&user, &id)), kinds(false, &["compacted", "compaction_undone"]));
    assert_eq!(user.json(&["usage", "--json", &id])["children"][0]["agent"], json!("compaction"));
    assert_eq!(user.call(&["verify"]).code, Some(0));
}
