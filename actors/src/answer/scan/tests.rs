use serde_json::{Value, json};
use subtend_session::ids::Epoch;
use subtend_session::outcome::{Initiator, Outcome};
use uuid::Uuid;

use super::*;

const INPUT: InputId = InputId(Uuid::from_u128(1));
const OTHER: InputId = InputId(Uuid::from_u128(2));

fn accepted(input: InputId) -> Value {
    json!({"input_accepted": {"id": input, "from": "person", "lane": "steer", "text": "x", "as_owner": "person"}})
}

fn opened(run: u32, input: InputId) -> Value {
    let opened = json!({
        "run": run, "owner": "person", "inputs": [input], "mode": "background", "max_turns": 5, "slot": false
    });
    json!({"run_opened": opened})
}

fn taken(run: u32, input: InputId) -> Value {
    json!({"inputs_taken": {"ids": [input], "run": run, "turn": 1}})
}

fn started(prompt: &str) -> Value {
    json!({"turn_started": {"run": 1, "turn": 1, "attempt": 1, "prompt": prompt, "model": "m"}})
}

fn answered(text: &str, stop: &str, answers: &[InputId], calls: &Value) -> Value {
    json!({"turn_answered": {
        "run": 1, "turn": 1, "attempt": 1, "text": text, "calls": calls, "stop": stop, "usage": {}, "answers": answers,
        "worked_ms": 0
    }})
}

fn ended(run: u32, outcome: &str, more: &Value) -> Value {
    let mut ended = json!({
        "run": run, "outcome": outcome, "len": 0, "hash": "0".repeat(32), "turns": 1, "usage_self": {},
        "usage_owned": {}, "worked_ms": 0
    });
    ended.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"run_ended": ended})
}

fn scan(records: &[Value]) -> Option<Result<Answered, AnswerError>> {
    // A search without texts ends at the same record.
    let (mut scan, mut bare) = (Scan::new(INPUT), Scan::new(INPUT).without_texts());
    let read = |(record, seq): (&Value, u64)| {
        let record = serde_json::from_value(record.clone()).expect("a record");
        let stored = Stored { seq: Seq(seq), at_ms: 0, epoch: Epoch(1), record };
        let (found, ends) = (scan.read(&stored), bare.read(&stored).is_some());
        assert_eq!((found.is_some(), bare.last()), (ends, None), "record {seq}");
        found
    };
    records.iter().zip(1..).find_map(read)
}

fn text(records: &[Value]) -> String {
    scan(records).expect("known").expect("answered").text.to_string()
}

#[test]
fn answer_includes_the_truncated_part_before_the_input() {
    let none = json!([]);
    let records = [
        accepted(OTHER),
        opened(1, OTHER),
        taken(1, OTHER),
        started("plain"),
        answered("The first half", "length", &[], &none),
        accepted(INPUT),
        taken(1, INPUT),
        started("continuation"),
        answered(" and the second.", "end", &[OTHER, INPUT], &none),
    ];
    assert_eq!(text(&records), "The first half and the second.");
}

#[test]
fn text_next_to_calls_is_not_part_of_the_answer() {
    let calls = json!([{"provider_id": "c", "tool": "read", "args": "{}"}]);
    let records = [
        accepted(INPUT),
        opened(1, INPUT),
        answered("I read it.", "calls", &[], &calls),
        answered("Found.", "end", &[INPUT], &json!([])),
    ];
    assert_eq!(text(&records), "Found.");
}

#[test]
fn answer_by_return_applies_when_the_run_ends_with_it() {
    let calls = json!([{"provider_id": "c", "tool": "return", "args": "{\"result\": \"42\"}"}]);
    let mut records = vec![accepted(INPUT), opened(1, INPUT), answered("So:", "calls", &[INPUT], &calls)];
    assert!(scan(&records).is_none());
    records.push(ended(1, "completed", &json!({"returned": {"turn": 1, "ix": 0}})));
    assert_eq!(text(&records), "42");
}

#[test]
fn wait_ignores_the_end_of_another_run() {
    let mut records = vec![opened(1, OTHER), accepted(INPUT), ended(1, "lost", &json!({}))];
    assert!(scan(&records).is_none());
    records.extend([opened(2, INPUT), answered("Half", "length", &[], &json!([])), ended(2, "lost", &json!({}))]);
    let Some(Err(AnswerError::Ended(ended))) = scan(&records) else { panic!("the run ended") };
    assert_eq!((ended.run, ended.outcome, ended.text.as_deref()), (RunNo(2), Outcome::Lost, Some("Half")));
}

/// The control: two answers are separated.
#[test]
fn partial_answer_has_no_break_where_it_was_truncated() {
    let partial = |prompt: &str| {
        let records = [
            accepted(INPUT),
            opened(1, INPUT),
            answered("The first half", "length", &[], &json!([])),
            started(prompt),
            answered(" and the second.", "length", &[], &json!([])),
            ended(1, "lost", &json!({})),
        ];
        let Some(Err(AnswerError::Ended(ended))) = scan(&records) else { panic!("the run ended") };
        ended.text.expect("a text").to_string()
    };
    assert_eq!(partial("continuation"), "The first half and the second.");
    assert_eq!(partial("plain"), "The first half\n\n and the second.");
}

#[test]
fn only_untaken_input_can_be_removed() {
    let cleared = json!({"queue_changed": {"change": "cleared", "by": "person"}});
    let removed = json!({"queue_changed": {"change": {"removed": [INPUT]}, "by": "host"}});
    let other = json!({"queue_changed": {"change": {"removed": [OTHER]}, "by": "host"}});
    let by = |records: &[Value]| match scan(records) {
        Some(Err(AnswerError::Removed { by })) => Some(by),
        Some(other) => panic!("{other:?}"),
        None => None,
    };
    assert_eq!(by(&[cleared.clone(), accepted(INPUT), other]), None);
    assert_eq!(by(&[accepted(INPUT), removed]), Some(Initiator::Host));
    assert_eq!(by(&[accepted(INPUT), cleared.clone()]), Some(Initiator::Person));
    assert_eq!(by(&[accepted(INPUT), opened(1, INPUT), cleared]), None);
}
