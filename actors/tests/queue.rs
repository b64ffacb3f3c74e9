//! The queue of a session: its order, its limits, and its events.

use crate::support::*;
use subtend_actors::event::{QueueEvent, QueueEvents};
use subtend_actors::{QueueEntry, QueueKind};
use subtend_session::record::Lane;
use subtend_session::state::Boundary;

/// Answers with the last input after ten seconds. Fails for "fail".
async fn slow(request: Request) -> Result<Answer, ModelError> {
    seconds(10).await;
    match last_user(&request).as_str() {
        "fail" => Err(ModelError::new(ModelFail::InvalidRequest, "as asked")),
        last => Ok(text(last)),
    }
}

fn texts(entries: &[QueueEntry]) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.text).collect()
}

#[tokio::test(start_paused = true)]
async fn queue_is_listed_in_processing_order() {
    let journal = journal();
    let runtime = builder(&journal).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    assert_eq!(session.queue().await, Ok(Vec::new()), "the first input was queued");
    let metadata = json!({"from": "mail"});
    let two = session.input("two").metadata(&metadata).send().await.expect("accepted");
    session.send("three").await.expect("accepted");
    session.steer("first").await.expect("accepted");
    let queue = session.queue().await.expect("listed");
    assert_eq!(texts(&queue), ["first", "two", "three"]);
    let entry = QueueEntry {
        id: two.input,
        kind: QueueKind::User,
        text: "two".into(),
        metadata: Some(metadata.to_string().into()),
        lane: Lane::Send,
        at: queue[1].at,
        time_ms: queue[1].time_ms,
        taken_at: Some(Boundary::Rest),
    };
    assert_eq!(queue[1], entry);
    assert_eq!((queue[0].lane, queue[0].taken_at), (Lane::Steer, Some(Boundary::Turn)));
    // Read from the journal, without a runtime.
    assert_eq!(QueueEntry::list(&journal, session.id(), true).expect("readable"), queue);
    // Behind a run that does not resume, the oldest message opens the next run, and steering messages join it.
    let behind = QueueEntry::list(&journal, session.id(), false).expect("readable");
    assert_eq!(texts(&behind), ["two", "first", "three"]);
    let at: Vec<_> = behind.iter().filter_map(|entry| entry.taken_at).collect();
    assert_eq!(at, [Boundary::Run, Boundary::Run, Boundary::Rest]);
    end_of(&session, 1).await;
    assert_eq!(session.queue().await, Ok(Vec::new()));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn removed_or_cleared_input_is_never_taken() {
    let runtime = builder(&journal()).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    let two = session.send("two").await.expect("accepted");
    session.send("three").await.expect("accepted");
    assert_eq!(session.queue_remove(two.input).await, Ok(true));
    assert_eq!(
        session.queue_remove(two.input).await,
        Ok(false),
        "an input that was already removed was reported as removed"
    );
    assert_eq!(session.queue_remove(InputId(uuid::Uuid::from_u128(7))).await, Ok(false));
    assert_eq!(end_of(&session, 1).await.text.as_deref(), Some("three"));
    session.send("four").await.expect("accepted");
    session.send("five").await.expect("accepted");
    session.send("six").await.expect("accepted");
    assert_eq!(session.queue_clear().await, Ok(2));
    assert_eq!(session.queue_clear().await, Ok(0));
    assert_eq!(end_of(&session, 2).await.text.as_deref(), Some("four"));
    assert_eq!(session.current_run().await.expect("probed").map(|run| run.no()), None);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_and_drained_after_every_kind_of_end() {
    let limits = Limits { queue: 2, ..Limits::default() };
    let runtime = builder(&journal()).limits(limits).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "fail").await;
    session.send("two").await.expect("accepted");
    session.send("three").await.expect("accepted");
    let full = session.send("four").await.err();
    assert_eq!(full, Some(SendError::Busy { what: "the session's queue", limit: 2 }));
    assert!(matches!(end_of(&session, 1).await.outcome, Outcome::Failed { .. }));
    seconds(1).await;
    session.cancel().await.expect("cancelled");
    assert_eq!(end_of(&session, 2).await.outcome, Outcome::Cancelled { by: Initiator::Person });
    let third = end_of(&session, 3).await;
    assert_eq!((third.outcome, third.text.as_deref()), (Outcome::Completed, Some("three")));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn queued_input_survives_the_host_and_opens_the_next_run() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    session.send("two").await.expect("accepted");
    drop((runtime, journal));
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(model(slow)).start().await.expect("a runtime");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    assert_eq!(end_of(&session, 1).await.outcome, Outcome::Lost);
    assert_eq!(end_of(&session, 2).await.text.as_deref(), Some("two"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn busy_session_is_not_closed_and_an_input_reopens_one() {
    let journal = journal();
    let runtime = builder(&journal).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    assert!(matches!(session.close().await, Err(ControlError::Working(_))));
    session.send("two").await.expect("accepted");
    session.cancel_tree().await.expect("cancelled");
    end_of(&session, 1).await;
    assert_eq!(session.close().await, Err(ControlError::Waiting(1)));
    assert_eq!(session.queue_clear().await, Ok(1));
    assert_eq!([session.close().await, session.close().await], [Ok(()), Ok(())]);
    assert!(journal.head(session.id()).expect("readable").expect("the session exists").closed);
    let receipt = session.send("again").await.expect("accepted");
    assert_eq!(end_of(&session, receipt.run.0).await.text.as_deref(), Some("again"));
    assert!(!journal.head(session.id()).expect("readable").expect("the session exists").closed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn events_of_the_queue_follow_from_its_records() {
    let journal = journal();
    let runtime = builder(&journal).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    session.send("two").await.expect("accepted");
    let three = session.send("three").await.expect("accepted");
    session.steer("now").await.expect("accepted");
    session.queue_remove(three.input).await.expect("removed");
    end_of(&session, 1).await;
    session.send("four").await.expect("accepted");
    end_of(&session, 2).await;
    journal.settled().await.expect("the journal is open");
    let mut queue = QueueEvents::default();
    let stored = journal.records(session.id()).expect("records");
    let events: Vec<String> = stored
        .iter()
        .flat_map(|stored| queue.add(stored.seq, &stored.record))
        .map(|event| match event {
            QueueEvent::Queued { count, message } => format!("queued {count}: {}", message.text),
            QueueEvent::Processing { message } => format!("processing {}", message.text),
            QueueEvent::Empty => "empty".to_owned(),
        })
        .collect();
    let received = [
        "processing one",
        "queued 1: two",
        "queued 2: three",
        "queued 3: now",
        "processing now",
        "processing two",
        "empty",
        "processing four",
    ];
    assert_eq!(events, received);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b11_queue_lists_held_completions_with_type_and_time() {
    let journal = journal();
    let answering = model(|request: Request| async move {
        match (&*prompt(&request), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", true)])),
            ("child", _) => Ok(text("found")),
            _ => {
                seconds(10).await;
                Ok(text("done"))
            }
        }
    });
    let runtime = builder(&journal).model(answering).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(1).await;
    let two = session.send("two").await.expect("accepted");
    let queue = session.queue().await.expect("listed");
    let child = session.tree().await.expect("a tree").children[0].id;
    let kinds: Vec<_> = queue.iter().map(|entry| (entry.kind, &*entry.text)).collect();
    assert_eq!(kinds, [(QueueKind::User, "two"), (QueueKind::Completion, "found")]);
    assert_eq!((queue[0].id, queue[1].id), (two.input, InputId(child.0)));
    let metadata: Value = serde_json::from_str(queue[1].metadata.as_deref().expect("metadata")).expect("json");
    assert_eq!(metadata, json!({"outcome": "completed", "run": 1}));
    let ended = journal.records(child).expect("records").last().map(|stored| stored.at_ms);
    assert_eq!(queue[1].time_ms, ended);
    journal.settled().await.expect("the journal is open");
    assert_eq!(QueueEntry::list(&journal, session.id(), true).expect("readable"), queue);
    assert!(queue[0].time_ms.is_some());
    assert_eq!(session.queue_remove(queue[1].id).await, Ok(false), "K5: a completion was removed");
    assert_eq!(session.queue_clear().await, Ok(1));
    assert_eq!(session.queue().await.expect("listed").len(), 1);
    end_of(&session, 1).await;
    assert_eq!(session.queue().await, Ok(Vec::new()));
    shut(runtime).await;
}

/// Returns the queue events of `session` from record `from` on, abbreviated, each with its record.
async fn queue_events(session: &SessionHandle, from: Seq) -> Vec<(u64, String)> {
    let mut events = session.events(from);
    let mut seen = Vec::new();
    while let Ok(event) = tokio::time::timeout(Duration::from_secs(1), events.next()).await {
        let Some(event) = event.expect("the runtime is running") else { break };
        let EventKind::Queue { seq, event } = event.what else { continue };
        let word = match event {
            QueueEvent::Queued { count, message } => format!("queued {count}: {}", message.text),
            QueueEvent::Processing { message } => format!("processing {}", message.text),
            QueueEvent::Empty => "empty".to_owned(),
        };
        seen.push((seq.0, word));
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn b11_queue_events_are_part_of_the_durable_stream() {
    let runtime = builder(&journal()).model(model(slow)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "one").await;
    session.send("two").await.expect("accepted");
    session.send("three").await.expect("accepted");
    end_of(&session, 1).await;
    let all = queue_events(&session, Seq(1)).await;
    let texts: Vec<&str> = all.iter().map(|(_, word)| &**word).collect();
    let expected =
        ["processing one", "queued 1: two", "queued 2: three", "processing two", "processing three", "empty"];
    assert_eq!(texts, expected);
    // Any starting record gives the same events.
    for (from, _) in &all {
        let rest: Vec<_> = all.iter().filter(|(seq, _)| seq >= from).cloned().collect();
        assert_eq!(queue_events(&session, Seq(*from)).await, rest);
    }
    shut(runtime).await;
}
