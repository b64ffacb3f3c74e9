//! A panic in a tool, a model, the turn task or the session's own handler is survived.

use crate::support::*;
use subtend_session::outcome::Part;

/// Panics `times` times at `point` with `detail`, then never again.
fn inject(point: Point, detail: &'static str, times: usize) -> (Faults, Arc<AtomicUsize>) {
    let struck = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&struck);
    let faults = Faults::new(move |at, what| {
        if at == point && what == detail && count.fetch_add(1, Ordering::Relaxed) < times {
            panic!("injected fault at {detail}");
        }
    });
    (faults, struck)
}

async fn with_one_call(request: Request) -> Result<Answer, ModelError> {
    if answers(&request) == 0 {
        return Ok(calls([("work", json!({}))]));
    }
    Ok(text(results(&request).first().expect("a result")))
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_tool_is_a_tool_error() {
    let broken = tool("work", ToolEffect::ReadOnly, |_| async { panic!("the tool broke") });
    let runtime = started(builder(&journal()).tools(tools([broken])).model(model(with_one_call))).await;
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    assert!(ended.text.as_deref().is_some_and(|text| text.contains("the tool broke")), "{ended:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn panic_in_the_model_is_retried_and_then_fails_the_run() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let runtime = builder(&journal())
        .model(model(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async { panic!("the model broke") }
        }))
        .start()
        .await
        .expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert!(matches!(ended.outcome, Outcome::Failed { kind: FailKind::Panic { part: Part::Model, .. } }), "{ended:?}");
    assert_eq!(made.load(Ordering::Relaxed), 3, "expected all attempts of the turn");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn panic_in_the_turn_task_is_retried() {
    let journal = journal();
    let (faults, struck) = inject(Point::TurnTask, "model", 1);
    let answer = |_| async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        Ok(text("after all"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("after all")));
    assert_eq!(struck.load(Ordering::Relaxed), 2);
    let discarded = records(&journal, session.id()).await;
    assert_eq!(discarded.iter().filter(|record| matches!(record, Record::AttemptDiscarded(_))).count(), 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn panic_in_the_handler_restarts_the_session() {
    for command in ["model_answered", "tool_finished", "spawn", "owned_ended", "admitted"] {
        let journal = journal();
        let (faults, struck) = inject(Point::Handler, command, 1);
        let answer = |request: Request| async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => Ok(calls([("work", json!({})), task("child", false)])),
                ("parent", _) => Ok(text("whole")),
                (_, _) => Ok(text("child")),
            }
        };
        let work = tool("work", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("worked")) });
        let runtime = started(builder(&journal).tools(tools([work])).model(model(answer)).faults(faults)).await;
        let (session, ended) = ask(&runtime, "parent").await;
        assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("whole")), "{command}");
        assert!(struck.load(Ordering::Relaxed) > 1, "{command} was never decided");
        let all = records(&journal, session.id()).await;
        let ends = all.iter().filter(|record| matches!(record, Record::RunEnded(_))).count();
        assert_eq!(ends, 1, "{command}: {all:#?}");
        assert_eq!(journal.outbox().expect("outbox"), [], "{command}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn command_that_panics_twice_ends_the_run() {
    let journal = journal();
    let (faults, _) = inject(Point::Handler, "model_answered", usize::MAX);
    let answer = |_| async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        Ok(text("never decided"))
    };
    let runtime = builder(&journal).model(model(answer)).faults(faults).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::RestartsExhausted { command: Some("model_answered".into()) });
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn panic_between_append_and_effects_loses_no_effect() {
    for last in ["run_ended", "run_parked", "call_finished"] {
        let journal = journal();
        let (faults, struck) = inject(Point::AfterAppend, last, 1);
        let answer = |request: Request| async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => Ok(calls([task("middle", false), task("side", true)])),
                ("middle", 0) => Ok(calls([task("leaf", false)])),
                ("parent", _) => Ok(text("whole")),
                (_, _) => Ok(text("child")),
            }
        };
        let options = Options { slots: 1, seed: Some(7), ..Options::default() };
        let runtime = started(builder(&journal).options(options).model(model(answer)).faults(faults)).await;
        let (_, ended) = ask(&runtime, "parent").await;
        assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("whole")), "{last}");
        assert!(struck.load(Ordering::Relaxed) > 0, "{last} was never the last record");
        assert_eq!(journal.outbox().expect("outbox"), [], "{last}");
        assert_eq!(journal.inflight().expect("inflight"), [], "{last}");
        assert_eq!(runtime.slots_in_use(), 0, "{last}");
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn run_that_survives_a_panic_keeps_its_slot() {
    let (faults, _) = inject(Point::Handler, "model_answered", 1);
    let live = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, top) = (Arc::clone(&live), Arc::clone(&most));
    let answer = move |request: Request| {
        let (now, top) = (Arc::clone(&now), Arc::clone(&top));
        async move {
            // The panic must not hit the handler that accepts the input: that would lose the input too.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            if prompt(&request) == "parent" {
                let children = (0..4).map(|_| task("child", false));
                return Ok(if answers(&request) == 0 { calls(children) } else { text("whole") });
            }
            top.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            Ok(text("child"))
        }
    };
    let options = Options { slots: 1, seed: Some(7), ..Options::default() };
    let runtime = started(builder(&journal()).options(options).model(model(answer)).faults(faults)).await;
    let (_, ended) = ask(&runtime, "parent").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    assert_eq!((most.load(Ordering::Relaxed), runtime.slots_in_use()), (1, 0));
    shut(runtime).await;
}
