//! Token budgets: reserved before a call, settled after it, never exceeded in between (E-3).

use crate::support::*;
use subtend_session::outcome::Budget;

const SPENT: Outcome = Outcome::OutOfBudget { which: Budget::Tokens };

fn provider<F, Fut>(answer: F) -> Arc<dyn Model>
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ModelError>> + Send + 'static,
{
    Arc::new(fn_model("lab/model", move |request, _| answer(request)).with_leaves_process(true))
}

fn tokens(tokens: u64) -> Limits {
    Limits { tokens: Some(tokens), output_tokens: Some(100), backoff_ms: 0, ..Limits::default() }
}

fn costing(answer: Answer, tokens: u64) -> Answer {
    Answer { usage: Usage { input: tokens - 1, output: 1, ..Usage::default() }, ..answer }
}

async fn attempts(journal: &Journal, session: SessionId) -> Vec<(u64, Option<u64>)> {
    let mut attempts = Vec::new();
    for record in records(journal, session).await {
        match record {
            Record::TurnStarted { reserved, .. } => {
                attempts.push((reserved.map_or(0, |reserved| reserved.input + reserved.output), None));
            }
            Record::TurnAnswered(answered) => {
                attempts.last_mut().unwrap().1 =
                    Some(answered.usage).filter(|usage| !usage.unreliable).map(|usage| usage.tokens());
            }
            _ => {}
        }
    }
    attempts
}

async fn one_call(text: &str) -> u64 {
    let journal = journal();
    let answer = |_| async { Ok(costing(crate::support::text("done"), 7)) };
    let runtime = builder(&journal).model(provider(answer)).limits(tokens(1_000_000)).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, text).await;
    assert_eq!(ended.outcome, Outcome::Completed);
    let made = attempts(&journal, session.id()).await;
    assert_eq!((made.len(), made[0].1), (1, Some(7)));
    shut(runtime).await;
    made[0].0
}

#[tokio::test(start_paused = true)]
async fn tree_without_a_budget_makes_no_reservation() {
    let journal = journal();
    let answer = |_| async { Ok(costing(text("done"), 7)) };
    let runtime = builder(&journal).model(provider(answer)).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "go").await;
    assert_eq!(attempts(&journal, session.id()).await, [(0, Some(7))]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn call_beyond_the_budget_ends_the_run_with_partial_text() {
    let journal = journal();
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let answer = move |request: Request| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        async move {
            // The tool is unknown, so the model is called again as long as tokens remain.
            let answer = calls([("nothing", json!({}))]);
            let received = format!("part {n}, after {} answers", answers(&request));
            Ok(costing(Answer { text: Some(received.into()), ..answer }, 1_000))
        }
    };
    let runtime = builder(&journal).model(provider(answer)).limits(tokens(3_500)).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, SPENT);
    let message = ended.text.unwrap();
    assert!(message.contains("part 0") && message.contains("part 2"), "{message}");
    let attempts = attempts(&journal, session.id()).await;
    let (last, before) = attempts.split_last().unwrap();
    assert_eq!((last.1, before.len()), (None, made.load(Ordering::Relaxed)));
    assert!(before.iter().all(|attempt| attempt.1 == Some(1_000)));
    let settled = 1_000 * before.len() as u64;
    assert!(settled + last.0 > 3_500, "{settled} settled, {} asked for", last.0);
    assert_eq!(ended.usage.tokens(), settled, "the refused call was charged");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn child_spends_from_its_owners_budget() {
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(costing(calls([task("child", false)]), 500)),
            ("parent", _) => Ok(costing(text("never"), 500)),
            (_, _) => Ok(costing(text("dear"), 9_300)),
        }
    };
    let runtime = builder(&journal).model(provider(answer)).limits(tokens(9_900)).start().await.expect("a runtime");
    let (session, ended) = ask(&runtime, "parent").await;
    assert_eq!((ended.outcome, ended.usage.tokens()), (SPENT, 9_800));
    // A person's next run has a budget of its own.
    let receipt = session.send("again").await.expect("accepted");
    let again = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!(again.outcome, Outcome::Completed);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_tree_wait_when_the_budget_is_reserved() {
    let one = one_call("child").await;
    let at_once = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let seen = Arc::clone(&at_once);
    let answer = move |request: Request| {
        let seen = Arc::clone(&seen);
        async move {
            match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => {
                    Ok(costing(calls([task("child", false), task("child", false), task("child", false)]), 10))
                }
                ("parent", _) => Ok(costing(text("all done"), 10)),
                (_, _) => {
                    let now = seen.0.fetch_add(1, Ordering::SeqCst) + 1;
                    seen.1.fetch_max(now, Ordering::SeqCst);
                    seconds(5).await;
                    seen.0.fetch_sub(1, Ordering::SeqCst);
                    Ok(costing(text("done"), 10))
                }
            }
        }
    };
    // The budget covers two calls at a time, and the parent's last call.
    let limits = tokens(2 * one + 60);
    let runtime = builder(&journal()).model(provider(answer)).limits(limits).start().await.expect("a runtime");
    let begun = Instant::now();
    let (_, ended) = ask(&runtime, "parent").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("all done")));
    assert_eq!((at_once.1.load(Ordering::SeqCst), begun.elapsed()), (2, Duration::from_secs(10)));
    shut(runtime).await;
}

/// Returns a runtime whose first child makes a call of two minutes, so that the second does not fit the budget.
async fn crowded(journal: &Journal) -> Runtime {
    let one = one_call("first").await;
    let answer = move |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(costing(calls([task("first", true), task("second", true)]), 1)),
            ("first", _) => {
                seconds(120).await;
                Ok(costing(text("first done"), 1))
            }
            (_, _) => Ok(costing(text("done"), 1)),
        }
    };
    // The parent's own next call may be large, because it ends before the first child's call begins.
    let limits = tokens(one + 60);
    builder(journal).model(provider(answer)).limits(limits).start().await.expect("a runtime")
}

async fn child_named(runtime: &Runtime, root: SessionId, agent: &str) -> SessionId {
    for child in runtime.journal().children(root).expect("children") {
        let all = records(runtime.journal(), child).await;
        if all.iter().any(|record| matches!(record, Record::InputAccepted(input) if &*input.text == agent)) {
            return child;
        }
    }
    panic!("no child has the title {agent}");
}

#[tokio::test(start_paused = true)]
async fn wait_for_the_budget_ends_after_a_minute() {
    let journal = journal();
    let runtime = crowded(&journal).await;
    let session = open(&runtime);
    let begun = Instant::now();
    let receipt = session.send("parent").await.expect("accepted");
    tokio::time::sleep(Duration::from_millis(59_900)).await;
    let second = child_named(&runtime, session.id(), "second").await;
    assert!(!crate::support::kinds(&journal, second).await.contains(&"run_ended"), "it did not wait");
    tokio::time::sleep(Duration::from_millis(200)).await;
    let ended = records(&journal, second).await.into_iter().find_map(|record| match record {
        Record::RunEnded(ended) => Some(ended.outcome),
        _ => None,
    });
    assert_eq!(ended, Some(SPENT));
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert!(begun.elapsed() <= Duration::from_secs(250), "{:?}: {ended:?}", begun.elapsed());
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_the_wait_for_the_budget() {
    let journal = journal();
    let runtime = crowded(&journal).await;
    let (session, receipt) = sent(&runtime, "parent").await;
    seconds(10).await;
    assert_eq!(runtime.stats().accounts, 2, "expected one account of spawns and one of tokens");
    let begun = Instant::now();
    assert_eq!(session.cancel().await, Ok(Control::Done(receipt.run)));
    let ended = session.run_ended(receipt.run).await.expect("ended");
    assert_eq!((ended.outcome, begun.elapsed()), (Outcome::Cancelled { by: Initiator::Person }, Duration::ZERO));
    let second = child_named(&runtime, session.id(), "second").await;
    let discarded = records(&journal, second).await.into_iter().find_map(|record| match record {
        Record::AttemptDiscarded(discarded) => Some((discarded.error, discarded.usage)),
        _ => None,
    });
    assert_eq!(discarded, Some((ModelFail::Dropped, None)), "a call that never started was charged");
    assert_eq!(runtime.stats().accounts, 0);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_the_budget_holds_no_permit() {
    let one = one_call("first").await;
    let journal = journal();
    let answer = |request: Request| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => Ok(costing(calls([task("first", true), task("second", true)]), 1)),
            ("first", _) => {
                seconds(30).await;
                Ok(costing(text("done"), 1))
            }
            (_, _) => Ok(costing(text("done"), 1)),
        }
    };
    let model = fn_model("lab/model", move |request, _| answer(request)).with_leaves_process(true);
    let rates = Rates { concurrent: Some(2), ..Rates::default() };
    let model = Arc::new(model.with_quotas(["lab/model", "lab"]));
    let runtime = builder(&journal).model(model).rates(rates).start().await.expect("a runtime");
    let options = OpenOptions { limits: Some(tokens(one + 60)), ..OpenOptions::agent("worker") };
    let crowded = runtime.open(options).expect("a session");
    let receipt = crowded.send("parent").await.expect("accepted");
    seconds(1).await;
    let begun = Instant::now();
    let (_, ended) = ask(&runtime, "another").await;
    assert_eq!((ended.outcome, begun.elapsed()), (Outcome::Completed, Duration::ZERO));
    crowded.run_ended(receipt.run).await.expect("ended");
    shut(runtime).await;
}

/// Returns the number of calls that a run makes before its budget of `n` and a half calls is used up.
async fn calls_within(n: u64, cost: impl Fn(u64) -> Result<Answer, ModelError> + Send + Sync + 'static) -> usize {
    let one = one_call("go").await;
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let answer = move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let answer = cost(one);
        async move { answer }
    };
    // Results enlarge each request by less than a quarter of a call.
    let limits = Limits { attempts: 50, ..tokens(n * one + one / 2) };
    let runtime = builder(&journal()).model(provider(answer)).limits(limits).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, SPENT);
    assert_eq!(runtime.stats().accounts, 0);
    shut(runtime).await;
    made.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn failed_attempt_without_usage_counts_in_full() {
    let failed = |usage| move |_| Err(ModelError { usage, ..ModelError::new(ModelFail::Unavailable, "503") });
    assert_eq!(calls_within(3, failed(None)).await, 3);
    assert_eq!(calls_within(3, failed(Some(Usage::UNKNOWN))).await, 3);
    let half = |one: u64| {
        let usage = Usage { input: one / 2, ..Usage::default() };
        Err(ModelError { usage: Some(usage), ..ModelError::new(ModelFail::Unavailable, "503") })
    };
    let made = calls_within(3, half).await;
    assert!((5..=6).contains(&made), "{made}");
}

#[tokio::test(start_paused = true)]
async fn rejected_attempt_does_not_count() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let answer = move |_| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        async move { if n < 20 { Err(ModelError::new(ModelFail::Rate, "slow down")) } else { Ok(costing(text("done"), 5)) } }
    };
    let one = one_call("go").await;
    let limits = Limits { attempts: 50, ..tokens(one) };
    let runtime = builder(&journal()).model(provider(answer)).limits(limits).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, made.load(Ordering::Relaxed)), (Outcome::Completed, 21));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn answer_without_usage_counts_in_full_and_is_marked() {
    for usage in [Usage::UNKNOWN, Usage::default()] {
        let one = one_call("go").await;
        let no_such_call = calls([("nothing", json!({}))]);
        let answer = move |_| {
            let answer = Answer { usage, ..no_such_call.clone() };
            async move { Ok(answer) }
        };
        let limits = tokens(2 * one + one / 2);
        let runtime = builder(&journal()).model(provider(answer)).limits(limits).start().await.expect("a runtime");
        let (_, ended) = ask(&runtime, "go").await;
        assert_eq!((ended.outcome, ended.turns, ended.usage.unreliable), (SPENT, 2, true));
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn budget_smaller_than_one_call_allows_none() {
    let called = Arc::new(Mutex::new(false));
    let seen = Arc::clone(&called);
    let answer = move |_| {
        *seen.lock().unwrap() = true;
        async { Ok(text("never")) }
    };
    let runtime = builder(&journal()).model(provider(answer)).limits(tokens(1)).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, ended.usage), (SPENT, Usage::default()));
    assert!(!*called.lock().unwrap());
    shut(runtime).await;
}
