//! Agent files that change while a host runs.

use super::call::*;
use super::serve::serve;

#[test]
fn agent_file_reaches_later_and_reloaded_sessions_of_a_host() {
    let user = User::new();
    let serving =
        serve(&user, &user.script(r#"{"rules": [{"agent": "*", "steps": [{"text": "Hello.", "repeat": true}]}]}"#));
    let before = serving.completed_session("Good morning.");
    let open = json!({"agent": "critic", "input": {"text": "Look."}}).to_string();
    let unknown = serving.unix("POST /v1/sessions", &open);
    assert_eq!((unknown.status, &unknown.json()["code"]), (422, &json!("unknown_agent")));
    user.file(".subtend/agents/critic.md", "---\nmode: all\ndescription: Finds errors.\n---\nFind errors.\n");
    let listed = serving.unix("GET /v1/agents/critic", "");
    assert_eq!(listed.status, 200, "the agent is listed before a session uses it: {listed:?}");
    let opened = serving.unix("POST /v1/sessions", &open);
    assert_eq!(opened.status, 201, "{opened:?}");
    let reload = || user.call(&["agents", "reload", &before]);
    let outputs = [reload(), reload()].map(|done| (done.code, done.out, done.err));
    let expected = ["reloaded: added: critic\n", "reloaded: no agent changed\n"];
    assert_eq!(outputs, expected.map(|out| (Some(0), out.to_owned(), String::new())));
    let sent = user.call(&["send", &before, "--agent", "critic", "Look."]);
    assert_eq!((sent.code, &*sent.out), (Some(0), "Hello.\n"), "{sent:?}");
    user.file(".subtend/agents/critic.md", "Find errors.\n");
    let broken = reload();
    assert!(broken.out.starts_with("reloaded: removed: critic; refused: "), "{broken:?}");
    assert!(broken.out.contains("critic.md: has no front matter"), "{broken:?}");
    let refused = serving.unix("POST /v1/sessions", &open);
    let why = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert_eq!(refused.status, 422, "{why}");
    assert!(why.contains("; the agent `critic` is refused: ") && why.contains("has no front matter"), "{why}");
    serving.host.stops();
    let alone = reload();
    assert_eq!((alone.code, alone.err.contains("no process hosts the store")), (Some(2), true), "{alone:?}");
}
