use crate::given::*;
use serde_json::json;

#[test]
fn commands_have_stable_names() {
    assert_eq!([cancel().name(), send(1, "hi").name(), admitted().name()], ["cancel", "submit", "admitted"]);
}

#[test]
fn ids_have_the_same_debug_and_display_form() {
    let (call, hash) = (CallId { turn: TurnNo(1), ix: 2 }, Hash::of(b"a"));
    assert_eq!((format!("{call:?}"), format!("{hash:?}")), ("1.2".to_owned(), hash.to_string()));
}

#[test]
fn hash_parses_only_thirty_two_digits() {
    let hash = Hash::of(b"a");
    assert_eq!(hash.to_string().parse(), Ok(hash));
    for wrong in ["", "abc", &"0".repeat(31), &"0".repeat(33), &"g".repeat(32), &"ä".repeat(16)] {
        assert!(wrong.parse::<Hash>().is_err(), "{wrong:?}");
    }
}

#[test]
fn interned_values_compare_by_hash() {
    let named = |text: &str| Interned::<str>::new(Arc::from(text)).expect("it serializes as JSON");
    assert_eq!(named("a"), named("a"));
    assert_ne!(named("a"), named("b"));
}

#[test]
fn usage_omits_zero_fields() {
    let usage = Usage { input: 3, cache_read: 2, ..Usage::default() };
    let written = serde_json::to_value(usage).expect("it serializes as JSON");
    assert_eq!(written, json!({"in": 3, "out": 0, "cache_read": 2}));
}
