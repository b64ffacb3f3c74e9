//! Resolves the tool that a call of `use_tool` names, so that authority checks, execution and reports agree on it.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::values::parse_recorded;

pub const GET: &str = "get_tools";
pub const USE: &str = "use_tool";

/// Returns the tool and arguments that a call of `use_tool` names. Some models write the arguments as JSON text.
pub fn resolve(tool: &str, args: &str) -> Option<(String, String)> {
    if tool != USE {
        return None;
    }
    let args: Value = parse_recorded(args).ok()?;
    let name = args.get("tool")?.as_str()?.trim();
    let nested = match args.get("args") {
        None | Some(Value::Null) => Value::Object(Map::new()).to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    (!name.is_empty()).then(|| (name.to_owned(), nested))
}

/// Returns the called tool, which a call of `use_tool` names. All that depends on a tool's name asks here.
pub fn display_name<'a>(tool: &'a str, args: &str) -> Cow<'a, str> {
    resolve(tool, args).map_or(Cow::Borrowed(tool), |(tool, _)| Cow::Owned(tool))
}

/// Returns the called tool and its arguments.
pub fn called<'a>(tool: &'a str, args: &'a str) -> (Cow<'a, str>, Cow<'a, str>) {
    resolve(tool, args).map_or((Cow::Borrowed(tool), Cow::Borrowed(args)), |(tool, args)| (tool.into(), args.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b8_use_tool_call_resolves_to_the_named_tool() {
        let resolved = |name: &str, args: &str| Some((name.to_owned(), args.to_owned()));
        assert_eq!(resolve(USE, r#"{"tool":" write ","args":{"path":"a"}}"#), resolved("write", r#"{"path":"a"}"#));
        assert_eq!(resolve(USE, r#"{"tool":"write","args":"{\"path\":\"a\"}"}"#), resolved("write", r#"{"path":"a"}"#));
        assert_eq!(resolve(USE, r#"{"tool":"list"}"#), resolved("list", "{}"));
        assert_eq!(resolve(USE, r#"{"tool":"list","args":null}"#), resolved("list", "{}"));
        for invalid in ["", "[]", "{}", r#"{"tool":7}"#, r#"{"tool":" "}"#] {
            assert_eq!(resolve(USE, invalid), None, "{invalid}");
        }
        assert_eq!(resolve("write", r#"{"tool":"read"}"#), None);
        assert_eq!((&*display_name(USE, r#"{"tool":"list"}"#), &*display_name("read", "{}")), ("list", "read"));
    }
}
