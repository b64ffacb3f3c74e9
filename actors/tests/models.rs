//! The choice of the model, its time limits, and provider errors that affect all sessions.

use std::num::NonZeroU64;

use crate::support::*;
use subtend_models::windows::ByModel;
use subtend_session::settings::Settings;

fn failing(name: &str, error: ModelError) -> (Arc<dyn Model>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&count);
    let model = fn_model(name, move |_, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        let error = error.clone();
        async move { Err(error) }
    });
    (Arc::new(model), count)
}

fn answering(name: &'static str) -> Arc<dyn Model> {
    Arc::new(fn_model(name, move |_, _| async move { Ok(text(name)) }))
}

fn attempts_of(records: &[Record]) -> Vec<String> {
    let received = records.iter().filter_map(|record| match record {
        Record::TurnStarted { model, .. } => Some(format!("ask {model}")),
        Record::AttemptDiscarded(discarded) => {
            Some(format!("{} failed: {:?}", discarded.model.as_deref().unwrap_or("it"), discarded.error))
        }
        Record::TurnAnswered(answered) => Some(format!("{} answered", answered.model.as_deref().unwrap_or("it"))),
        _ => None,
    });
    received.collect()
}

fn pooled(builder: Builder, first: Arc<dyn Model>) -> Builder {
    let builder = builder.named_model("a", first).named_model("b", answering("b"));
    builder.pool("smart", ["a", "b"]).default_model("pool:smart")
}

#[tokio::test(start_paused = true)]
async fn pool_falls_back_at_once_and_skips_failed_models() {
    let journal = journal();
    let (a, calls) = failing("a", ModelError::new(ModelFail::Auth, "no key"));
    let runtime = pooled(builder(&journal), a).start().await.expect("a runtime");
    let begun = Instant::now();
    let (first, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("b")));
    assert_eq!(begun.elapsed(), Duration::ZERO, "there was a backoff between models");
    assert_eq!(
        attempts_of(&records(&journal, first.id()).await),
        ["ask pool:smart", "a failed: Auth", "ask b", "b answered"]
    );
    let (second, _) = ask(&runtime, "go").await;
    assert_eq!(attempts_of(&records(&journal, second.id()).await), ["ask pool:smart", "b answered"]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn agent_may_set_its_own_pool_and_settings() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let b = fn_model("b", move |request, _| {
        sink.lock().unwrap().push((request.model.to_string(), request.settings));
        async { Ok(text("b")) }
    });
    let mut catalog = Catalog::builtin();
    let settings = Settings { temperature: Some(0.0), output_tokens: Some(500), ..Settings::default() };
    let manifest = Manifest::new("worker", AgentMode::All, "You are a worker.");
    catalog.insert(Manifest { pool: Some("smart".into()), settings, ..manifest });
    let limits = Limits { output_tokens: Some(100), ..Limits::default() };
    let builder = builder(&journal()).catalog(catalog).limits(limits);
    let builder = builder.model(answering("all")).named_model("b", Arc::new(b)).pool("smart", ["b"]);
    let runtime = builder.start().await.expect("a runtime");
    ask(&runtime, "go").await;
    let capped = Settings { temperature: Some(0.0), output_tokens: Some(100), ..Settings::default() };
    assert_eq!(*seen.lock().unwrap(), [("b".to_owned(), capped)]);
    shut(runtime).await;
}

fn caps(named: &[(&str, u64)]) -> ByModel {
    let cap = |(name, tokens): &(&str, u64)| ((*name).into(), NonZeroU64::new(*tokens).unwrap());
    ByModel::new(named.iter().map(cap).collect())
}

type Caps = Arc<Mutex<Vec<(String, String, Option<u64>)>>>;

fn capped(seen: &Caps, answer: fn(&str, usize) -> Answer) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    Arc::new(fn_model("all", move |request, _| {
        let requested = prompt(&request);
        seen.lock().unwrap().push((requested.clone(), request.model.to_string(), request.settings.output_tokens));
        let answer = answer(&requested, answers(&request));
        async move { Ok(answer) }
    }))
}

#[tokio::test(start_paused = true)]
async fn b18_caps_of_model_agent_and_call_only_fall() {
    let (journal, seen) = (journal(), Caps::default());
    let play = |requested: &str, at: usize| {
        let subagent = |tokens: u64| ("subagent", json!({"task": format!("cap {tokens}"), "maxTokens": tokens}));
        if requested == "go" && at == 0 { calls([subagent(40), subagent(9_000)]) } else { text("done") }
    };
    let mut catalog = Catalog::builtin();
    let settings = Settings { output_tokens: Some(500), ..Settings::default() };
    catalog.insert(Manifest { settings, ..Manifest::new("worker", AgentMode::All, "You are a worker.") });
    let builder = builder(&journal).catalog(catalog).limits(Limits { output_tokens: Some(300), ..Limits::default() });
    let dialects = Dialects { offered: vec![Dialect::Subagent], ..Dialects::default() };
    let builder = builder.dialects(dialects).output_tokens(caps(&[("a*", 150), ("all", 200)]));
    let runtime = builder.model(capped(&seen, play)).start().await.expect("a runtime");
    let (session, _) = ask(&runtime, "go").await;
    // The model's cap binds the session; the call's cap, if lower, binds its child.
    let mut received: Vec<_> = seen.lock().unwrap().clone();
    received.sort();
    received.dedup();
    let of = |requested: &str, cap| (requested.to_owned(), "all".to_owned(), Some(cap));
    assert_eq!(received, [of("cap 40", 40), of("cap 9000", 200), of("go", 200)]);
    // The child's first record has its cap, so that a later host applies it too.
    let created: Vec<_> = records(&journal, session.id()).await;
    let children = created.iter().filter_map(|record| match record {
        Record::ChildSpawned(spawned) => Some(spawned.child),
        _ => None,
    });
    let mut limits = Vec::new();
    for child in children {
        let state = State::fold(child, &records(&journal, child).await).expect("the records fold");
        limits.push(state.limits.output_tokens);
    }
    assert_eq!(limits, [Some(40), Some(300)]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b18_cap_is_that_of_the_pool_member_that_answers() {
    let (journal, seen) = (journal(), Caps::default());
    let (a, _) = failing("a", ModelError::new(ModelFail::Auth, "no key"));
    let b = capped(&seen, |_, _| text("done"));
    let builder = builder(&journal).named_model("a", a).named_model("b", b).pool("smart", ["a", "b"]);
    let builder = builder.default_model("pool:smart").output_tokens(caps(&[("a", 10), ("b", 70), ("pool:smart", 5)]));
    let runtime = builder.start().await.expect("a runtime");
    ask(&runtime, "go").await;
    assert_eq!(*seen.lock().unwrap(), [("go".to_owned(), "b".to_owned(), Some(70))]);
    shut(runtime).await;
}

#[tokio::test]
async fn unusable_pool_is_refused_at_the_start() {
    let says = |builder: Builder| async {
        let error = builder.start().await.map(drop).expect_err("refused");
        error.to_string()
    };
    let all = || Runtime::builder().model(answering("all"));
    assert_eq!(says(all().pool("smart", [""; 0])).await, "the pool \"pool:smart\" has no models: name at least one");
    assert_eq!(says(all().default_model("pool:smart")).await, "unknown default model or pool \"pool:smart\"");
    let none = Rates { concurrent: Some(0), ..Rates::default() };
    let refused = all().rates_of("openai", none).start().await.map(drop);
    assert!(matches!(refused, Err(StartError::Rates(name, _)) if &*name == "openai"));
}

/// Returns a model that is silent for `first`, sends one word, and then hangs.
fn stalling(first: Duration) -> Arc<dyn Model> {
    Arc::new(fn_model("slow", move |_, deltas| async move {
        tokio::time::sleep(first).await;
        deltas.send(Delta::Text("well".into()));
        std::future::pending::<Result<Answer, ModelError>>().await
    }))
}

async fn silence(model: Arc<dyn Model>) -> (Duration, String) {
    let limits = Limits { attempts: 1, first_byte_ms: 120_000, stall_ms: 60_000, ..Limits::default() };
    let runtime = builder(&journal()).model(model).limits(limits).start().await.expect("a runtime");
    let begun = Instant::now();
    let (_, ended) = ask(&runtime, "go").await;
    let Outcome::Failed { kind: FailKind::Model { error: ModelFail::Unavailable, message } } = ended.outcome else {
        panic!("{ended:?}")
    };
    shut(runtime).await;
    (begun.elapsed(), message.to_string())
}

#[tokio::test(start_paused = true)]
async fn silence_has_separate_limits_before_and_after_first_byte() {
    let (after, why) = silence(stalling(Duration::from_secs(500))).await;
    assert_eq!((after.as_secs(), &*why), (120, "the model did not begin to answer within 120000 ms"));
    let (after, why) = silence(stalling(Duration::from_secs(1))).await;
    assert_eq!((after.as_secs(), &*why), (61, "the model was silent in the middle of its answer for 60000 ms"));
    let (after, _) = silence(stalling(Duration::from_secs(100))).await;
    assert_eq!(after.as_secs(), 160);
}

/// Returns a model of the provider `p` that takes `ms`, and the start time of each call.
fn provider(
    ms: u64,
    answer: impl Fn(usize) -> Result<Answer, ModelError> + Send + Sync + 'static,
) -> (Arc<dyn Model>, Begun) {
    let begun: Begun = Arc::default();
    let (notes, start) = (Arc::clone(&begun), Instant::now());
    let answer = Arc::new(answer);
    let model = fn_model("p/m", move |_, _| {
        let nth = {
            let mut notes = notes.lock().unwrap();
            notes.push(start.elapsed().as_secs());
            notes.len()
        };
        let answer = Arc::clone(&answer);
        async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            answer(nth)
        }
    });
    (Arc::new(model.with_quotas(["p/m", "p"])), begun)
}

type Begun = Arc<Mutex<Vec<u64>>>;

fn queued_ms(record: &Record) -> Option<u64> {
    match record {
        Record::AttemptDiscarded(discarded) => Some(discarded.queued_ms),
        Record::TurnAnswered(answered) => Some(answered.queued_ms),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_permit_is_not_silence_and_frees_the_permit() {
    let journal = journal();
    let (model, begun) = provider(50_000, |_| Ok(text("done")));
    let rates = Rates { concurrent: Some(1), ..Rates::default() };
    let limits = Limits { attempts: 1, first_byte_ms: 60_000, stall_ms: 60_000, ..Limits::default() };
    let runtime = builder(&journal).model(model).rates(rates).limits(limits).start().await.expect("a runtime");
    let (first, second, third, fourth) = (open(&runtime), open(&runtime), open(&runtime), open(&runtime));
    let mut runs = Vec::new();
    for session in [&first, &second, &third, &fourth] {
        runs.push(session.send("go").await.expect("accepted").run);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A cancelled run releases its position in the queue of the provider.
    tokio::time::sleep(Duration::from_millis(16)).await;
    third.cancel().await.expect("cancelled");
    for (session, run) in [(&first, runs[0]), (&second, runs[1]), (&fourth, runs[3])] {
        let ended = session.run_ended(run).await.expect("ended");
        assert_eq!(ended.outcome, Outcome::Completed);
    }
    assert_eq!(*begun.lock().unwrap(), [0, 50, 100]);
    let mut waits = Vec::new();
    for session in [&first, &second, &third, &fourth] {
        waits.extend(records(&journal, session.id()).await.iter().filter_map(queued_ms));
    }
    assert_eq!(waits, [0, 49_999, 18, 99_997], "the records do not say how long each call waited");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_one_session_binds_all() {
    let limited = ModelError { retry_after_ms: Some(30_000), ..ModelError::new(ModelFail::Rate, "slow down") };
    let (model, begun) = provider(0, move |nth| if nth == 1 { Err(limited.clone()) } else { Ok(text("done")) });
    let runtime = builder(&journal()).model(model).start().await.expect("a runtime");
    let first = open(&runtime);
    let run = first.send("go").await.expect("accepted").run;
    seconds(5).await;
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::Completed);
    assert_eq!(first.run_ended(run).await.expect("ended").outcome, Outcome::Completed);
    let begun = begun.lock().unwrap().clone();
    assert_eq!((begun[0], begun.len()), (0, 3));
    assert!(begun[1..].iter().all(|at| (30..=33).contains(at)), "{begun:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn model_of_an_unknown_name_is_created_on_demand() {
    let journal = journal();
    let source = |name: &str| name.starts_with("p/").then(|| answering("made"));
    let runtime = builder(&journal).model(answering("all")).model_source(source).start().await.expect("a runtime");
    for (model, answer) in [("p/x", "made"), ("else", "all")] {
        let options = OpenOptions { agent: "worker".into(), model: Some(model.into()), ..OpenOptions::default() };
        let session = runtime.open(options).expect("a session");
        let run = session.send("go").await.expect("accepted").run;
        assert_eq!(session.run_ended(run).await.expect("ended").text.as_deref(), Some(answer));
    }
    shut(runtime).await;
}
