//! A blocking call moves to the background: the task continues, and its end arrives as a message.

use crate::support::*;
use subtend_session::record::Carrier;

async fn call_of(journal: &Journal, session: &SessionHandle) -> CallId {
    let started = |record| match record {
        Record::CallStarted { call, kind, .. } if matches!(*kind, CallKind::Child(_)) => Some(call),
        _ => None,
    };
    records(journal, session.id()).await.into_iter().find_map(started).expect("a child's call")
}

async fn family(request: Request) -> Result<Answer, ModelError> {
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("child", false)])),
        ("parent", _) => Ok(text(&kinds_of(&request).join(" "))),
        _ => {
            seconds(60).await;
            Ok(text("found"))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn backgrounded_call_returns_and_its_end_is_a_message() {
    let journal = journal();
    let runtime = builder(&journal).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    let call = call_of(&journal, &session).await;
    assert_eq!(session.background(call).await, Ok(Control::Done(RunNo(1))));
    assert_eq!(
        session.background(call).await,
        Ok(Control::Done(RunNo(1))),
        "expected a repetition to return the same result"
    );
    seconds(1).await;
    let all = records(&journal, session.id()).await;
    let moved = all.iter().find_map(|record| match record {
        Record::CallFinished(finished) => Some((finished.call, finished.end.clone())),
        _ => None,
    });
    assert_eq!(moved, Some((call, CallEnd::Backgrounded)));
    let ended = end_of(&session, 1).await;
    let received = "user assistant result assistant notice";
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some(received)));
    let carriers: Vec<Carrier> = records(&journal, session.id())
        .await
        .into_iter()
        .filter_map(|record| match record {
            Record::NoticeTaken(taken) => Some(taken.carrier),
            _ => None,
        })
        .collect();
    assert_eq!(carriers, [Carrier::Message]);
    assert_eq!(session.background(call).await, Ok(Control::AlreadyEnded(RunNo(1), Outcome::Completed)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn call_without_a_task_is_not_moved_to_the_background() {
    let journal = journal();
    let work = tool("work", ToolEffect::ReadOnly, |_| async {
        seconds(20).await;
        Ok(ToolOutput::text("worked"))
    });
    let answer = |request: Request| async move {
        if answers(&request) == 0 { Ok(calls([("work", json!({}))])) } else { Ok(text("done")) }
    };
    let runtime = builder(&journal).tools(tools([work])).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let nothing = CallId { turn: TurnNo(9), ix: 9 };
    assert_eq!(session.background(nothing).await, Ok(Control::NotFound));
    session.send("go").await.expect("accepted");
    seconds(5).await;
    assert_eq!(session.background(nothing).await, Ok(Control::NotFound));
    let local = session.background(CallId { turn: TurnNo(1), ix: 0 }).await;
    assert!(matches!(local, Err(ControlError::Refused(_))), "{local:?}");
    assert_eq!(end_of(&session, 1).await.text.as_deref(), Some("done"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn check_waits_for_its_timeout_and_does_not_end_the_task() {
    let journal = journal();
    let answer = |request: Request| async move {
        let result = results(&request).pop().unwrap_or_default();
        let child = || serde_json::from_str::<Value>(&result).expect("JSON")["session_id"].clone();
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(calls([task("child", true)])),
            ("parent", 1) => Ok(calls([("check_task", json!({"taskId": child(), "timeoutMs": 2_000}))])),
            ("parent", 2) => Ok(text(&result)),
            ("parent", _) => Ok(text("heard")),
            _ => {
                seconds(60).await;
                Ok(text("found"))
            }
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(3).await;
    let output = records(&journal, session.id()).await.into_iter().rev().find_map(|record| match record {
        Record::TurnAnswered(answered) => answered.text,
        _ => None,
    });
    assert!(output.as_deref().is_some_and(|output| output.contains("still running")), "{output:?}");
    assert_eq!(end_of(&session, 1).await.text.as_deref(), Some("heard"));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_a_task_moved_to_the_background() {
    let journal = journal();
    let runtime = builder(&journal).model(model(family)).start().await.expect("a runtime");
    let (session, _) = sent(&runtime, "parent").await;
    seconds(5).await;
    session.background(call_of(&journal, &session).await).await.expect("moved");
    session.cancel().await.expect("cancelled");
    end_of(&session, 1).await;
    assert_eq!(journal.inflight().expect("inflight"), []);
    shut(runtime).await;
}
