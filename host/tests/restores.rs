//! Rollbacks with files over the API.

#![cfg(unix)]

use crate::support::files::{FilesHost, write};
use crate::support::*;

/// A client that lost the reply repeats the rollback. Nothing changes again, and the reply says so.
#[tokio::test]
async fn x15_api_rolls_back_once_and_says_so() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("general", &[write("a.txt", "one\nTWO\n"), "fail".to_owned()]).await;
    let path = format!("/v1/sessions/{id}/rollback");
    let plan = get(&scene.app, &format!("/v1/sessions/{id}/restore?run=1")).await.json();
    // Without the patch, whose size others choose, the plan is the same.
    let mut short = get(&scene.app, &format!("/v1/sessions/{id}/restore?run=1&patch=false")).await.json();
    assert!(plan["patch"].as_str().is_some_and(|patch| patch.ends_with("-TWO\n+two\n")), "the control: {plan}");
    assert_eq!(short["patch"].take(), json!(""));
    short["patch"] = plan["patch"].clone();
    assert_eq!(short, plan);
    let body = json!({"run": 1, "files": plan["digest"]});
    let first = post(&scene.app, &path, &body).await;
    assert_eq!(first.json(), json!({"run": 1, "files": ["a.txt"], "already_rolled_back": false}));
    for body in [&body, &body, &json!({"run": 1}), &json!({})] {
        let again = post(&scene.app, &path, body).await;
        assert_eq!(again.status, 200, "{}", again.body);
        assert_eq!(again.json(), json!({"run": 1, "files": [], "already_rolled_back": true}), "{body}");
    }
    assert_eq!(scene.read("a.txt").as_deref(), Some("one\ntwo\n"));
    // The control: an outdated digest is refused if no rollback took place.
    let other = scene.run_to_end("general", &[write("a.txt", "one\nTHREE\n"), "fail".to_owned()]).await;
    let refused = post(&scene.app, &format!("/v1/sessions/{other}/rollback"), &body).await;
    assert_eq!(refused.problem(), (409, "refused".to_owned()));
    assert_eq!(scene.read("a.txt").as_deref(), Some("one\nTHREE\n"));
    scene.end().await;
}
