use serde_json::{Value, json};

use super::call::{Under, User};
use super::mock::{Mock, script};
use super::protocol::bare;
use super::provider_run::{KEY, RunOutput};
use super::stored_session::{StoredSession, only};
use super::text::agent;

const BRIEF: &str = "You are brief.";

fn fails(status: u16) -> Value {
    json!({ "error": { "message": "not now", "type": "server_error" }, "status": status })
}

fn run(first: &Mock, second: &Mock) -> (RunOutput, StoredSession) {
    let user = User::new();
    agent(&user, "brief", "");
    let (first, second) = (format!("openai={}", first.origin()), format!("anthropic={}", second.origin()));
    let models = ["--model", "openai/first,anthropic/second", "--base-url", &first, "--base-url", &second];
    let mut command = user.command(&[&["run", "--json", "--agent", "brief"], &models[..], &["Speak."]].concat());
    bare(&mut command);
    command.env("OPENAI_API_KEY", KEY).env("ANTHROPIC_API_KEY", KEY);
    let output = RunOutput::of(Under::start(command, "").done());
    (output, only(&user))
}

fn models(kept: &StoredSession, kind: &str) -> Vec<Value> {
    kept.of(kind).iter().map(|record| record["model"].clone()).collect()
}

#[test]
fn pool_falls_back_and_the_journal_names_both_models() {
    let cut =
        json!({ "response": { "content": "A long answer that is cut." }, "chunkSize": 4, "truncateAfterChunks": 5 });
    let cases = [
        (fails(500), "unavailable"),
        (fails(429), "rate"),
        (fails(401), "auth"),
        (cut, "unavailable"),
        (json!({ "response": { "content": "x" }, "chaos": { "malformedRate": 1 } }), "bad_answer"),
    ];
    for (failure, kind) in cases {
        let first = Mock::new(&script(BRIEF, std::slice::from_ref(&failure)));
        let second = Mock::new(&script(BRIEF, &[json!({ "content": "The second speaks." })]));
        let (output, kept) = run(&first, &second);
        assert_eq!(output.answer(), "The second speaks.", "{failure}");
        assert_eq!(kept.of("attempt_discarded")[0]["error"], json!(kind), "{failure}");
        assert_eq!(models(&kept, "attempt_discarded"), [json!("openai/first")], "{failure}: {kept:#?}");
        let started = models(&kept, "turn_started");
        assert_eq!(started.last(), Some(&json!("anthropic/second")), "{failure}: {kept:#?}");
        assert_eq!((first.journal().len(), second.statuses()), (1, vec![200]), "{failure}");
    }
}

#[test]
fn a_first_model_that_answers_leaves_the_second_alone() {
    let first = Mock::new(&script(BRIEF, &[json!({ "content": "The first speaks." })]));
    let second = Mock::new(&script(BRIEF, &[json!({ "content": "The second speaks." })]));
    let (output, kept) = run(&first, &second);
    assert_eq!(output.answer(), "The first speaks.");
    assert_eq!((kept.of("attempt_discarded").len(), second.statuses().len()), (0, 0), "{kept:#?}");
}

#[test]
fn where_all_models_fail_the_run_fails_and_each_was_asked() {
    let first = Mock::new(&[json!({ "match": {}, "response": fails(500) })]);
    let second = Mock::new(&[json!({ "match": {}, "response": fails(503) })]);
    let (output, kept) = run(&first, &second);
    assert_eq!(output.code, Some(1), "{output:#?}");
    assert_eq!(output.end["outcome"]["failed"]["kind"]["model"]["error"], json!("unavailable"), "{output:#?}");
    let discarded = models(&kept, "attempt_discarded");
    assert!(
        discarded.contains(&json!("openai/first")) && discarded.contains(&json!("anthropic/second")),
        "{discarded:?}"
    );
    assert_eq!(first.statuses().len() + second.statuses().len(), discarded.len(), "{kept:#?}");
}
