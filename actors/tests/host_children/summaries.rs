//! Summaries of sessions, at a close and by request.

use super::*;

const SUMMARY: &str = "## What changed\nIt works.";

#[tokio::test(start_paused = true)]
async fn close_summarises_new_messages_without_waiting() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, |request: Request| async {
        seconds(5).await;
        good(request).await
    });
    let runtime = runtime.start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    session.services_done().await;
    let before = Instant::now();
    session.close().await.expect("closed");
    assert_eq!((before.elapsed(), session.summary().await.expect("readable")), (Duration::ZERO, None));
    session.services_done().await;
    let [_, service] = &children(&runtime, &session)[..] else { panic!("a title and a summary") };
    let material = "The session, oldest first; what was said is indented:\n\nperson:\n  hello\n\nagent:\n  done\n\n";
    assert_eq!(asked_of(&requests, "summary"), [material]);
    let (_, summaries, notices) = described(&journal, session.id()).await;
    let [set] = &summaries[..] else { panic!("{summaries:?}") };
    assert_eq!((&*set.text, set.of, notices), (SUMMARY, service.id(), 0));
    assert_eq!(session.summary().await.expect("readable").as_deref(), Some(set));
    let head = journal.head(session.id()).expect("readable").expect("the session exists");
    assert!(head.closed, "the summary reopened the session");
    session.close().await.expect("closed");
    session.services_done().await;
    assert_eq!(asked_of(&requests, "summary").len(), 1, "summarised again without new messages");
    say(&session, "one thing more").await;
    session.close().await.expect("closed");
    session.services_done().await;
    let (_, summaries, _) = described(&journal, session.id()).await;
    assert_eq!(
        (asked_of(&requests, "summary").len(), summaries.len()),
        (2, 2),
        "the session was not summarised after it was reopened and closed"
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn summary_is_written_on_request_even_during_a_run() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let options = Options { seed: Some(7), ..Options::default() };
    let runtime = serving(&journal, &requests, good).options(options).start().await.expect("a runtime");
    let session = open(&runtime);
    let nothing = "cannot summarise the session: it has no messages yet";
    assert_eq!(session.summarise().await, Err(ControlError::Refused(nothing.into())));
    say(&session, "hello").await;
    assert_eq!(asked_of(&requests, "title"), Vec::<String>::new(), "titles must be off by default");
    assert_eq!(session.summarise().await.as_deref(), Ok(SUMMARY));
    assert_eq!(session.summarise().await.as_deref(), Ok(SUMMARY), "a requested summary was not written");
    session.close().await.expect("closed");
    session.services_done().await;
    assert_eq!(asked_of(&requests, "summary").len(), 2);
    let two = async { tokio::join!(session.summarise(), session.summarise()) };
    let (first, second) = two.await;
    assert_eq!((first.as_deref(), second.as_deref()), (Ok(SUMMARY), Ok(SUMMARY)));
    assert_eq!(asked_of(&requests, "summary").len(), 3, "two concurrent requests did not share one summary");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_summary_is_reported_and_keeps_the_previous_one() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, |request: Request| async {
        let again = prompt(&request).contains("more");
        if again { Err(ModelError::new(ModelFail::Auth, "no key")) } else { good(request).await }
    });
    let runtime = runtime.start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    session.summarise().await.expect("a summary");
    say(&session, "more").await;
    let failed = "cannot summarise the session: its run failed: the model's key is missing or refused (\"no key\")";
    assert_eq!(session.summarise().await, Err(ControlError::Refused(failed.into())));
    let earlier = session.summary().await.expect("readable").expect("the one before");
    assert_eq!((&*earlier.text, earlier.upto < Seq(20)), (SUMMARY, true));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn manifest_of_the_same_name_replaces_the_built_in_one() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let own = Manifest::new("title", AgentMode::Subagent, "Name it in one word.");
    catalog.insert(Manifest { inspectable: true, ..own });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let systems = Arc::clone(&seen);
    let runtime = serving(&journal, &requests, move |request| {
        systems.lock().unwrap().push((request.system.contains("Name it in one word."), offered(&request)));
        good(request)
    });
    let runtime = runtime.catalog(catalog).start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    session.services_done().await;
    assert_eq!(
        (&*seen.lock().unwrap(), title(&runtime, &session)),
        (&vec![(true, Vec::new())], "Fix the login test".to_owned()),
        "expected its own prompt and no tools"
    );
    let [service] = &children(&runtime, &session)[..] else { panic!("one service") };
    let head = journal.head(service.id()).expect("readable").expect("the session exists");
    assert_eq!((head.inspectable, head.last_outcome), (false, Some(OutcomeKind::Completed)));
    assert_eq!(service.run_ended(RunNo(1)).await.expect("ended").outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn untitled_session_is_named_by_its_first_message() {
    let (memory, requests) = (Memory::new(), ServicePrompts::default());
    let first = reopen(&memory);
    let quiet = Options { seed: Some(3), ..Options::default() };
    let runtime = serving(&first, &requests, good).options(quiet).start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "Fix the login").await;
    let id = session.id();
    shut(runtime).await;
    drop((session, first));

    let journal = reopen(&memory);
    let runtime = serving(&journal, &requests, good).start().await.expect("a runtime");
    let session = runtime.session(id).expect("readable").expect("the session exists");
    say(&session, "yes, continue").await;
    session.services_done().await;
    let titles: Vec<String> =
        requests.lock().unwrap().iter().filter(|(agent, _)| agent == "title").map(|(_, text)| text.clone()).collect();
    assert!(matches!(&titles[..], [one] if one.contains("Fix the login") && !one.contains("continue")), "{titles:?}");
    shut(runtime).await;
}
