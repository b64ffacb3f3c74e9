use serde_json::{Value, json};

use super::call::{RunningCommand, User};
use super::mock::{Mock, script};
use super::protocol::clear_environment;
use super::provider_run::{KEY, RunOutput};
use super::stored_session::{StoredSession, only};
use super::text::agent;

const BRIEF: &str = "You are brief.";

fn error_response(status: u16) -> Value {
    json!({ "error": { "message": "not now", "type": "server_error" }, "status": status })
}

fn run(first: &Mock, second: &Mock) -> (RunOutput, StoredSession) {
    run_with(first, second, &[])
}

fn run_with(first: &Mock, second: &Mock, more: &[&str]) -> (RunOutput, StoredSession) {
    let user = User::new();
    agent(&user, "brief", "");
    let (first, second) = (format!("openai={}", first.origin()), format!("anthropic={}", second.origin()));
    let models = ["--model", "openai/first,anthropic/second", "--base-url", &first, "--base-url", &second];
    let mut command = user.command(&[&["run", "--json", "--agent", "brief"], &models[..], more, &["Speak."]].concat());
    clear_environment(&mut command);
    command.env("OPENAI_API_KEY", KEY).env("ANTHROPIC_API_KEY", KEY);
    let output = RunOutput::of(RunningCommand::start(command, "").done());
    (output, only(&user))
}

fn models(stored: &StoredSession, kind: &str) -> Vec<Value> {
    stored.of(kind).iter().map(|record| record["model"].clone()).collect()
}

#[test]
fn pool_falls_back_and_the_journal_names_both_models() {
    let cut =
        json!({ "response": { "content": "A long answer that is cut." }, "chunkSize": 4, "truncateAfterChunks": 5 });
    let cases = [
        (error_response(500), "unavailable"),
        (error_response(429), "rate"),
        (error_response(401), "auth"),
        (cut, "unavailable"),
        (json!({ "response": { "content": "x" }, "chaos": { "malformedRate": 1 } }), "bad_answer"),
    ];
    for (failure, kind) in cases {
        let first = Mock::new(&script(BRIEF, std::slice::from_ref(&failure)));
        let second = Mock::new(&script(BRIEF, &[json!({ "content": "The second speaks." })]));
        let (output, stored) = run(&first, &second);
        assert_eq!(output.answer(), "The second speaks.", "{failure}");
        assert_eq!(stored.of("attempt_discarded")[0]["error"], json!(kind), "{failure}");
        assert_eq!(models(&stored, "attempt_discarded"), [json!("openai/first")], "{failure}: {stored:#?}");
        let started = models(&stored, "turn_started");
        assert_eq!(started.last(), Some(&json!("anthropic/second")), "{failure}: {stored:#?}");
        assert_eq!((first.journal().len(), second.statuses()), (1, vec![200]), "{failure}");
    }
}

#[test]
fn second_model_is_not_called_when_the_first_answers() {
    let first = Mock::new(&script(BRIEF, &[json!({ "content": "The first speaks." })]));
    let second = Mock::new(&script(BRIEF, &[json!({ "content": "The second speaks." })]));
    let (output, stored) = run(&first, &second);
    assert_eq!(output.answer(), "The first speaks.");
    assert_eq!((stored.of("attempt_discarded").len(), second.statuses().len()), (0, 0), "{stored:#?}");
}

#[test]
fn run_fails_after_every_model_of_the_pool_failed() {
    let first = Mock::new(&[json!({ "match": {}, "response": error_response(500) })]);
    let second = Mock::new(&[json!({ "match": {}, "response": error_response(503) })]);
    let (output, stored) = run(&first, &second);
    assert_eq!(output.code, Some(1), "{output:#?}");
    assert_eq!(output.end["outcome"]["failed"]["kind"]["model"]["error"], json!("unavailable"), "{output:#?}");
    let discarded = models(&stored, "attempt_discarded");
    assert!(
        discarded.contains(&json!("openai/first")) && discarded.contains(&json!("anthropic/second")),
        "{discarded:?}"
    );
    assert_eq!(first.statuses().len() + second.statuses().len(), discarded.len(), "{stored:#?}");
}

/// Both models are at their limit. The run parks until the second model resets, although the first is tried first.
#[test]
fn x13_pool_parks_until_the_earliest_retry_after() {
    let limited = |seconds: u64| {
        let mut limited = error_response(429);
        limited["retryAfter"] = json!(seconds);
        limited
    };
    let first = Mock::new(&script(BRIEF, &[limited(600)]));
    let second = Mock::new(&script(BRIEF, &[limited(6), json!({ "content": "The second speaks." })]));
    let (output, stored) = run_with(&first, &second, &["--limit", "turn_ms=5000"]);
    assert_eq!(output.answer(), "The second speaks.");
    assert_eq!((first.statuses(), second.statuses()), (vec![429], vec![429, 200]), "{stored:#?}");
    let waits = |kind: &str| stored.of(kind).iter().filter(|record| !record["why"]["limit"].is_null()).count();
    assert_eq!((waits("run_parked"), waits("run_resumed")), (1, 1), "{stored:#?}");
    let waited = stored.times("run_resumed")[0] - stored.times("run_parked")[0];
    assert!((5_000..60_000).contains(&waited), "{waited} ms");
}
