//! Permissions of an agent file, as rules.

use serde_json::{Map, Value};
use subtend_session::authority::{Rule, RuleSet, Verdict, is_wide_address};

use crate::form::shown;

/// Parses the value of `permissions`. The entry `"*": verdict` is the default. Without that entry, other actions keep
/// the verdict of the caller. If an entry would have no effect, the error names it and the correct form.
pub(crate) fn parse(value: &Value) -> Result<RuleSet, String> {
    let Value::Object(map) = value else {
        return Err(format!("must be a map of actions to allow, ask or deny, not {}", shown(value)));
    };
    let mut set = RuleSet { default: Verdict::Allow, rules: Vec::new() };
    for (action, entry) in map {
        match entry {
            Value::Object(resources) => add_resources(&mut set.rules, action, resources)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let verdict = verdict(entry).map_err(|why| format!("`{action}`: {why}"))?;
                if action == "*" {
                    set.default = verdict;
                } else {
                    set.rules.push(Rule::parse(action, None, verdict).map_err(|bad| bad.to_string())?);
                }
            }
        }
    }
    set.rules.sort_unstable();
    Ok(set)
}

fn add_resources(rules: &mut Vec<Rule>, action: &str, resources: &Map<String, Value>) -> Result<(), String> {
    for (resource, value) in resources {
        let verdict = verdict(value).map_err(|why| format!("`{action}`: `{resource}`: {why}"))?;
        let rule = Rule::parse(action, Some(resource), verdict);
        rules.push(
            rule.map_err(|bad| if *bad.rule == *action { bad.to_string() } else { format!("`{action}`: {bad}") })?,
        );
    }
    Ok(())
}

/// Returns a warning for a set of allows alone: the caller's authority already limits the agent.
pub(crate) fn no_effect_reason(set: &RuleSet) -> Option<&'static str> {
    let lower = |rule: &Rule| rule.verdict != Verdict::Allow;
    match set.rules.is_empty() {
        _ if set.default != Verdict::Allow || set.rules.iter().any(lower) => None,
        true => Some("`permissions` is empty, which changes nothing: name actions below it, or leave it out"),
        false => Some("`permissions` only allows, which changes nothing: add `\"*\": deny` to deny the rest"),
    }
}

/// Returns warnings for patterns of `net.fetch` that match no address, or that allow more than they seem to. They are
/// not errors, because a host's own tools may use addresses of another form.
pub(crate) fn without_address(set: &RuleSet) -> impl Iterator<Item = String> {
    let of_fetch = set.rules.iter().filter(|rule| &*rule.action == "net.fetch");
    of_fetch.filter_map(|rule| {
        let pattern = &rule.resource;
        if !pattern.starts_with('*') && !pattern.contains("://") {
            let message = format!("matches no address: write `https://{pattern}/*`, or `*{pattern}*`");
            return Some(format!("`net.fetch`: `{pattern}` {message}"));
        }
        let is_wide = rule.verdict == Verdict::Allow && is_wide_address(pattern);
        is_wide.then(|| {
            format!("`net.fetch`: `{pattern}` also allows other hosts, since `*` matches their paths: write `https://HOST/*`")
        })
    })
}

fn verdict(value: &Value) -> Result<Verdict, String> {
    match value.as_str() {
        Some("allow") => Ok(Verdict::Allow),
        Some("ask") => Ok(Verdict::Ask),
        Some("deny") => Ok(Verdict::Deny),
        Some(_) | None => Err(format!("must be allow, ask or deny, not {}", shown(value))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(action: &str, resource: &str, verdict: Verdict) -> Rule {
        Rule { action: action.into(), resource: resource.into(), verdict }
    }

    #[test]
    fn verdicts_become_rules_and_star_becomes_the_default() {
        let value = json!({"*": "deny", "fs.read": "allow", "fs.write": {"docs/**": "ask", "*": "deny"}});
        let expected = RuleSet {
            default: Verdict::Deny,
            rules: vec![
                rule("fs.read", "*", Verdict::Allow),
                rule("fs.write", "*", Verdict::Deny),
                rule("fs.write", "docs/**", Verdict::Ask),
            ],
        };
        assert_eq!(parse(&value), Ok(expected));
    }

    #[test]
    fn permissions_without_a_star_allow_by_default() {
        let expected = RuleSet { default: Verdict::Allow, rules: vec![rule("shell.run", "*", Verdict::Deny)] };
        assert_eq!(parse(&json!({"shell.run": "deny"})), Ok(expected));
    }

    #[test]
    fn errors_name_the_entry() {
        for (value, says) in [
            (json!("deny"), "must be a map of actions to allow, ask or deny, not \"deny\""),
            (json!({"fs.read": true}), "`fs.read`: must be allow, ask or deny, not true"),
            (json!({"fs.read": {"a": "never"}}), "`fs.read`: `a`: must be allow, ask or deny, not \"never\""),
            (
                json!({"fs.read": {" ": "deny"}}),
                "`fs.read`: ` `: a pattern has at least one character, no control characters and no blanks around it",
            ),
        ] {
            assert_eq!(parse(&value), Err(says.to_owned()));
        }
    }

    #[test]
    fn rule_set_with_only_allows_is_reported() {
        let narrows = |value| parse(&value).map(|set| no_effect_reason(&set).is_none());
        assert_eq!(narrows(json!({"fs.read": "allow"})), Ok(false));
        assert_eq!(narrows(json!({"*": "deny", "fs.read": "allow"})), Ok(true));
        assert_eq!(narrows(json!({"fs.read": {"a": "ask"}})), Ok(true));
    }

    #[test]
    fn a1_tool_names_become_rules_about_their_actions() {
        let value = json!({"read": {"secret/**": "deny"}, "bash": "deny", "edit": "ask", "task": {"explore": "deny"}});
        let rules = vec![
            rule("fs.read", "secret/**", Verdict::Deny),
            rule("fs.write", "*", Verdict::Ask),
            rule("shell.run", "*", Verdict::Deny),
            rule("task:explore", "*", Verdict::Deny),
        ];
        assert_eq!(parse(&value), Ok(RuleSet { default: Verdict::Allow, rules }));
    }

    #[test]
    fn a1_deny_that_cannot_take_effect_is_refused() {
        for (value, says) in [
            (json!({"fs.read=secret/**": "deny"}), "nest the pattern below it: `fs.read: {\"secret/**\": deny}`"),
            (json!({"fs.reed": "deny"}), "`fs.reed`: unknown action; did you mean `fs.read`?"),
            (json!({"fs.reed": {"a": "deny"}}), "`fs.reed`: unknown action; did you mean `fs.read`?"),
            (json!({"{workspace}/secret/**": "deny"}), "unknown placeholder `{workspace}`"),
            (json!({"fs.read": {"{workspace}/secret/**": "deny"}}), "write `secret/**`"),
            (json!({"fs.read": {"/etc/**": "deny"}}), "`fs.read`: `/etc/**`: paths are relative to the workspace"),
        ] {
            let error = parse(&value).unwrap_err();
            assert!(error.contains(says), "{value}: {error}");
        }
    }
}
