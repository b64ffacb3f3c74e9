//! Arguments of calls that open runs, read into the type of their tool.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::result::ToolError;
use crate::{arguments, bounded};

/// Reads the arguments of `tool`, which takes those that `takes` names.
///
/// `T` refuses unknown fields: the direct reading skips the value of an unknown field, whatever it holds.
pub(crate) fn arguments<T: DeserializeOwned>(tool: &str, args: &str, takes: &str) -> Result<T, ToolError> {
    match directly(args) {
        Some(fit) => Ok(fit),
        // Read again, so that the error says what is wrong.
        None => by_value(tool, args, takes),
    }
}

/// Reads arguments that fit as they are, which most do, without a tree of values.
fn directly<T: DeserializeOwned>(args: &str) -> Option<T> {
    // The other reading refuses longer ones unread. Without a brace an array would be read as the fields in their order.
    let is_object = args.len() <= arguments::MAX_BYTES && args.trim_ascii_start().starts_with('{');
    is_object.then(|| serde_json::from_str(args).ok()).flatten()
}

/// Reads arguments by a tree of values: it takes a key that is written twice, and `5.0` for 5.
fn by_value<T: DeserializeOwned>(tool: &str, args: &str, takes: &str) -> Result<T, ToolError> {
    let mut value = arguments::parse(tool, args).map_err(ToolError::bad_args)?;
    value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(whole);
    serde_json::from_value(value).map_err(|error| {
        let error = error.to_string();
        let shown = bounded::shown(&error, 300);
        ToolError::bad_args(format!("the arguments of {tool} do not fit: {shown}; it takes {takes}"))
    })
}

/// A number that some models write as `5.0` where they mean 5: to JSON they are the same.
fn whole(value: &mut Value) {
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

    /// The seeded bug: unknown fields are skipped.
    #[derive(Debug, PartialEq, Deserialize)]
    struct Skipping {
        text: String,
    }

    /// Objects of known and unknown keys, some of them twice, some cut or behind white space.
    fn written() -> impl Strategy<Value = String> {
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

    fn agrees<T: DeserializeOwned + Debug + PartialEq>() -> Result<(), TestError<String>> {
        let config = Config { cases: 20_000, max_shrink_iters: 1_000, failure_persistence: None, ..Config::default() };
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)).run(&written(), |args| {
            let (both, slow) = (arguments::<T>("t", &args, "text"), by_value::<T>("t", &args, "text"));
            prop_assert_eq!(both, slow);
            Ok::<(), TestCaseError>(())
        })
    }

    #[test]
    fn direct_reading_agrees_with_that_by_value() {
        if let Err(broken) = agrees::<Fields>() {
            panic!("{broken}");
        }
        assert!(
            matches!(agrees::<Skipping>(), Err(TestError::Fail(..))),
            "a reading that skips unknown fields is noticed"
        );
    }

    #[test]
    fn arguments_beyond_the_bound_are_refused_by_both_readings() {
        let args = |bytes: usize| {
            let text = "{\"text\":\"\"}";
            text.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - text.len())))
        };
        let (most, more) = (args(arguments::MAX_BYTES), args(arguments::MAX_BYTES + 1));
        assert!(directly::<Fields>(&most).is_some() && arguments::<Fields>("t", &most, "text").is_ok());
        assert_eq!(directly::<Fields>(&more), None);
        assert!(arguments::<Fields>("t", &more, "text").unwrap_err().message.contains("8388608 is the most"));
    }
}
