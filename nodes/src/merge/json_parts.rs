//! Splits JSON into the texts of its parts. As values, JSON of small items takes up to 16 times the memory of its text.

use serde::de::IgnoredAny;

/// Checks a JSON text, which the functions below expect.
pub(super) fn check(json: &[u8]) -> serde_json::Result<&str> {
    let _: IgnoredAny = serde_json::from_slice(json)?;
    std::str::from_utf8(json).map(str::trim).map_err(serde::de::Error::custom)
}

/// Returns the items of an array, or the names and values of an object in turn.
pub(super) fn parts(json: &str) -> Vec<&str> {
    let mut rest = json.get(1..json.len().saturating_sub(1)).unwrap_or_default();
    let mut parts = Vec::new();
    loop {
        rest = rest.trim_start_matches(|at: char| at.is_ascii_whitespace() || at == ',' || at == ':');
        let (part, left) = rest.split_at_checked(end(rest)).unwrap_or((rest, ""));
        if part.is_empty() {
            return parts;
        }
        parts.push(part);
        rest = left;
    }
}

/// Returns the fields of an object: their names, in quotes, and values.
pub(super) fn fields(json: &str) -> Vec<(&str, &str)> {
    let parts = parts(json);
    parts.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect()
}

/// Returns the length of the value at the start of a text.
fn end(json: &str) -> usize {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth = depth.saturating_add(1),
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if !in_string && depth == 0 => return at,
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<i64>().prop_map(Value::from), ".{0,9}".prop_map(Value::from), Just(Value::Null)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..4).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn parts_are_the_texts_of_the_values(items in proptest::collection::vec(any_json(), 0..4), pretty: bool) {
            let write = |value: &Value| if pretty { format!("{value:#}") } else { value.to_string() };
            let of = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let array = write(&Value::from(items.clone()));
            let read: Vec<Value> = parts(check(array.as_bytes()).unwrap()).into_iter().map(of).collect();
            prop_assert_eq!(&read, &items);
            let object = Value::from_iter(items.into_iter().enumerate().map(|(at, item)| (format!("\"{at}:,"), item)));
            let read = fields(&write(&object)).into_iter().map(|(name, value)| (of(name).as_str().unwrap().to_owned(), of(value))).collect::<Value>();
            prop_assert_eq!(read, object);
        }
    }

    #[test]
    fn texts_that_are_no_json_are_refused() {
        assert!(["[1", "[1] 2", "", "[\"\u{1}\"]"].iter().all(|text| check(text.as_bytes()).is_err()));
        assert_eq!(parts(check(b" [1, \"a\\\"]\", {\"b\": [2]}] ").unwrap()), ["1", "\"a\\\"]\"", "{\"b\": [2]}"]);
    }
}
