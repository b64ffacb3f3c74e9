//! Deserializes the arguments of calls that open runs.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use subtend_session::values::parse_recorded;

use crate::result::ToolError;
use crate::{arguments, bounded};

/// Reads the arguments of `tool`. Errors list the parameter names in `takes`.
///
/// `T` must deny unknown fields. Otherwise, [`directly`] would accept any value in an unknown field.
pub(crate) fn arguments<T: DeserializeOwned>(tool: &str, args: &str, takes: &str) -> Result<T, ToolError> {
    match directly(args) {
        Some(arguments) => Ok(arguments),
        // `by_value` accepts more and has better errors.
        None => by_value(tool, args, takes),
    }
}

/// Reads arguments without an intermediate [`Value`]. This works for most calls.
fn directly<T: DeserializeOwned>(args: &str) -> Option<T> {
    // Leave longer arguments to `by_value`, which refuses them. Require a brace, because serde also accepts an array of the fields.
    let is_object = args.len() <= arguments::MAX_BYTES && args.trim_ascii_start().starts_with('{');
    is_object.then(|| parse_recorded(args).ok()).flatten()
}

/// Reads arguments through a [`Value`]. This accepts duplicate keys, and `5.0` for 5.
fn by_value<T: DeserializeOwned>(tool: &str, args: &str, takes: &str) -> Result<T, ToolError> {
    let mut value = arguments::parse(tool, args).map_err(ToolError::bad_args)?;
    value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(float_to_integer);
    serde_json::from_value(value).map_err(|error| {
        let error = error.to_string();
        let shown = bounded::shorten(&error, 300);
        ToolError::bad_args(format!("the arguments of {tool} do not fit: {shown}; it takes {takes}"))
    })
}

/// Converts a number such as `5.0` to an integer. Some models write it instead of 5; in JSON they are the same number.
fn float_to_integer(value: &mut Value) {
    let number = value.as_f64().filter(|number| value.is_f64() && *number >= 0.0 && number.fract() == 0.0);
    if let Some(number) = number.and_then(|number| format!("{number:.0}").parse::<u64>().ok()) {
        *value = number.into();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof};
    use proptest::sample::{Index, select};
    use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        text: String,
        #[serde(alias = "other_name")]
        alias: Option<String>,
        flag: Option<bool>,
        small: Option<u32>,
        big: Option<u64>,
        list: Option<Vec<String>>,
        #[serde(default)]
        values: BTreeMap<String, String>,
        lists: Option<BTreeMap<String, Vec<String>>>,
        object: Option<Map<String, Value>>,
    }

    /// A seeded bug: this type skips unknown fields.
    #[derive(Debug, PartialEq, Deserialize)]
    struct SkipsUnknown {
        text: String,
    }

    /// Generates objects with known, unknown and duplicate keys, some truncated or surrounded by white space.
    fn argument_texts() -> impl Strategy<Value = String> {
        let keys =
            vec!["text", "alias", "other_name", "flag", "small", "big", "list", "values", "lists", "object", "colour"];
        let deep = "[".repeat(200) + &"]".repeat(200);
        let values = vec![
            "\"a\"",
            "\"\"",
            "\"\\ud800\"",
            "\"\\u0041\"",
            "null",
            "true",
            "5",
            "5.0",
            "5.5",
            "-1",
            "1e3",
            "1e999",
            "4294967296.0",
            "18446744073709551616",
            "[]",
            "[\"a\"]",
            "[1]",
            "{}",
            "{\"a\":\"b\",\"a\":\"c\"}",
            "{\"a\":[\"b\"]}",
            "{\"a\":5.0}",
        ];
        let value = prop_oneof![30 => select(values).prop_map(str::to_owned), 1 => Just(deep)];
        let field = (select(keys), value).prop_map(|(key, value)| format!("\"{key}\": {value}"));
        let fields = (any::<bool>(), prop::collection::vec(field, 0..4)).prop_map(|(text, fields)| {
            let text = text.then(|| "\"text\": \"a\"".to_owned());
            text.into_iter().chain(fields).collect::<Vec<_>>().join(",")
        });
        let shape = select(vec![("{", "}"), (" \n{", "} "), ("[", "]"), ("", "")]);
        (fields, shape, any::<Index>(), 0..8_u32).prop_map(|(fields, (open, close), at, cut)| {
            let mut text = format!("{open}{fields}{close}");
            if cut == 0 && !text.is_empty() {
                text.truncate(at.index(text.len()));
            }
            text
        })
    }

    fn readings_agree<T: DeserializeOwned + Debug + PartialEq>() -> Result<(), TestError<String>> {
        let config = Config { cases: 20_000, max_shrink_iters: 1_000, failure_persistence: None, ..Config::default() };
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)).run(
            &argument_texts(),
            |args| {
                let (combined, slow) = (arguments::<T>("t", &args, "text"), by_value::<T>("t", &args, "text"));
                prop_assert_eq!(combined, slow);
                Ok::<(), TestCaseError>(())
            },
        )
    }

    #[test]
    fn direct_reading_agrees_with_reading_by_value() {
        if let Err(error) = readings_agree::<Fields>() {
            panic!("{error}");
        }
        assert!(matches!(readings_agree::<SkipsUnknown>(), Err(TestError::Fail(..))), "the test missed the seeded bug");
    }

    #[test]
    fn both_readings_refuse_oversized_arguments() {
        let args = |bytes: usize| {
            let text = "{\"text\":\"\"}";
            text.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - text.len())))
        };
        let (most, more) = (args(arguments::MAX_BYTES), args(arguments::MAX_BYTES + 1));
        assert!(directly::<Fields>(&most).is_some() && arguments::<Fields>("t", &most, "text").is_ok());
        assert_eq!(directly::<Fields>(&more), None);
        assert!(arguments::<Fields>("t", &more, "text").unwrap_err().message.contains("the limit is 8388608"));
    }
}
