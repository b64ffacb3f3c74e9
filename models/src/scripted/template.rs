//! Templates `{prompt}`, `{last}` and `{n}` in a script's texts.

use serde_json::Value;
use subtend_session::ids::Text;

#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateValues<'a> {
    pub(super) prompt: &'a str,
    pub(super) last: &'a str,
    pub(super) n: u64,
}

pub(super) fn is_template(text: &str) -> bool {
    ["{prompt}", "{last}", "{n}"].iter().any(|name| text.contains(name))
}

impl TemplateValues<'_> {
    /// Replaces names in `text` once. Inserted text is not expanded.
    pub(super) fn fill(&self, text: &Text) -> Text {
        if is_template(text) { self.replace_names(text).into() } else { Text::clone(text) }
    }

    fn replace_names(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, from)) = rest.find('{').and_then(|at| rest.split_at_checked(at)) {
            out.push_str(before);
            rest = if let Some(after) = from.strip_prefix("{prompt}") {
                out.push_str(self.prompt);
                after
            } else if let Some(after) = from.strip_prefix("{last}") {
                out.push_str(self.last);
                after
            } else if let Some(after) = from.strip_prefix("{n}") {
                out.push_str(&self.n.to_string());
                after
            } else {
                out.push('{');
                from.strip_prefix('{').unwrap_or_default()
            };
        }
        out.push_str(rest);
        out
    }

    /// Replaces names in the strings of `value`, except keys.
    pub(super) fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.replace_names(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.fill_value(item)).collect()),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(key, item)| (key.clone(), self.fill_value(item))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VALUES: TemplateValues<'static> = TemplateValues { prompt: "say {n}", last: "Ü", n: 3 };

    #[test]
    fn template_names_are_replaced_once() {
        assert_eq!(&*VALUES.fill(&"{n}: {prompt}/{last}{last} {other} {{n}} {".into()), "3: say {n}/ÜÜ {other} {3} {");
        assert_eq!(&*VALUES.fill(&"plain".into()), "plain");
    }

    #[test]
    fn template_names_in_strings_of_values_are_replaced() {
        let value = json!({"a": ["{n}", 1], "{n}": {"b": "{last}"}});
        assert_eq!(VALUES.fill_value(&value), json!({"a": ["3", 1], "{n}": {"b": "Ü"}}));
    }
}
