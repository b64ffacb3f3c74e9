//! Causes and notices when several things happen to one tree or one run.

use crate::support::*;
use serde::Deserialize;
use tokio::sync::Notify;

async fn named(journal: &Journal, text: &str) -> SessionId {
    journal.settled().await.expect("the journal is open");
    for (id, _) in journal.heads().expect("heads") {
        let is = |record: &Record| matches!(record, Record::InputAccepted(input) if &*input.text == text);
        if records(journal, id).await.iter().any(is) {
            return id;
        }
    }
    panic!("no session received {text:?}")
}

#[tokio::test(start_paused = true)]
async fn child_of_an_interrupted_run_records_the_ancestors_cancel() {
    let journal = journal();
    let model = model(|request: Request| async move {
        match (&*prompt(&request), answers(&request)) {
            ("root", 0) => Ok(calls([task("upper", false)])),
            ("upper", 0) => Ok(calls([task("lower", false)])),
            ("lower", 0) => Ok(calls([task("waited for", false), task("spared", true)])),
            _ => std::future::pending().await,
        }
    });
    let runtime = builder(&journal).model(model).start().await.expect("a runtime");
    let root = open(&runtime);
    let run = root.send("root").await.expect("accepted").run;
    seconds(1).await;
    let lower = runtime.session(named(&journal, "lower").await).expect("read").expect("the session exists");
    lower.interrupt().await.expect("interrupted");
    seconds(1).await;
    let by_owner = |outcome| Some(Outcome::Cancelled { by: Initiator::Owner { outcome } });
    let (waited_for, spared) = (named(&journal, "waited for").await, named(&journal, "spared").await);
    assert_eq!(outcome_of(&journal, waited_for).await, by_owner(OutcomeKind::Interrupted));
    assert_eq!(outcome_of(&journal, spared).await, None);
    root.cancel().await.expect("cancelled");
    root.run_ended(run).await.expect("ended");
    assert_eq!(outcome_of(&journal, spared).await, by_owner(OutcomeKind::Cancelled));
    shut(runtime).await;
}

#[derive(Debug, PartialEq, Deserialize, schemars::JsonSchema)]
struct City {
    city: String,
}

#[tokio::test(start_paused = true)]
async fn typed_question_gets_its_own_answer() {
    let go = Arc::new(Notify::new());
    let gate = Arc::clone(&go);
    let model = model(move |request: Request| {
        let gate = Arc::clone(&gate);
        async move {
            let last = last_user(&request);
            let first = answers(&request) == 0;
            if first {
                gate.notified().await;
            }
            Ok(text(match () {
                () if first => "I would have to think.",
                () if last.starts_with("Italy") => r#"{"city": "Rome"}"#,
                () => r#"{"city": "Paris"}"#,
            }))
        }
    });
    let runtime = builder(&journal()).model(model).start().await.expect("a runtime");
    let session = open(&runtime);
    let (france, italy) = (session.clone(), session.clone());
    let france = tokio::spawn(async move { france.ask::<City>("France").await });
    seconds(1).await;
    let italy = tokio::spawn(async move { italy.ask::<City>("Italy").await });
    seconds(1).await;
    go.notify_one();
    assert_eq!(italy.await.unwrap().unwrap().city, "Rome");
    assert_eq!(france.await.unwrap().unwrap().city, "Paris");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn text_of_a_run_is_whole_after_a_later_run() {
    let long = "x".repeat(100_000);
    let answer = long.clone();
    let model = model(move |_| {
        let answer = answer.clone();
        async move { Ok(text(&answer)) }
    });
    let runtime = builder(&journal()).model(model).start().await.expect("a runtime");
    let session = open(&runtime);
    let first = session.send("one").await.expect("accepted").run;
    session.run_ended(first).await.expect("ended");
    let second = session.send("two").await.expect("accepted").run;
    session.run_ended(second).await.expect("ended");
    for run in [second, first] {
        let ended = session.run_ended(run).await.expect("ended");
        assert_eq!((ended.run, ended.text.map(|text| text.len())), (run, Some(long.len())));
    }
    shut(runtime).await;
}
