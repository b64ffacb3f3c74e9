//! Commands that change something print their result as one JSON object, for programs that call them.

use super::call::*;
use super::serve::serve;

const HANG: &str =
    r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "so far", "hang": true, "repeat": true } ] } ] }"#;

#[test]
fn controls_of_a_detached_run_print_json() {
    let user = User::new();
    let serving = serve(&user, &user.script(HANG));
    let left = user.json(&["run", "--detach", "--json", "hang"]);
    let id = left["session"].as_str().expect("an id").to_owned();
    let result = |result: &str| json!({"session": id, "result": result, "run": 1});
    assert_eq!(left, json!({"session": id, "run": 1}));
    let more = serving.unix(&format!("POST /v1/sessions/{id}/inputs"), &json!({"text": "more"}).to_string()).json();
    let removed = user.json(&["queue", &id, "remove", more["input"].as_str().expect("an id"), "--json"]);
    assert_eq!(removed, json!({"session": id, "input": more["input"], "removed": true}));
    assert_eq!(user.json(&["queue", &id, "clear", "--json"]), json!({"session": id, "removed": 0}));
    assert_eq!(user.json(&["interrupt", &id, "--json"]), result("interrupted"));
    let ended = json!({"session": id, "result": "already_ended", "run": 1, "outcome": "interrupted"});
    for verb in ["cancel", "interrupt"] {
        assert_eq!(user.json(&[verb, &id, "--json"]), ended, "{verb}");
    }
    let none = json!({"session": id, "result": "cancelled", "cancelled": 0});
    assert_eq!(user.json(&["cancel", &id, "--tree", "--json"]), none);
    let other = user.json(&["run", "--detach", "--json", "hang"]);
    let other = other["session"].as_str().expect("an id");
    let cancelled = json!({"session": other, "result": "cancelled", "run": 1});
    assert_eq!(user.json(&["cancel", other, "--json"]), cancelled);
    assert_eq!(user.json(&["close", &id, "--json"]), json!({"session": id, "closed": true}));
    let stays = user.call(&["cancel", "nosuch", "--json"]);
    assert_eq!((stays.code, &*stays.out), (Some(1), ""), "an error goes to stderr: {stays:?}");
    serving.host.stops();
    assert_eq!(user.json(&["delete", &id, "--yes", "--json"]), json!({"session": id, "deleted": 1}));
    let compacted = user.json(&["compact", "--json"]);
    assert_eq!((&compacted["erased"], &compacted["held"]), (&json!(1), &json!([])), "{compacted}");
}

#[test]
fn created_token_is_printed_once_in_json() {
    let user = User::new();
    let made = user.json(&["token", "create", "phone", "--scope", "read", "--json"]);
    let secret = made["token"].as_str().expect("a secret").to_owned();
    assert_eq!(made, json!({"name": "phone", "scope": "read", "tools": null, "token": secret}));
    let limited = user.json(&["token", "create", "hand", "--scope", "work", "--tool", "deploy", "--json"]);
    assert_eq!((&limited["scope"], &limited["tools"]), (&json!("work"), &json!(["deploy"])));
    let listed = user.call(&["token", "list", "--json"]).out;
    assert!(listed.contains("phone") && !listed.contains(&secret), "{listed}");
    assert_eq!(user.json(&["token", "revoke", "phone", "--json"]), json!({"name": "phone", "revoked": true}));
}

#[test]
fn import_prints_json() {
    let (from, to) = (User::new(), User::new());
    from.succeeds(&["run", "--model", &from.script_named("hello", "Hello."), "hi"]);
    let file = to.workspace().join("sessions.jsonl");
    let name = file.to_str().expect("a path");
    assert_eq!(from.call(&["export", "--out", name]).code, Some(0));
    let imported = to.json(&["import", name, "--json"]);
    assert_eq!((&imported["sessions"], &imported["reduced_permissions"]), (&json!(1), &json!([])), "{imported}");
    let sessions: Vec<Value> = serde_json::from_value(to.json(&["sessions", "--json"])).expect("rows");
    assert_eq!(sessions.len(), 1);
}
