//! How ids, hashes, commands and usage are written.

use std::sync::Arc;

use serde_json::json;
use subtend_session::ids::{CallId, Hash, Interned, TurnNo};
use subtend_session::usage::Usage;

use crate::given::*;

#[test]
fn command_name_is_recorded_when_it_crashes_the_run() {
    assert_eq!([cancel().name(), send(1, "hi").name(), admitted().name()], ["cancel", "submit", "admitted"]);
}

#[test]
fn ids_are_told_as_they_are_written() {
    let (call, hash) = (CallId { turn: TurnNo(1), ix: 2 }, Hash::of(b"a"));
    assert_eq!((format!("{call:?}"), format!("{hash:?}")), ("1.2".to_owned(), hash.to_string()));
}

#[test]
fn a_hash_is_thirty_two_digits_and_nothing_else() {
    let hash = Hash::of(b"a");
    assert_eq!(hash.to_string().parse(), Ok(hash));
    for wrong in ["", "abc", &"0".repeat(31), &"0".repeat(33), &"g".repeat(32), &"ä".repeat(16)] {
        assert!(wrong.parse::<Hash>().is_err(), "{wrong:?}");
    }
}

#[test]
fn what_is_named_by_its_hash_is_the_same_where_the_hash_is() {
    let named = |text: &str| Interned::<str>::new(Arc::from(text)).expect("it has a JSON form");
    assert_eq!(named("a"), named("a"));
    assert_ne!(named("a"), named("b"));
}

#[test]
fn usage_names_what_there_is() {
    let usage = Usage { input: 3, cache_read: 2, ..Usage::default() };
    let written = serde_json::to_value(usage).expect("it has a JSON form");
    assert_eq!(written, json!({"in": 3, "out": 0, "cache_read": 2}));
}
