//! Regular expressions in schemas: estimates of the cost to compile and to match them, made before they are compiled.

use std::collections::BTreeSet;

use serde_json::Value;

/// Maximum number of different patterns of one schema.
const PATTERNS: usize = 32;
/// Maximum bytes of one pattern.
const BYTES: usize = 1_024;
/// Maximum number of states of one pattern; repetitions multiply states.
const MAX_STATES: u64 = 1 << 13;
/// Maximum bytes of one compiled pattern, and of its match cache.
pub(super) const SIZE: usize = 128 << 10;
/// Fixed cost of one match, in addition to the cost of the text.
const MATCH: u64 = 100;

/// Returns why the patterns of a schema are too many or too large to compile.
pub(super) fn unsupported_reason(schema: &Value) -> Option<String> {
    let mut patterns = BTreeSet::new();
    collect_patterns(schema, &mut patterns);
    if patterns.len() > PATTERNS {
        return Some(format!("it has more than {PATTERNS} patterns"));
    }
    patterns.into_iter().find_map(|pattern| {
        if pattern.len() > BYTES {
            return Some(format!("a pattern in it has more than {BYTES} bytes"));
        }
        (count_states(pattern) > MAX_STATES).then(|| format!("the pattern `{pattern}` in it repeats too much"))
    })
}

/// Returns the number of different patterns of a schema.
#[cfg(feature = "mcp")]
pub(super) fn number_of(schema: &Value) -> usize {
    let mut patterns = BTreeSet::new();
    collect_patterns(schema, &mut patterns);
    patterns.len()
}

fn collect_patterns<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (&**key, value) {
                    ("pattern", Value::String(pattern)) => _ = found.insert(pattern),
                    ("patternProperties", Value::Object(parts)) => found.extend(parts.keys().map(String::as_str)),
                    _ => {}
                }
                collect_patterns(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Removes the patterns that need backtracking: their time cannot be bounded in advance. The server checks them.
#[cfg(feature = "mcp")]
pub(super) fn remove_backtracking(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("pattern").and_then(Value::as_str).is_some_and(needs_backtracking) {
                fields.shift_remove("pattern");
            }
            // These keywords hold plain values, which may look like patterns.
            let is_value = |key: &str| matches!(key, "const" | "default" | "enum" | "example" | "examples");
            fields.iter_mut().filter(|(key, _)| !is_value(key)).for_each(|(_, value)| remove_backtracking(value));
        }
        Value::Array(items) => items.iter_mut().for_each(remove_backtracking),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns whether a pattern has lookaround or a backreference, or the same characters in a character class.
#[cfg(feature = "mcp")]
fn needs_backtracking(pattern: &str) -> bool {
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        let rest = signs.as_str();
        match sign {
            '(' if ["?=", "?!", "?<=", "?<!"].iter().any(|start| rest.starts_with(start)) => return true,
            '\\' if signs.next().is_some_and(|sign| sign == 'k' || ('1'..='9').contains(&sign)) => return true,
            _ => {}
        }
    }
    false
}

/// Returns the cost of matching a pattern in a text of `bytes` bytes. The engine may be in all states at once.
pub(super) fn matching_cost(pattern: &str, bytes: usize) -> u64 {
    let each = (count_states(pattern) / 8).saturating_add(1);
    MATCH.saturating_add(number(bytes).saturating_mul(each) / 8)
}

/// Returns the number of states of a pattern: it may be too high, but not too low.
fn count_states(pattern: &str) -> u64 {
    // With the flag `x`, parts of the pattern are comments, so the count below would be wrong.
    let flags = |rest: &str| rest.split([')', ':']).next().is_some_and(|flags| flags.contains('x'));
    let is_extended =
        |rest: &str| rest.starts_with(|sign: char| sign.is_ascii_lowercase() || sign == '-') && flags(rest);
    if pattern.split("(?").skip(1).any(is_extended) {
        return u64::MAX;
    }
    let (mut groups, mut sum, mut last) = (Vec::new(), 0_u64, 0_u64);
    let mut signs = pattern.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '(' => {
                groups.push(sum.saturating_add(last));
                (sum, last) = (0, 0);
            }
            ')' => (sum, last) = (groups.pop().unwrap_or(0), sum.saturating_add(last).max(1)),
            '{' => {
                if let Some((times, rest)) = parse_repetitions(signs.as_str()) {
                    (last, signs) = (last.saturating_mul(times), rest.chars());
                }
            }
            '*' | '+' | '?' | '|' => {}
            _ => {
                (sum, last) = (sum.saturating_add(last), 1);
                match sign {
                    '\\' => _ = signs.next(),
                    '[' => class(&mut signs),
                    _ => {}
                }
            }
        }
    }
    groups.into_iter().fold(sum.saturating_add(last), u64::saturating_add)
}

/// Skips a character class. Skips nothing if the class has no end.
fn class(signs: &mut std::str::Chars<'_>) {
    let mut inside = signs.clone();
    while let Some(sign) = inside.next() {
        match sign {
            '\\' => _ = inside.next(),
            ']' => {
                *signs = inside;
                return;
            }
            _ => {}
        }
    }
}

pub(super) fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Returns the maximum number of repetitions that `{…}` gives, and the text after it; `None` for other text.
fn parse_repetitions(rest: &str) -> Option<(u64, &str)> {
    let (counts, rest) = rest.split_once('}')?;
    let parsed = counts.split(',').map(str::trim).filter(|count| !count.is_empty()).map(str::parse::<u64>);
    let counts = parsed.collect::<Result<Vec<_>, _>>().ok()?;
    Some((counts.into_iter().max()?.max(1), rest))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn states_of_a_pattern_are_not_undercounted() {
        for (pattern, expected) in [
            ("^a[bc]*\\d$", 5),
            ("(.{90}){9}", 810),
            ("((ab){3}c{2,5}){10}", 110),
            ("^[0-9a-f]{8}-[{9}]{2}$", 13),
            ("\\{3\\}", 3),
            ("\\p{L}{3}a{2,}", 3 + 2),
            ("a{5", 2),
            ("(", 0),
        ] {
            assert!((expected..expected + 4).contains(&count_states(pattern)), "{pattern}: {}", count_states(pattern));
        }
        assert_eq!(count_states("(?x)#[\n(.{90}){9}#]"), u64::MAX);
        assert_eq!(count_states("(?sx:a)"), u64::MAX);
        assert!(count_states("(?:x)(?<x>a)(?P<x>a)") < 20);
    }

    /// The control: the same patterns, within the bounds.
    #[test]
    fn patterns_that_take_long_to_compile_are_refused() {
        let says = |schema: Value| unsupported_reason(&schema).unwrap_or_default();
        let many = |count: usize| {
            let fields = (0..count).map(|n| (format!("p{n}"), json!({"pattern": format!("a{n}")})));
            json!({"properties": fields.collect::<serde_json::Map<_, _>>()})
        };
        assert_eq!([says(many(33)), says(many(32))], ["it has more than 32 patterns", ""]);
        let one = |pattern: &str| json!({"patternProperties": {pattern: {}}});
        assert_eq!(says(one(&"a".repeat(1_025))), "a pattern in it has more than 1024 bytes");
        assert_eq!(says(one(&"a".repeat(1_024))), "");
        assert_eq!(says(one("((.{90}){9}){20}")), "the pattern `((.{90}){9}){20}` in it repeats too much");
        assert_eq!(says(one("^[a-z]{1,4000}$")), "");
    }

    #[cfg(feature = "mcp")]
    #[test]
    fn patterns_with_lookaround_are_left_to_the_server() {
        let mut schema = json!({"properties": {
            "ahead": {"type": "string", "pattern": "^(?!\\.)[a-z]+$"}, "back": {"pattern": "(a)\\1"},
            "plain": {"pattern": "^(?:\\(\\?=|[a-z])+$"}, "pattern": {"pattern": "(?<name>a)"}
        }});
        remove_backtracking(&mut schema);
        let left = json!({"properties": {
            "ahead": {"type": "string"}, "back": {},
            "plain": {"pattern": "^(?:\\(\\?=|[a-z])+$"}, "pattern": {"pattern": "(?<name>a)"}
        }});
        assert_eq!(schema, left);
    }
}
