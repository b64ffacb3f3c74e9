//! Estimates of the memory that loaded files take.

use serde_json::Value;
use subtend_session::authority::Rule;

use crate::manifest::Manifest;

/// Bytes of a short text or of an entry of a list, besides its content.
const ENTRY: usize = 64;

pub(crate) fn of_text(text: &str) -> usize {
    text.len().saturating_add(ENTRY)
}

pub(crate) fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(of_text).sum()
}

/// Returns the bytes of an agent. Its lists count too, since a file of short entries takes many times its size.
pub(crate) fn of_agent(agent: &Manifest) -> usize {
    let names = agent.tools.iter().flatten().chain(&agent.skills).chain(&agent.model).chain(&agent.pool);
    let rules = agent.rules.iter().chain(&agent.bounds).flat_map(|set| &set.rules);
    let path = agent.source.path().map(|path| path.to_string_lossy());
    let texts = [&agent.name, &agent.description, &agent.body].into_iter().chain(names).map(|text| &**text);
    let of_rule = |rule: &Rule| of_texts([&*rule.action, &rule.resource]);
    let of_extra = |(key, value): (&String, &Value)| of_text(key).saturating_add(of_value(value));
    let lists = rules.map(of_rule).chain(agent.extra.iter().map(of_extra));
    let bytes: usize = lists.sum();
    bytes.saturating_add(of_texts(texts.chain(path.as_deref()))).saturating_add(size_of::<Manifest>())
}

fn of_value(value: &Value) -> usize {
    let inner = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(of_value).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| of_text(key).saturating_add(of_value(value))).sum(),
    };
    inner.saturating_add(ENTRY)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use subtend_session::authority::{RuleSet, Verdict};

    use super::*;
    use crate::manifest::AgentMode;

    /// A file of short entries takes many times its size in memory.
    #[test]
    fn entries_of_lists_count_more_than_their_texts() {
        let plain = Manifest::new("a", AgentMode::All, "Work.");
        let more = |agent: Manifest| of_agent(&agent) - of_agent(&plain);
        let rule = Rule { action: "a".into(), resource: "b".into(), verdict: Verdict::Deny };
        let rules = Some(RuleSet { default: Verdict::Allow, rules: vec![rule; 100] });
        let extra = [("key".to_owned(), json!([0, {"k": "text"}]))].into();
        assert_eq!(
            [
                more(Manifest { rules, ..plain.clone() }),
                more(Manifest { tools: Some(vec!["a".into(); 100]), ..plain.clone() }),
                more(Manifest { extra, ..plain.clone() }),
                more(Manifest { body: "Work. Work.".into(), ..plain.clone() }),
            ],
            [13_000, 6_500, 392, 6]
        );
    }
}
