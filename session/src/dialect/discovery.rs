//! Tools that a session finds by itself: which tool a call of `use_tool` is a call of.
//!
//! Read from the call's own arguments, so that whoever judges the call, runs it or tells of it later means the same tool.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// The tool that lists the others.
pub const GET: &str = "get_tools";
/// The tool that calls one of them.
pub const USE: &str = "use_tool";

/// The tool and the arguments that a call of `use_tool` stands for; `None` where it is a call of another tool, or names none.
///
/// The arguments are an object, or the text of one, as some models write what is nested.
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

/// The name of the tool that a call is of, for people and records of decisions.
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
