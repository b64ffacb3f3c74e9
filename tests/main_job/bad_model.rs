//! Misbehaving models: each run ends once, with its true cause.

use std::fmt::Write as _;

use serde_json::{Value, json};
use subtend::format::Record;
use subtend::session::{CallEnd, FailKind, ModelFail, Outcome, ToolErrorKind};

use super::record::{journals, sound_outcomes};
use crate::cli::call::{CommandOutput, User};

fn scripted_user(steps: &Value) -> (User, String) {
    let user = User::new();
    user.file("a.txt", "alpha\n");
    let model = user.script(&json!({ "rules": [ { "agent": "*", "steps": steps } ] }).to_string());
    (user, model)
}

/// Runs the steps once; the returned outcome is the only one in the journal.
fn run(steps: &Value) -> (User, CommandOutput, Outcome) {
    let (user, model) = scripted_user(steps);
    let done = user.call(&["run", "--model", &model, "go"]);
    let ends: Vec<_> = sound_outcomes(&user).into_values().collect();
    let [outcome] = ends.try_into().unwrap_or_else(|ends| panic!("one run, and not {ends:?}: {done:?}"));
    (user, done, outcome)
}

/// Returns how each call of the only session ended, with the result that the model received.
fn results(user: &User) -> Vec<(CallEnd, String)> {
    let journals = journals(user);
    let calls = journals.values().flatten().filter_map(|record| {
        let Record::CallFinished(call) = record else { return None };
        Some((call.end.clone(), call.content.to_string()))
    });
    calls.collect()
}

#[test]
fn model_can_correct_a_wrong_call() {
    let wrong = |kind| CallEnd::ToolError { kind, retryable: false };
    let cases = [
        (json!({ "tool": "teleport", "args": {} }), ToolErrorKind::UnknownTool, &["teleport", "list"][..]),
        (json!({ "tool": "raed", "args": { "path": "a.txt" } }), ToolErrorKind::UnknownTool, &["raed", "read"]),
        (json!({ "tool": "read", "args": { "path": 7 } }), ToolErrorKind::BadArgs, &["path", "string"]),
        (json!({ "tool": "read", "args": { "file": "a.txt" } }), ToolErrorKind::BadArgs, &["path", "file"]),
        (json!({ "tool": "read", "args": "{\"path\": \"a" }), ToolErrorKind::BadArgs, &["JSON"]),
        (json!({ "tool": "read", "args": "" }), ToolErrorKind::BadArgs, &["path", "required"]),
        (json!({ "tool": "read", "args": "[1]" }), ToolErrorKind::BadArgs, &["object"]),
        (json!({ "tool": "read", "args": { "path": "none.txt" } }), ToolErrorKind::NotFound, &["none.txt"]),
        (
            json!({ "tool": "task", "args": { "subagent_type": "x", "prompt": "y" } }),
            ToolErrorKind::BadArgs,
            &["x", "explore"],
        ),
        (json!({ "tool": "task", "args": { "subagent_type": "explore" } }), ToolErrorKind::BadArgs, &["prompt"]),
    ];
    // All calls are in one conversation: each error is reported, and the next turn follows.
    let steps = cases.iter().map(|(call, _, _)| json!({ "calls": [call] }));
    let right = json!({ "calls": [ { "tool": "read", "args": { "path": "a.txt" } } ] });
    let steps: Vec<_> = steps.chain([right, json!({ "text": "It says: {last}" })]).collect();
    let (user, done, outcome) = run(&json!(steps));
    assert_eq!((done.code, outcome), (Some(0), Outcome::Completed), "{}", done.err);
    assert!(done.out.starts_with("It says: ") && done.out.contains("alpha"), "{done:?}");
    let results = results(&user);
    assert_eq!(results.len(), cases.len() + 1, "{results:#?}");
    for ((call, kind, expected), (end, reported)) in cases.into_iter().zip(&results) {
        assert_eq!(*end, wrong(kind), "{call}: {reported}");
        for word in expected {
            assert!(reported.contains(word), "{call}: {word} is not in {reported}");
        }
    }
    assert_eq!(results.last().map(|(end, _)| end), Some(&CallEnd::Ok));
}

#[test]
fn fifty_calls_in_one_answer_all_end() {
    let call = json!({ "tool": "read", "args": { "path": "a.txt" } });
    let (user, done, outcome) = run(&json!([ { "calls": vec![call; 50] }, { "text": "done" } ]));
    assert_eq!((done.code, done.out.as_str(), outcome), (Some(0), "done\n", Outcome::Completed), "{done:?}");
    let results = results(&user);
    assert_eq!(results.iter().filter(|(end, reported)| *end == CallEnd::Ok && reported.contains("alpha")).count(), 50);
    assert_eq!(results.len(), 50);
}

#[test]
fn calls_beyond_the_limit_are_refused_and_others_end() {
    let call = json!({ "tool": "read", "args": { "path": "a.txt" } });
    let (user, done, outcome) = run(&json!([ { "calls": vec![call; 70] }, { "text": "done" } ]));
    assert_eq!((done.code, outcome), (Some(0), Outcome::Completed), "{done:?}");
    let results = results(&user);
    let ok = results.iter().filter(|(end, _)| *end == CallEnd::Ok).count();
    let over: Vec<_> = results.iter().filter(|(end, _)| *end != CallEnd::Ok).collect();
    assert_eq!((ok, over.len()), (64, 6), "{results:#?}");
    for (end, reported) in over {
        let limit = CallEnd::ToolError { kind: ToolErrorKind::Limit, retryable: false };
        assert!(*end == limit && reported.contains("64"), "{end:?}: {reported}");
    }
}

#[test]
fn fifty_children_in_one_answer_all_end() {
    let user = User::new();
    let script = json!({ "rules": [
        { "agent": "general", "steps": [
            { "fan_out": { "n": 50, "agent": "explore", "background": true, "prompt": "Part {n}." } },
            [ { "when": { "ended": 50 }, "text": "All are back.", "repeat": true },
              { "text": "Not yet.", "repeat": true } ] ] },
        { "agent": "explore", "steps": [ { "text": "Seen: {prompt}" } ] } ] });
    let model = user.script(&script.to_string());
    let done = user.call(&["run", "--quiet", "--model", &model, "go"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "All are back.\n"), "{done:?}");
    let ends = sound_outcomes(&user);
    assert!(ends.len() == 51 && ends.values().all(|end| *end == Outcome::Completed), "{ends:#?}");
}

#[test]
fn empty_answer_is_retried_once() {
    let (_, done, outcome) = run(&json!([ { "empty": true }, { "text": "after all" } ]));
    assert_eq!((done.code, done.out.as_str(), outcome), (Some(0), "after all\n", Outcome::Completed), "{done:?}");
    let (_, done, outcome) = run(&json!([ { "empty": true }, { "text": "  \n" } ]));
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert_eq!(outcome, Outcome::Failed { kind: FailKind::Empty });
    assert!(done.err.contains("run 1 failed: the model gave an empty answer, also when asked again"), "{done:?}");
}

#[test]
fn truncated_answer_is_continued_once() {
    let (_, done, outcome) = run(&json!([ { "text": "half", "truncated": true }, { "text": " an answer" } ]));
    assert_eq!((done.code, outcome), (Some(0), Outcome::Completed), "{done:?}");
    let (_, done, outcome) = run(&json!([ { "text": "half", "truncated": true, "repeat": true } ]));
    assert_eq!((done.code, outcome), (Some(1), Outcome::Failed { kind: FailKind::Truncated }), "{done:?}");
    assert!(done.out.starts_with("half") && done.err.contains("truncated at its length limit"), "{done:?}");
}

fn assert_fails(step: &Value, error: ModelFail, expected: &[&str]) {
    let (_, done, outcome) = run(&json!([step]));
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{step}: {done:?}");
    let Outcome::Failed { kind: FailKind::Model { error: reported, message } } = &outcome else {
        panic!("{step}: {outcome:?}")
    };
    assert_eq!(*reported, error, "{message}");
    for word in expected {
        assert!(done.err.contains(word), "{step}: {word} is not in {}", done.err);
    }
}

fn error(kind: &str) -> Value {
    json!({ "error": { "kind": kind, "message": format!("words about {kind}"), "retry_after_ms": 10 }, "repeat": true })
}

#[test]
fn permanent_errors_are_not_retried() {
    assert_fails(
        &error("auth"),
        ModelFail::Auth,
        &["run 1 failed: the model's key is missing or refused: words about auth"],
    );
    assert_fails(
        &error("context_overflow"),
        ModelFail::ContextOverflow,
        &["larger than the model's context: words about context_overflow"],
    );
    assert_fails(
        &error("invalid_request"),
        ModelFail::InvalidRequest,
        &["refused the request as invalid: words about invalid_request"],
    );
}

#[test]
fn persistent_rate_limit_is_the_cause() {
    assert_fails(&error("rate"), ModelFail::Rate, &["the model's rate limit was reached: words about rate"]);
}

#[test]
fn unreachable_model_is_the_cause() {
    assert_fails(
        &error("unavailable"),
        ModelFail::Unavailable,
        &["the model was not available: words about unavailable"],
    );
}

#[test]
fn bad_answer_is_the_cause() {
    assert_fails(
        &error("bad_answer"),
        ModelFail::BadAnswer,
        &["the model's answer could not be read: words about bad_answer"],
    );
}

#[test]
fn garbage_is_the_cause() {
    let garbage = json!({ "garbage": "<html>\u{1b}[2J502</html>", "repeat": true });
    assert_fails(&garbage, ModelFail::BadAnswer, &["the model's answer could not be read: <html>", "502</html>"]);
    let (_, done, _) = run(&json!([garbage]));
    assert!(!done.err.contains('\u{1b}'), "{:?}", done.err);
}

#[test]
fn temporary_error_is_retried() {
    let error = json!({ "kind": "rate", "message": "m", "retry_after_ms": 10 });
    let step = |attempt: u32| json!({ "when": { "attempt": attempt }, "error": error });
    let steps = json!([ [ step(1), step(2), { "text": "third time" } ] ]);
    let (user, done, outcome) = run(&steps);
    assert_eq!((done.code, done.out.as_str(), outcome), (Some(0), "third time\n", Outcome::Completed), "{done:?}");
    let journals = journals(&user);
    let discarded = journals.values().flatten().filter(|record| matches!(record, Record::AttemptDiscarded(_))).count();
    assert_eq!(discarded, 2);
}

#[test]
fn script_with_too_few_steps_is_an_error() {
    let (_, done, _) = run(&json!([ { "calls": [ { "tool": "list" } ] } ]));
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(done.err.contains("has 1 steps, and this is answer 2") && done.err.contains("repeat"), "{done:?}");
}

#[test]
fn panic_is_the_cause() {
    let (_, done, outcome) = run(&json!([ { "panic": "wires crossed" } ]));
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{done:?}");
    assert!(done.err.contains("run 1 failed: the model's code panicked: wires crossed"), "{done:?}");
    assert!(matches!(outcome, Outcome::Failed { kind: FailKind::Panic { .. } }), "{outcome:?}");
}

#[test]
fn partial_output_is_on_stdout_and_the_cause_on_stderr() {
    let steps = json!([ { "text": "so far", "calls": [ { "tool": "list" } ] }, { "panic": "wires crossed" } ]);
    let (_, done, _) = run(&steps);
    assert_eq!((done.code, done.out.as_str()), (Some(1), "so far\n"), "{done:?}");
    assert!(done.err.contains("panicked: wires crossed; the partial answer is on stdout"), "{done:?}");
}

#[test]
fn each_end_of_a_bad_child_reaches_its_owner_once() {
    let faults = [
        ("auth", json!({ "error": { "kind": "auth", "message": "no key" } })),
        ("panic", json!({ "panic": "wires crossed" })),
        ("refuse", json!({ "refuse": true })),
        ("empty", json!({ "empty": true })),
        ("cut", json!({ "text": "half", "truncated": true })),
        ("well", json!({ "text": "all is well" })),
    ];
    let step = |(name, fault): &(&str, Value)| {
        let mut step = fault.clone();
        step["when"] = json!({ "prompt_contains": name });
        step
    };
    let first: Vec<_> = faults.iter().map(step).collect();
    let call = |(name, _): &(&str, Value)| {
        let args = json!({ "subagent_type": "explore", "prompt": format!("Be {name}."), "background": true });
        json!({ "tool": "task", "args": args })
    };
    let calls: Vec<_> = faults.iter().map(call).collect();
    let all = json!({ "when": { "ended": 6 }, "text": "All six ended.", "repeat": true });
    let waits = json!([ all, { "text": "Waiting.", "repeat": true } ]);
    let script = json!({ "rules": [
        { "agent": "general", "steps": [ { "calls": calls }, waits ] },
        { "agent": "explore", "steps": [ first.clone(), first ] } ] });
    let user = User::new();
    let model = user.script(&script.to_string());
    let done = user.call(&["run", "--model", &model, "go"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "All six ended.\n"), "{done:?}");
    let ends = sound_outcomes(&user);
    assert_eq!(ends.len(), 7, "{ends:#?}");
    let journals = journals(&user);
    let items = journals.values().flatten().filter_map(|record| {
        let Record::NoticeTaken(taken) = record else { return None };
        Some(&taken.items)
    });
    let mut completions: Vec<_> = items.flatten().map(|item| (item.child, item.outcome.clone())).collect();
    completions.sort_by_key(|(child, _)| *child);
    let children = ends.into_iter().map(|((session, _), outcome)| (session, outcome));
    let root =
        journals.iter().find(|(_, records)| records.iter().any(|record| matches!(record, Record::ChildSpawned(_))));
    let root = *root.expect("a root").0;
    assert_eq!(completions, children.filter(|(session, _)| *session != root).collect::<Vec<_>>());
    let mut reported = String::new();
    for outcome in completions.iter().map(|(_, outcome)| outcome) {
        writeln!(reported, "{outcome:?}").expect("a text");
    }
    for word in ["Auth", "no key", "wires crossed", "Refused", "Empty", "Truncated", "Completed"] {
        assert!(reported.contains(word), "{word}: {reported}");
    }
}

#[test]
fn broken_script_is_refused_by_line_and_field() {
    let cases = [
        ("{\n  \"rules\": [\n", &["rules: EOF", "line 3"][..]),
        (
            "{ \"rules\": [\n  { \"agent\": \"*\", \"steps\": [\n    { \"txt\": \"oops\" } ] } ] }",
            &["rules[0].steps[0]", "`txt`", "line 3"],
        ),
        (
            "{ \"rules\": [\n  { \"agent\": \"*\", \"steps\": [ { \"latency_ms\": \"5\" } ] } ] }",
            &["rules[0].steps[0].latency_ms", "line 2"],
        ),
        ("{ \"rules\": [ { \"agent\": \"*\", \"steps\": [ {} ] } ] }", &["rules[0].steps[0]", "`text`", "line 1"]),
        ("{ \"speed\": 1 }", &["speed", "line 1"]),
        ("no json", &["line 1"]),
        ("", &["line 1"]),
    ];
    for (text, expected) in cases {
        let user = User::new();
        let model = user.script(text);
        let done = user.call(&["run", "--model", &model, "go"]);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{text}: {done:?}");
        for word in expected.iter().chain(&["script.json"]) {
            assert!(done.err.contains(word), "{text}: {word} is not in {}", done.err);
        }
        assert!(!user.data().exists(), "a refused command created a store");
    }
}
