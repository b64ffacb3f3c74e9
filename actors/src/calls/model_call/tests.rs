use subtend_session::record::{Stop, ToolCall};

use super::*;

fn answer(calls: usize, args: &str) -> Answer {
    let call = ToolCall { provider_id: "c".into(), tool: "task".into(), args: args.into() };
    Answer { calls: vec![call; calls], stop: Stop::Calls, ..Answer::of_text("") }
}

#[test]
fn wide_answer_has_room_for_the_arguments_of_each_call() {
    let args = r#"{"subagent_type":"worker","prompt":"one","background":true}"#;
    let accepted = bound_answer(answer(100_000, args), 100_000);
    assert!(matches!(accepted, ModelOutcome::Answer(answer) if answer.calls.len() == 100_000));
}

#[test]
fn values_of_few_calls_are_limited() {
    let args = format!("[{}0]", "0,".repeat(20_000));
    let ModelOutcome::Error(error) = bound_answer(answer(5, &args), 1_024) else { panic!("it was accepted") };
    assert_eq!(error.message, "the arguments of the answer have 100010 JSON values; the limit is 100000");
}

/// The control: a name of the largest size that an import takes.
#[test]
fn name_of_the_model_is_limited_as_in_imports() {
    let of = |bytes: usize| {
        let mut answer = answer(1, "{}");
        answer.model = Some("n".repeat(bytes).into());
        match bound_answer(answer, 1) {
            ModelOutcome::Error(error) => error.message,
            ModelOutcome::Answer(_) | ModelOutcome::Panic(_) => String::new(),
        }
    };
    assert_eq!(of(4_096), "");
    assert!(of(4_097).ends_with("has 4097 bytes, the limit is 4096"));
}
