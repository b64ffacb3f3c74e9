//! Tool options: declared, set, completed once, and passed to every call (features M3, M7).

use crate::support::*;
use serde_json::Map;
use subtend_agents::dialect::MinionOptions;
use subtend_tools::option::{ToolOption, ToolOptions};

fn digest() -> FnTool {
    tool("digest", ToolEffect::ReadOnly, |call| async move {
        Ok(ToolOutput::text(Value::Object(Map::clone(&call.options)).to_string()))
    })
    .option(ToolOption::boolean("images", "Images", true))
    .option(ToolOption::long_text("notes", "Notes", "What a reader should search for"))
    .option(ToolOption::model("model", "Model"))
}

fn given(values: Value) -> ToolOptions {
    [("digest".into(), values.as_object().cloned().expect("an object"))].into()
}

/// Returns a host whose worker calls `digest` once for each message.
fn host(journal: &Journal, answering: &Arc<dyn Model>, seed: u64) -> Builder {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    catalog
        .insert(Manifest { model: Some("other".into()), ..Manifest::new("other", AgentMode::All, "You are another.") });
    let options = Options { seed: Some(seed), ..Options::default() };
    let builder = builder(journal).catalog(catalog).tools(tools([digest()])).options(options);
    builder.model(Arc::clone(answering))
}

type OptionRequests = Arc<Mutex<Vec<Request>>>;

/// Returns a model that calls `digest` after each message, then ends; keeps the requests.
fn digesting(seen: &OptionRequests) -> Arc<dyn Model> {
    let seen = Arc::clone(seen);
    model(move |request| {
        let answer = if answers(&request).is_multiple_of(2) { calls([("digest", json!({}))]) } else { text("done") };
        seen.lock().unwrap().push(request);
        async move { Ok(answer) }
    })
}

fn last(seen: &OptionRequests) -> Value {
    let seen = seen.lock().unwrap();
    let received = results(seen.last().expect("a model call"));
    serde_json::from_str(received.last().expect("a result")).expect("an object")
}

#[tokio::test(start_paused = true)]
async fn m3_call_has_set_options_and_defaults() {
    for (set, expected) in [
        (json!({}), json!({"images": true, "notes": "", "model": "big"})),
        (
            json!({"images": false, "notes": "Look for dates.", "model": "small"}),
            json!({"images": false, "notes": "Look for dates.", "model": "small"}),
        ),
        (json!({"notes": "Look."}), json!({"images": true, "notes": "Look.", "model": "big"})),
    ] {
        let (journal, seen) = (journal(), OptionRequests::default());
        let runtime = started(host(&journal, &digesting(&seen), 7).tool_options(given(set))).await;
        let options = OpenOptions { model: Some("big".into()), ..OpenOptions::agent("worker") };
        let session = runtime.open(options).expect("a session");
        let receipt = session.send("go").await.expect("accepted");
        session.run_ended(receipt.run).await.expect("the run ends");
        assert_eq!(last(&seen), expected);
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn m3_model_option_is_completed_once_and_then_kept() {
    let (memory, seen) = (Memory::new(), OptionRequests::default());
    let store = reopen(&memory);
    let runtime = host(&store, &digesting(&seen), 7).start().await.expect("the runtime starts");
    let options = OpenOptions { model: Some("first".into()), ..OpenOptions::agent("worker") };
    let session = runtime.open(options).expect("a session");
    let receipt = session.send("go").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    let filled = json!({"images": true, "notes": "", "model": "first"});
    assert_eq!(last(&seen), filled);
    // Another agent answers, with its own model.
    let receipt = session.input("again").agent("other").send().await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    let answered = seen.lock().unwrap().last().expect("a model call").model.to_string();
    assert_eq!((answered.as_str(), last(&seen)), ("other", filled.clone()));
    let id = session.id();
    shut(runtime).await;

    let store = reopen(&memory);
    let builder = host(&store, &digesting(&seen), 8).default_model("third");
    let builder = builder.named_model("third", digesting(&seen));
    let runtime = builder.start().await.expect("the runtime starts");
    let session = runtime.session(id).expect("readable").expect("the session exists");
    let receipt = session.send("once more").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    assert_eq!(last(&seen), filled);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m3_undeclared_options_stop_the_start() {
    let seen = OptionRequests::default();
    let other: ToolOptions = [("lookup".into(), Map::new())].into();
    let minion = MinionOptions { model: Some(" ".into()), ..MinionOptions::default() };
    let cases = [
        (
            given(json!({"images": "yes"})),
            MinionOptions::default(),
            "the options of the tool `digest` cannot be used: the option `images` must be true or false, not \"yes\"",
        ),
        (
            given(json!({"model": ""})),
            MinionOptions::default(),
            "the options of the tool `digest` cannot be used: the option `model` must be the name of a model, not \"\"",
        ),
        (
            given(json!({"image": true})),
            MinionOptions::default(),
            "the options of the tool `digest` cannot be used: the option `image` is not an option of the tool; available: images, notes, model",
        ),
        (other, MinionOptions::default(), "the tool `lookup` has no options; tools with options: digest"),
        (
            ToolOptions::new(),
            minion,
            "the options of the tool `minion` cannot be used: the option `model` must be the name of a model, not \" \"",
        ),
    ];
    for (set, minion, expected) in cases {
        let dialects = Dialects { minion, ..Dialects::default() };
        let builder = host(&journal(), &digesting(&seen), 7).tool_options(set).dialects(dialects);
        let error = builder.start().await.expect_err("it does not start");
        assert!(matches!(error, StartError::ToolOptions(_)), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn m7_minions_have_their_prompt_and_model_or_the_sessions() {
    for (set, prompted, model_of) in [
        (MinionOptions::default(), "You are a worker.", "first"),
        (
            MinionOptions {
                system_prompt: "Be brief.".into(),
                model: Some("small".into()),
                ..MinionOptions::default()
            },
            "Be brief.",
            "small",
        ),
    ] {
        let (journal, seen) = (journal(), OptionRequests::default());
        let kept = Arc::clone(&seen);
        let answering = model(move |request| {
            let answer = match (&*prompt(&request), answers(&request)) {
                ("go", 0) => calls([("minion", json!({"message": "m", "enableWeb": false, "enabledTools": []}))]),
                _ => text("done"),
            };
            kept.lock().unwrap().push(request);
            async move { Ok(answer) }
        });
        let dialects = Dialects { offered: vec![Dialect::Minion], minion: set, ..Dialects::default() };
        let runtime = host(&journal, &answering, 7).dialects(dialects).start().await.expect("the runtime starts");
        let options = OpenOptions { model: Some("first".into()), ..OpenOptions::agent("worker") };
        let session = runtime.open(options).expect("a session");
        let receipt = session.send("go").await.expect("accepted");
        session.run_ended(receipt.run).await.expect("the run ends");
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        let minion = seen.iter().find(|request| prompt(request) == "m").expect("a minion");
        assert_eq!((&*minion.system, &*minion.model), (prompted, model_of));
        shut(runtime).await;
    }
}
