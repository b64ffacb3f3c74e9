use serde_json::json;

use super::super::faults::unsupported_reason;
use super::*;

/// Returns a schema with `length` definitions, each of which refers to the next one `times` times.
fn chain(length: usize, times: usize) -> Value {
    let next = |n: usize| vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); times];
    let mut defs: serde_json::Map<String, Value> =
        (0..length).map(|n| (format!("d{n}"), json!({"allOf": next(n)}))).collect();
    defs.insert(format!("d{length}"), json!({"type": "string"}));
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// The control: with one reference each, the count is linear.
#[test]
fn doubling_references_exceed_the_limit() {
    let doubling = chain(25, 2);
    assert!(unsupported_reason(&doubling).unwrap().contains("its combined parts are more than 262144"));
    assert_eq!([count(&doubling, &json!({})), count(&doubling, &json!({"a": "x"}))], [1, u64::MAX]);
    assert_eq!(count(&chain(25, 1), &json!({"a": "x"})), 54);
    let mut at_once = chain(25, 2);
    at_once["allOf"] = json!([{"$ref": "#/$defs/d0"}]);
    assert_eq!(count(&at_once, &json!({})), u64::MAX);
}

#[test]
fn long_chain_or_loop_is_refused() {
    assert_eq!(unsupported_reason(&chain(3_000, 1)).unwrap(), "with its references it has more than 128 levels");
    let endless = json!({"type": "object", "$ref": "#"});
    assert!(unsupported_reason(&endless).unwrap().starts_with("a reference leads back to itself"));
    // The control: the schema of a tree refers to itself one level deeper.
    let tree = json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}});
    assert_eq!(unsupported_reason(&tree), None);
    assert_eq!(count(&tree, &json!({"children": [{}, {"children": [{}]}]})), 11);
}

/// Each level of these arguments doubles the checks. An attacker could lead a model to write such arguments.
#[test]
fn nested_arguments_that_double_checks_are_counted() {
    let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
    let schema = json!({"type": "object", "properties": {"a": {"allOf": twice}}});
    assert_eq!(unsupported_reason(&schema), None);
    let nested = |depth| (0..depth).fold(json!({}), |args, _| json!({"a": args}));
    assert!(count(&schema, &nested(4)) < 200);
    assert_eq!(count(&schema, &nested(40)), u64::MAX);
}

#[test]
fn reference_must_stay_within_the_schema() {
    let reason = |schema: Value| unsupported_reason(&schema).unwrap_or_default();
    assert!(reason(json!({"properties": {"a": {"$ref": "#name"}}})).starts_with("`$ref` leads to `#name`, which is"));
    assert!(reason(json!({"properties": {"a": {"$dynamicRef": "#a"}}})).contains("`$dynamicRef` is not supported"));
    assert!(reason(json!({"default": {"$id": "x:y"}, "$ref": "#/default"})).contains("`$id` within it"));
    assert_eq!(reason(json!({"$id": "x:y", "default": {"$ref": "any", "id": "a"}})), "");
    assert_eq!(
        reason(json!({"properties": {"id": {"type": "string"}, "$ref": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"enum": [1]}}})),
        ""
    );
    let unevaluated = (0..20).fold(json!({}), |inner, _| json!({"unevaluatedItems": false, "anyOf": [inner]}));
    assert!(reason(unevaluated).starts_with("it has more than 8 of"));
}

#[test]
fn pattern_counts_as_many_checks() {
    let schema = json!({"patternProperties": {"a": {}, "b": {}}, "properties": {"c": {"pattern": "d"}}});
    assert_eq!(count(&schema, &json!({"a": 1, "c": "x".repeat(800)})), 1 + 800 + 4 + 1 + 1 + 200);
}

/// Returns a schema whose property `a` leads to `part` through `levels` definitions, each referring twice to the next.
fn fan(levels: usize, part: &Value) -> Value {
    let next = |n: usize| json!([{"$ref": format!("#/$defs/d{}", n + 1)}, {"$ref": format!("#/$defs/d{}", n + 1)}]);
    let mut defs: Map<String, Value> = (0..levels).map(|n| (format!("d{n}"), json!({"anyOf": next(n)}))).collect();
    defs.insert(format!("d{levels}"), part.clone());
    json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// The validator decodes these names. The control: names that both decode in the same way.
#[test]
fn references_are_read_as_the_validator_reads_them() {
    for (harmless, place, meant) in [
        ("%780", "#/$defs/%780", "x0"),
        ("a%2Fb", "#/$defs/a%2Fb", "a"),
        ("~/", "#/$defs/~~1", "~~1"),
        ("%7e1", "#/$defs/%7e01", "/"),
    ] {
        let mut schema = fan(40, &json!({"type": "object"}));
        let bomb = schema["$defs"]["d0"].clone();
        schema["$defs"][meant] = bomb;
        schema["$defs"][harmless] = json!({"type": "object"});
        schema["allOf"] = json!([{"$ref": place}]);
        let says = unsupported_reason(&schema).unwrap_or_default();
        assert!(says.starts_with(&format!("`$ref` leads to `{place}`")), "{place}: {says}");
    }
    let draft = json!({"$defs": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "id": "x:y"}}});
    assert_eq!(unsupported_reason(&draft).unwrap_or_default(), "`$schema` within it is not supported");
    let long = json!({"$defs": {"n".repeat(600): {}}, "$ref": format!("#/$defs/{}", "n".repeat(600))});
    assert!(unsupported_reason(&long).unwrap_or_default().starts_with("`$ref` leads to"));
    let plain = json!({"$defs": {"a/b": {}, "c~1": {}}, "allOf": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c~01"}]});
    assert_eq!(unsupported_reason(&plain), None);
}

/// Keywords whose check takes more than one step, each used 256 times. The control: used once, they are within the bound.
#[test]
fn checks_of_keywords_without_schemas_are_counted() {
    let names: Vec<String> = (0..5_000).map(|n| format!("n{n}")).collect();
    let fields: Map<String, Value> = names.iter().map(|name| (name.clone(), json!(1))).collect();
    let long: Map<String, Value> = (0..100).map(|n| (format!("{n:0100}"), json!(1))).collect();
    let objects: Vec<Value> = (0..5_000).map(|n| json!({"k": n})).collect();
    let numbers: Vec<Value> = (0..5_000).map(|n| json!(n)).collect();
    for (part, value) in [
        (json!({"enum": objects}), json!({"k": 1})),
        (json!({"const": objects}), json!(objects)),
        (json!({"properties": fields}), json!(fields)),
        (json!({"required": names}), json!(fields)),
        (json!({"dependentRequired": {"k": names}}), json!({"k": 1})),
        (json!({"dependencies": {"k": names}}), json!({"k": 1})),
        (json!({"uniqueItems": true}), json!(numbers)),
        (json!({"pattern": "^(a|b){40}$"}), json!("a".repeat(4_000))),
        (json!({"patternProperties": {"^[0-9]{60}": {}}}), json!(long)),
        (json!({"propertyNames": {"pattern": "^[0-9]{60}"}}), json!(long)),
        (json!({"maxLength": 10}), json!("x".repeat(1 << 20))),
        (json!({"contentMediaType": "application/json"}), json!("0,".repeat(4_000))),
    ] {
        let args = json!({"a": value});
        let counts = [fan(8, &part), fan(0, &part)].map(|schema| count(&schema, &args));
        let key = part.as_object().and_then(|part| part.keys().next());
        assert!(counts[0] > MAX_CHECKS && counts[1] <= MAX_CHECKS, "{key:?}: {counts:?}");
    }
}

/// Counting takes no more work than the checks themselves.
#[test]
fn items_are_counted_by_the_properties_they_have() {
    let fields: Map<String, Value> = (0..5_500).map(|n| (format!("{n:x}"), json!(true))).collect();
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"properties": fields}}}});
    let args = json!({"l": vec![json!({}); 49_000]});
    assert_eq!(count(&schema, &args), 49_000 + 3);
    assert_eq!(count(&schema, &json!({"l": [{"0": 1, "1": 1, "z": 1}]})), 3 + 1 + 3 + 2);
}

/// A later version of the validator may have a keyword whose check takes long.
#[test]
fn keywords_that_only_the_validator_knows_are_refused() {
    let odd = json!({"type": "object", "x-order": 1, "deprecated": true, "nullable": true, "$comment": "c"});
    assert_eq!(count(&odd, &json!({})), 1);
    assert!(KNOWN_KEYWORDS.is_sorted());
    assert!(
        KNOWN_KEYWORDS
            .iter()
            .all(|key| Draft::Draft4.is_known_keyword(key) || Draft::Draft202012.is_known_keyword(key))
    );
    assert_eq!(count(&json!({"$dynamicRef": "#a"}), &json!({})), u64::MAX);
}
