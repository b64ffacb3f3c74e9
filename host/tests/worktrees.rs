//! Worktrees over the API: they are listed and shown, then merged, kept or discarded as shown.

#![cfg(unix)]

use crate::support::files::{FilesHost, write};
use crate::support::*;

async fn diff(scene: &FilesHost, id: &str) -> Value {
    let shown = get(&scene.app, &format!("/v1/sessions/{id}/worktree")).await;
    assert_eq!(shown.status, 200, "{}", shown.body);
    shown.json()
}

async fn settle(scene: &FilesHost, id: &str, what: &str, body: &Value) -> HttpResponse {
    post(&scene.app, &format!("/v1/sessions/{id}/worktree/{what}"), body).await
}

#[tokio::test]
async fn x14_api_merges_the_changes_that_were_shown() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("worker", &[write("a.txt", "one\nTWO\n"), write("new.txt", "n\n")]).await;
    let listed = get(&scene.app, &format!("/v1/trees/{id}/worktrees")).await.json();
    let [row] = &**listed["worktrees"].as_array().expect("rows") else { panic!("{listed}") };
    assert_eq!((&row["session"], &row["stage"], &row["busy"]), (&json!(id), &json!("ready"), &Value::Null));
    let shown = diff(&scene, &id).await;
    assert_eq!(shown["branch"], row["branch"]);
    assert_eq!(shown["files"][0], json!({"path": "a.txt", "added": 1, "removed": 1}));
    let patch = shown["patch"].as_str().expect("a patch");
    assert!(patch.contains("-two\n+TWO\n") && patch.contains("+++ b/new.txt"), "{patch}");
    // Changes made after the view was shown are neither merged nor lost.
    scene.put_in(&id, "new.txt", "other\n");
    for what in ["merge", "keep", "discard"] {
        let late = settle(&scene, &id, what, &json!({"tip": shown["tip"]})).await;
        assert_eq!(late.problem(), (409, "refused".to_owned()), "{what}");
        assert!(late.body.contains("changed after its changes were shown"), "{}", late.body);
    }
    assert_eq!((scene.read("new.txt"), scene.read("a.txt").as_deref()), (None, Some("one\ntwo\n")));
    let tip = json!({"tip": diff(&scene, &id).await["tip"]});
    let merged = settle(&scene, &id, "merge", &tip).await.json();
    assert_eq!(merged, json!({"files": ["a.txt", "new.txt"], "left": [], "already_merged": false}));
    assert_eq!(scene.read("new.txt").as_deref(), Some("other\n"));
    // A repeated merge has no second effect.
    scene.put("new.txt", "mine\n");
    let again = json!({"files": [], "left": [], "already_merged": true});
    assert_eq!(settle(&scene, &id, "merge", &tip).await.json(), again);
    assert_eq!(scene.read("new.txt").as_deref(), Some("mine\n"));
    scene.end().await;
}

#[tokio::test]
async fn x14_api_keeps_or_discards_a_worktree() {
    let scene = FilesHost::new().await;
    let kept = scene.run_to_end("worker", &[write("new.txt", "n\n")]).await;
    let gone = scene.run_to_end("worker", &[write("new.txt", "n\n")]).await;
    let first = settle(&scene, &kept, "keep", &json!({})).await.json();
    let branch = first["branch"].as_str().expect("a name").to_owned();
    let tip = json!({"tip": diff(&scene, &gone).await["tip"]});
    for _ in 0..2 {
        let discarded = settle(&scene, &gone, "discard", &tip).await;
        assert_eq!(discarded.status, 204, "{}", discarded.body);
    }
    assert_eq!(scene.branches(), format!("main\n{branch}"));
    for id in [&kept, &gone] {
        let none = json!({"worktrees": [], "damaged": []});
        assert_eq!(get(&scene.app, &format!("/v1/trees/{id}/worktrees")).await.json(), none);
        let none = get(&scene.app, &format!("/v1/sessions/{id}/worktree")).await;
        assert_eq!(none.problem(), (404, "not_found".to_owned()));
        let none = settle(&scene, id, "merge", &tip).await;
        assert_eq!(none.problem(), (404, "not_found".to_owned()));
        assert_eq!(none.body.contains(&branch), id == &kept, "{}", none.body);
    }
    scene.end().await;
}

/// A repeated command reports what the first one did; a command that comes too late reports why it has no effect.
#[tokio::test]
async fn x14_api_reports_what_a_repeated_worktree_command_did() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("worker", &[write("new.txt", "n\n")]).await;
    let tip = json!({"tip": diff(&scene, &id).await["tip"]});
    let first = settle(&scene, &id, "keep", &tip).await.json();
    let branch = first["branch"].as_str().expect("a name").to_owned();
    assert_eq!(first["already_kept"], false);
    for body in [&tip, &json!({})] {
        let again = settle(&scene, &id, "keep", body).await.json();
        assert_eq!(again, json!({"branch": branch, "already_kept": true}));
    }
    let late = settle(&scene, &id, "discard", &tip).await;
    assert_eq!(late.problem(), (409, "refused".to_owned()));
    assert!(late.body.contains(&format!("git branch -D {branch}")), "{}", late.body);
    assert_eq!(scene.branches(), format!("main\n{branch}"));
    scene.delete_branch(&branch);
    assert_eq!(settle(&scene, &id, "discard", &tip).await.status, 204);
    let none = settle(&scene, &id, "keep", &tip).await;
    assert_eq!(none.problem(), (404, "not_found".to_owned()));
    scene.end().await;
}

/// A session without a worktree has nothing to merge or keep.
#[tokio::test]
async fn x14_api_refuses_worktree_commands_without_one() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("general", &["done".to_owned()]).await;
    for what in ["merge", "keep"] {
        let none = settle(&scene, &id, what, &json!({"tip": "0"})).await;
        assert_eq!(none.problem(), (404, "not_found".to_owned()), "{what}");
    }
    scene.end().await;
}

#[tokio::test]
async fn x14_damaged_worktree_does_not_hide_others() {
    let scene = FilesHost::new().await;
    let task = |text: &str| json!({"task": {"subagent_type": "worker", "prompt": write("new.txt", text)}}).to_string();
    let id = scene.run_to_end("general", &[task("one\n"), task("two\n")]).await;
    let path = format!("/v1/trees/{id}/worktrees");
    let listed = get(&scene.app, &path).await.json();
    let rows = listed["worktrees"].as_array().expect("rows");
    let [good, bad] = [0, 1].map(|ix| rows[ix]["session"].as_str().expect("an id").to_owned());
    scene.damage(&bad);
    let listed = get(&scene.app, &path).await.json();
    assert_eq!((&listed["worktrees"][0], listed["worktrees"].as_array().map(Vec::len)), (&rows[0], Some(1)));
    let [damaged] = &**listed["damaged"].as_array().expect("rows") else { panic!("{listed}") };
    let why = damaged["error"].as_str().expect("a reason");
    assert_eq!(damaged["session"], json!(bad));
    assert!(why.contains("cannot be read") && why.contains("subtend doctor"), "{why}");
    let branches = get(&scene.app, &format!("/s/{id}/branches")).await.body;
    for (id, state) in [(&good, "good\">ready"), (&bad, "bad\">damaged")] {
        let link = format!("<a href=\"/s/{id}/worktree\">Worktree</a> <span class=\"state {state}</span>");
        assert!(branches.contains(&link), "{link} in {branches}");
        let page = get(&scene.app, &format!("/s/{id}")).await.body;
        assert!(page.contains(&link), "{link} in {page}");
    }
    let page = get(&scene.app, &format!("/s/{bad}/worktree")).await;
    assert!(page.body.contains("cannot be read"), "{}", page.body);
    scene.end().await;
}

#[tokio::test]
async fn x14_api_refuses_changes_to_a_worktree_in_use() {
    let scene = FilesHost::new().await;
    let task = json!({"task": {"subagent_type": "worker", "prompt": format!("{}\nhang", write("new.txt", "n\n"))}});
    let id = scene.open("general", &[task.to_string()]).await;
    let path = format!("/v1/trees/{id}/worktrees");
    let row = loop {
        let listed = get(&scene.app, &path).await.json();
        if listed["worktrees"][0]["stage"] == "ready" {
            break listed["worktrees"][0].clone();
        }
        tokio::task::yield_now().await;
    };
    let child = row["session"].as_str().expect("an id");
    assert_eq!(row["busy"], json!(child));
    let tip = json!({"tip": diff(&scene, child).await["tip"]});
    for what in ["merge", "keep", "discard"] {
        let busy = settle(&scene, child, what, &tip).await;
        assert_eq!(busy.problem(), (409, "session_working".to_owned()), "{what}");
    }
    // The parent works in the workspace.
    let none = get(&scene.app, &format!("/v1/sessions/{id}/worktree")).await;
    assert_eq!(none.problem(), (404, "not_found".to_owned()));
    scene.end().await;
}

/// Attack: clients send many commands for worktrees that another process has locked, and leave. The control: a command waits for its
/// worktree. Commands of clients that left while they waited have no effect.
#[test]
fn x14_commands_that_wait_for_worktrees_leave_threads() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(6).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let scene = FilesHost::new().await;
        let mut ids = Vec::new();
        for _ in 0..6 {
            ids.push(scene.run_to_end("worker", &[write("new.txt", "n\n")]).await);
        }
        let [first, others @ ..] = &*ids else { panic!("no session") };
        let locked: Vec<_> = ids.iter().map(|id| scene.lock(id)).collect();
        let limit = std::time::Duration::from_millis(300);
        let path = format!("/v1/sessions/{first}/worktree");
        let mut shown = Box::pin(get(&scene.app, &path));
        tokio::time::timeout(limit, &mut shown).await.expect_err("control: another process has the lock");
        let none = json!({});
        let repeated = (0..100).map(|_| settle(&scene, first, "discard", &none));
        let commands = repeated.chain(others.iter().map(|id| settle(&scene, id, "discard", &none)));
        let mut commands = Box::pin(futures_util::future::join_all(commands));
        tokio::time::timeout(limit, &mut commands).await.expect_err("they wait");
        let other = tokio::task::spawn_blocking(|| ());
        tokio::time::timeout(limit * 30, other).await.expect("a thread is free").expect("it ran");
        drop((shown, commands, locked));
        let left = diff(&scene, first).await;
        assert_eq!(left["files"][0]["path"], "new.txt");
        scene.end().await;
    });
}

/// Attack: a worktree with a long patch. The control: a shorter one is shown. The page shows the start of both.
#[tokio::test]
async fn x14_patch_above_the_limit_is_refused_over_http() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("worker", &[write("new.txt", "n\n")]).await;
    for (lines, is_shown) in [(500_000, true), (700_000, false)] {
        scene.put_in(&id, "new.txt", &"line 1\n".repeat(lines));
        let shown = get(&scene.app, &format!("/v1/sessions/{id}/worktree")).await;
        let page = get(&scene.app, &format!("/s/{id}/worktree")).await.body;
        assert!(page.contains("The rest is too long for this page") && page.len() < 4 << 20, "{} bytes", page.len());
        match is_shown {
            true => assert!(shown.json()["patch"].as_str().expect("a patch").lines().count() > lines),
            false => {
                assert_eq!(shown.problem(), (409, "refused".to_owned()));
                assert!(shown.body.contains("more than 4 MiB") && shown.body.len() < 1_000, "{}", shown.body);
            }
        }
    }
    scene.end().await;
}
