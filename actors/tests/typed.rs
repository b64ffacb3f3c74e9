//! Typed answers: the request carries the schema, a valid answer becomes a value, an invalid one is returned to the model.

use crate::support::*;
use schemars::JsonSchema;
use serde::Deserialize;
use subtend_actors::{AskError, AskOptions};

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Capital {
    city: String,
    inhabitants: u64,
}

const PARIS: &str = r#"{"city": "Paris", "inhabitants": 2100000}"#;

/// A session whose model gives the scripted answers in turn, and the formats that the model was sent.
struct TypedScene {
    runtime: subtend_actors::Runtime,
    journal: Journal,
    session: SessionHandle,
    formats: Arc<Mutex<Vec<Option<Text>>>>,
}

async fn scene(script: &'static [&'static str]) -> TypedScene {
    let journal = journal();
    let formats: Arc<Mutex<Vec<Option<Text>>>> = Arc::default();
    let formats_seen = Arc::clone(&formats);
    let answer = move |request: Request| {
        formats_seen.lock().unwrap().push(request.format.clone());
        let reply: Result<Answer, ModelError> = match script.get(answers(&request)) {
            Some(&"!") => Err(ModelError::new(ModelFail::Auth, "no key")),
            Some(script_text) => Ok(text(script_text)),
            None => Ok(text("I have nothing more to say.")),
        };
        async move { reply }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    TypedScene { runtime, journal, session, formats }
}

async fn inputs(journal: &Journal, session: &SessionHandle) -> Vec<String> {
    let texts = records(journal, session.id()).await.into_iter().filter_map(|record| match record {
        Record::InputAccepted(input) => Some(input.text.to_string()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(start_paused = true)]
async fn typed_answer_sends_the_schema_as_text_and_as_a_format() {
    let scene = scene(&[PARIS]).await;
    let capital: Capital = scene.session.ask("The capital of France?").await.expect("a valid answer");
    assert_eq!(capital, Capital { city: "Paris".to_owned(), inhabitants: 2_100_000 });
    let formats = scene.formats.lock().unwrap().clone();
    let schema: Value = serde_json::from_str(formats[0].as_deref().expect("a format")).expect("JSON");
    assert_eq!((&schema["type"], &schema["required"]), (&"object".into(), &json!(["city", "inhabitants"])));
    let sent = inputs(&scene.journal, &scene.session).await;
    assert_eq!(sent.len(), 1);
    assert!(sent[0].starts_with("The capital of France?\n\n") && sent[0].ends_with(&schema.to_string()), "{sent:?}");
    shut(scene.runtime).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_answer_is_returned_with_its_error() {
    const WRONG: &str = r#"{"city": "Paris", "inhabitants": "many"}"#;
    let scene =
        scene(&["Paris, I think.", WRONG, "Sorry:\n```json\n{\"city\": \"Paris\", \"inhabitants\": 1}\n```"]).await;
    let capital: Capital = scene.session.ask("The capital of France?").await.expect("a valid answer");
    assert_eq!(capital.inhabitants, 1);
    let sent = inputs(&scene.journal, &scene.session).await;
    let first_lines: Vec<_> = sent.iter().skip(1).map(|text| text.lines().next().unwrap_or_default()).collect();
    assert_eq!(
        first_lines,
        [
            "Your answer does not fit: it is not JSON: expected value at line 1 column 1",
            "Your answer does not fit: at `inhabitants`: invalid type: string \"many\", expected u64 at line 1 column 39",
        ]
    );
    assert!(scene.formats.lock().unwrap().iter().all(Option::is_some), "a correction lost the format");
    shut(scene.runtime).await;
}

#[tokio::test(start_paused = true)]
async fn corrections_are_bounded() {
    let scene = scene(&["no", "no!", "no!!", PARIS]).await;
    let error = scene.session.ask::<Capital>("The capital of France?").await.expect_err("no answer fits");
    let AskError::Mismatch { corrections, text, .. } = &error else { panic!("{error}") };
    assert_eq!((*corrections, &**text), (2, "no!!"));
    assert_eq!(
        error.to_string(),
        "the answer does not fit after 2 corrections: it is not JSON: expected ident at line 1 column 2"
    );
    // The session continues with all of it in its context.
    let none = AskOptions { corrections: 0 };
    let capital: Capital = scene.session.ask_with("Once more?", none).await.expect("a valid answer");
    assert_eq!(capital.city, "Paris");
    shut(scene.runtime).await;
}

#[tokio::test(start_paused = true)]
async fn value_that_is_not_an_object_is_wrapped() {
    let scene = scene(&[r#"{"value": ["Paris", "Lyon"]}"#, r#"{"value": 7}"#]).await;
    let cities: Vec<String> = scene.session.ask("Cities?").await.expect("a valid answer");
    assert_eq!(cities, ["Paris", "Lyon"]);
    assert_eq!(scene.session.ask::<u8>("A number?").await.expect("a valid answer"), 7);
    shut(scene.runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_run_is_returned_with_its_outcome() {
    let scene = scene(&["!"]).await;
    let error = scene.session.ask::<Capital>("The capital of France?").await.expect_err("no key");
    let AskError::Answer(AnswerError::Ended(ended)) = error else { panic!("{error}") };
    assert!(matches!(ended.outcome, Outcome::Failed { .. }));
    shut(scene.runtime).await;
}

/// The agent starts a child, answers that the child is still running, and gives the value when the child ends.
#[tokio::test(start_paused = true)]
async fn answer_before_children_end_is_not_the_last() {
    let journal = journal();
    let answer = |request: Request| {
        let reply = if &*prompt(&request) == "lookup" {
            text("found")
        } else {
            match answers(&request) {
                0 => calls([task("lookup", true)]),
                1 => text("One is not back yet."),
                _ => text(PARIS),
            }
        };
        async move {
            if reply.text.as_deref() == Some("found") {
                tokio::time::sleep(std::time::Duration::from_secs(30)).await;
            }
            Ok(reply)
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    let session = open(&runtime);
    let capital: Capital = session.ask("The capital of France?").await.expect("a valid answer");
    assert_eq!(capital.inhabitants, 2_100_000);
    assert_eq!(inputs(&journal, &session).await.len(), 1, "a correction was sent");
    shut(runtime).await;
}
