//! The bytes that a record counts in memory.

use crate::given::*;
use serde_json::{Value, json};
use subtend_session::dialect::Dialect;
use subtend_session::record::*;

use crate::arbitrary::record_of;

/// Returns the records with a value in each optional field that has texts or a list.
fn full_records() -> Vec<Value> {
    let id = session(ME).to_string();
    let (call, hash, usage) = (json!({"turn": 1, "ix": 0}), Hash::of(b"x").to_string(), json!({"in": 1, "out": 1}));
    let other = json!({"agent": "a", "agent_hash": hash, "model": "m", "system": "s"});
    let crashed = json!({"restarts_exhausted": {"command": "c"}});
    let failed = |kind: &str| json!({"failed": {"kind": {kind: {"error": "auth", "part": "model", "message": "m"}}}});
    let ended = |outcome: &Value| {
        json!({"run_ended": {"run": 1, "outcome": outcome, "text": "t", "len": 1, "hash": hash, "turns": 1,
            "usage_self": usage, "usage_owned": usage, "worked_ms": 1, "gave_up": "g"}})
    };
    let tool_call = json!({"provider_id": "p", "tool": "t", "args": "a"});
    let mut created = serde_json::to_value(created(Place::Root, Limits::default())).expect("JSON");
    let more = json!({
        "dialects": ["d"], "tools": ["t"], "in_full": ["t"], "title": "t", "metadata": "{}", "servers": ["s"],
        "imported": [{"default": "ask", "rules": [{"action": "a", "resource": "r", "verdict": "deny"}]}],
        "inherited": [{"user": {"seq": 1, "text": "t"}}, {"notice": {"seq": 1, "text": "t"}}, {"prompt": {"text": "t"}},
            {"result": {"call": call, "error": false, "content": "c"}},
            {"assistant": {"seq": 1, "text": "t", "reasoning": "r", "calls": [{"provider_id": "", "tool": "t", "args": "a"}]}}],
    });
    for (name, value) in more.as_object().expect("fields") {
        created[name] = value.clone();
    }
    let mut records = vec![
        json!({"session_created": created}),
        json!({"run_opened": {"run": 1, "owner": {"host": {"custom": "c"}}, "inputs": [id], "mode": "blocking",
            "max_turns": 1, "slot": false}}),
        json!({"input_accepted": {"id": id, "key": "k", "from": "person", "lane": "send", "text": "t",
            "agent_override": other, "metadata": "{}", "format": "{}", "tools": ["t"],
            "as_owner": {"host": {"custom": "c"}}}}),
        json!({"attempt_discarded": {"turn": 1, "attempt": 1, "error": "auth", "message": "m", "model": "m", "awaits": "a"}}),
        json!({"turn_answered": {"run": 1, "turn": 1, "attempt": 1, "text": "t", "reasoning": "r", "calls": [tool_call],
            "stop": "end", "model": "m", "usage": usage, "answers": [id], "worked_ms": 1}}),
        json!({"call_started": {"call": call, "kind": {"propose": other}, "access": {"action": "a", "resource": "r"}}}),
        json!({"call_started": {"call": call, "kind": {"await": {"all": false, "runs": [{"session": id, "run": 1}]}}}}),
        json!({"child_spawned": {"call": call, "child": id, "short": "s", "agent": "a", "mode": "blocking", "label": "l",
            "skipped": ["s"], "warnings": ["w"], "depth": 1, "grant": {"spawns_left": 1}}}),
        json!({"continue_asked": {"call": call, "child": id, "input": "i", "mode": "blocking", "tools": ["t"]}}),
        json!({"run_held": {"run": 1, "why": {"closing": {"outcome": crashed}}}}),
        json!({"notice_taken": {"items": [{"child": id, "outcome": crashed, "len": 1, "hash": hash, "prefix": "p",
            "usage": usage, "waking": true}], "carrier": "message"}}),
        json!({"title_set": {"title": "t", "by": "person"}}),
        json!({"summary_set": {"text": "t", "upto": 1, "of": id}}),
        json!({"metadata_set": {"metadata": "{}", "by": "person"}}),
        json!({"branch_created": {"child": id, "short": "s", "agent": "a", "kind": "human", "at": 1, "by": "person"}}),
        json!({"rolled_back": {"run": 1, "by": "person"}}),
        json!({"compaction_undone": {"by": "person"}}),
        json!({"alternative_switched": {"of": 1, "to": 1, "by": "person"}}),
        json!({"session_deleted": {"by": "person"}}),
        json!({"session_closed": {"by": "person"}}),
        json!({"session_reopened": {"by": "person"}}),
        json!({"queue_changed": {"change": {"removed": [id]}, "by": "person"}}),
        json!({"compacted": {"cause": "asked", "by": "person", "upto": 1, "verbatim": [0], "text": "t", "of": id,
            "before": 1, "after": 1}}),
        json!({"compaction_failed": {"turn": 1, "attempt": 1, "cause": "asked", "why": "empty", "message": "m"}}),
        ended(&crashed),
    ];
    records.extend(["model", "panic", "unreadable", "workspace", "internal"].map(|kind| ended(&failed(kind))));
    records
}

/// Calls `visit` with each variant of `value` in which one text or one list has `BIG` more bytes or items.
fn enlarged(value: &Value, path: &str, rebuilt: &dyn Fn(Value) -> Value, visit: &mut dyn FnMut(&str, Value)) {
    match value {
        Value::String(text) => visit(path, rebuilt(format!("{text}{}", "x".repeat(BIG)).into())),
        Value::Array(items) => {
            if let Some(last) = items.last() {
                let repeated = std::iter::repeat_n(last, BIG);
                visit(path, rebuilt(items.iter().chain(repeated).cloned().collect()));
            }
            for (ix, item) in items.iter().enumerate() {
                let rebuilt = |item: Value| {
                    let mut items = items.clone();
                    items[ix] = item;
                    rebuilt(items.into())
                };
                enlarged(item, &format!("{path}/{ix}"), &rebuilt, visit);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                let rebuilt = |field: Value| {
                    let mut fields = fields.clone();
                    fields[name] = field;
                    rebuilt(fields.into())
                };
                enlarged(field, &format!("{path}/{name}"), &rebuilt, visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

const BIG: usize = 1_000;

/// An import refuses sessions by this number, so a field that it omits lets an export take any amount of memory. Shared
/// bodies and equal rules are left out: they have limits of their own.
#[test]
fn every_text_and_list_of_a_record_counts() {
    let seeds = (0..=255).flat_map(|kind| (0..=255).map(move |n| [kind, n, n, n, n, n, n, n, n, n, n, n]));
    let arbitrary = seeds.map(|seed| serde_json::to_value(record_of(seed)).expect("JSON"));
    let mut kinds = std::collections::BTreeSet::new();
    for value in arbitrary.step_by(97).chain(full_records()) {
        let record: Record = serde_json::from_value(value).expect("a record");
        // Without fields that the record does not have.
        let value = serde_json::to_value(&record).expect("JSON");
        kinds.insert(record.kind());
        enlarged(&value, "", &|value| value, &mut |path, larger| {
            let is_shared = path.contains("/body") || path.ends_with("/rules") || path.ends_with("/imported");
            let Ok(larger) = serde_json::from_value::<Record>(larger) else { return };
            let added = larger.heap_bytes().saturating_sub(record.heap_bytes());
            assert!(is_shared || added >= BIG as u64, "{path} of {value} adds {added} bytes");
        });
    }
    let missing: Vec<_> = Record::KINDS.iter().filter(|kind| !kinds.contains(**kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A list of empty texts takes memory, although it has no bytes of text. The control: one of them.
#[test]
fn empty_texts_in_lists_count() {
    let of = |tools: usize| {
        let tools = Some(vec!["".into(); tools]);
        Record::InputAccepted(Box::new(InputAccepted { tools, ..input(1, "hi", Lane::Send) })).heap_bytes()
    };
    assert_eq!((of(1) - of(0), of(1_000) - of(0)), (48, 48_000));
}

/// The message with the end of a child repeats the child's label, which an export may make kilobytes long. The control: a
/// child without a label.
#[test]
fn labels_in_messages_count_for_the_state() {
    let counted = |label: Option<&str>| {
        let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![background()]));
        let heart = heart.then(spawn(1, Mode::Background, &[(0, 0xB1)])).then(answers(2, "later"));
        let mut log = heart.log;
        for record in &mut log {
            if let Record::ChildSpawned(spawned) = record {
                (spawned.label, spawned.dialect) = (label.map(Into::into), Dialect::Subagent);
            }
        }
        let items = vec![notice(0xB1, call(1, 0), Outcome::Completed, "done")];
        let taken = Record::NoticeTaken(Box::new(NoticeTaken { items, carrier: Carrier::Message }));
        let before = State::fold(session(ME), &log).expect("it folds").text_bytes;
        let after = State::fold(session(ME), log.iter().chain([&taken])).expect("it folds").text_bytes;
        after - before - taken.heap_bytes()
    };
    let label = "x".repeat(4_096);
    let of_label = counted(Some(&label)) - counted(None);
    assert!((4_096..5_000).contains(&of_label), "{of_label}");
}
