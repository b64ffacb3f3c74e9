//! Imports over the API: their progress, as clients see it.

use crate::support::*;
use subtend_journal::ImportBounds;
use subtend_journal::stepper::Stepped;

#[tokio::test]
async fn import_in_progress_is_listed_with_its_frames() {
    let author = crate::support::host(&Memory::new()).await;
    let id = open_and_finish(&author.router(), "children").await;
    let exported = get(&author.router(), &format!("/v1/sessions/{id}/export")).await.body;
    end(author).await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("all.jsonl");
    std::fs::write(&file, exported).expect("written");

    // Writes of this store block while it is held.
    let opened = Journal::open_stepped(Box::new(Memory::new()), subtend_journal::Options::default());
    let (journal, mut stepper) = opened.expect("a journal");
    let (hold, mut held) = tokio::sync::watch::channel(false);
    let writer = tokio::spawn(async move {
        loop {
            stepper.wait_for_work().await;
            held.wait_for(|held| !held).await.expect("the test releases it");
            if stepper.step(64) == Stepped::Closed {
                return;
            }
        }
    });
    let model = fn_model("greets", |_, _| async { Ok(Answer::of_text("Hello.")) });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model)).start().await;
    let host = Host::new(runtime.expect("a runtime"), HostOptions::default());
    let app = host.router();
    let path = "/v1/store/imports";
    assert_eq!(get(&app, path).await.json(), json!([]));
    hold.send_replace(true);
    let body = json!({"file": file, "within": ImportBounds::none().rights});
    let importing = tokio::spawn({
        let app = app.clone();
        async move { post(&app, path, &body).await }
    });
    let listed = loop {
        let listed = get(&app, path).await.json();
        if listed[0]["frames"].as_u64().is_some_and(|frames| frames > 0) {
            break listed[0].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(listed["file"], json!(file));
    hold.send_replace(false);
    let done = importing.await.expect("an answer");
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(listed["frames"].as_u64() <= done.json()["frames"].as_u64(), "{listed} {}", done.body);
    assert_eq!(get(&app, path).await.json(), json!([]));
    finish(host, app).await;
    drop(writer.await);
}
