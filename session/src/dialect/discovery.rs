//! Resolves which tool a call of `use_tool` calls.
//!
//! It reads the call's own arguments, so that authority, execution and reports all mean the same tool.

use std::borrow::Cow;

use serde_json::{Map, Value};

pub const GET: &str = "get_tools";
pub const USE: &str = "use_tool";

/// Returns the tool and arguments that a call of `use_tool` names; `None` for other tools or without a name.
///
/// The arguments are an object, or its JSON text, as some models write nested objects.
pub fn used(tool: &str, args: &str) -> Option<(String, String)> {
    if tool != USE {
        return None;
    }
    let args: Value = serde_json::from_str(args).ok()?;
    let name = args.get("tool")?.as_str()?.trim();
    let nested = match args.get("args") {
        None | Some(Value::Null) => Value::Object(Map::new()).to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    (!name.is_empty()).then(|| (name.to_owned(), nested))
}

/// Returns the tool's name for people and for records of decisions.
pub fn named<'a>(tool: &'a str, args: &str) -> Cow<'a, str> {
    used(tool, args).map_or(Cow::Borrowed(tool), |(tool, _)| Cow::Owned(tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b8_a_call_of_use_tool_is_one_of_the_tool_that_it_names() {
        let is = |name: &str, args: &str| Some((name.to_owned(), args.to_owned()));
        assert_eq!(used(USE, r#"{"tool":" write ","args":{"path":"a"}}"#), is("write", r#"{"path":"a"}"#));
        assert_eq!(used(USE, r#"{"tool":"write","args":"{\"path\":\"a\"}"}"#), is("write", r#"{"path":"a"}"#));
        assert_eq!(used(USE, r#"{"tool":"list"}"#), is("list", "{}"));
        assert_eq!(used(USE, r#"{"tool":"list","args":null}"#), is("list", "{}"));
        for none in ["", "[]", "{}", r#"{"tool":7}"#, r#"{"tool":" "}"#] {
            assert_eq!(used(USE, none), None, "{none}");
        }
        assert_eq!(used("write", r#"{"tool":"read"}"#), None);
        assert_eq!((&*named(USE, r#"{"tool":"list"}"#), &*named("read", "{}")), ("list", "read"));
    }
}
