//! Fuzzes globs of listings, ignore files, and patterns of rules.

use std::fs;

use serde_json::json;
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
use subtend_session::call::ToolErrorKind;

use super::InputResult;
use super::tree::{self, FILES, Tree};

/// Checks the first line as a glob and as the pattern of a rule, and the rest as an ignore file. A listing must show
/// only existing files that no rule denies. An accepted rule must survive a round trip, and its denial must cover
/// everything that the same pattern allows.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let text = String::from_utf8_lossy(bytes);
    let (glob, ignores) = text.split_once('\n').unwrap_or((&text, ""));
    let listed = tree::with_tree(|tree| check_listing(tree, glob, ignores)).unwrap_or(InputResult::Refused);
    listed.max(check_rule(glob))
}

fn check_listing(tree: &Tree, glob: &str, ignores: &str) -> InputResult {
    let path = tree.path().join(".gitignore");
    assert!(fs::write(&path, ignores).is_ok(), "the workspace cannot be written");
    match tree.run("list", json!({"glob": glob, "depth": 5})) {
        Some(Ok(output)) => {
            // Takes only the first word of a line: the target of a link follows its name.
            let names = output.lines().filter_map(|line| line.split_whitespace().next());
            assert!(!names.clone().any(|name| name.contains("key")), "a denied file is listed: {output}");
            let files = names.filter(|name| name.ends_with(".rs") || name.ends_with(".txt"));
            let unknown: Vec<&str> = files.filter(|name| !FILES.iter().any(|file| file.ends_with(name))).collect();
            assert!(unknown.is_empty(), "files are listed that do not exist: {unknown:?} in {output}");
            if ignores.is_empty() && matches!(glob, "a.rs" | "b.txt") {
                assert!(output.contains(glob), "`{glob}` is not listed: {output}");
            }
            InputResult::Accepted
        }
        Some(Err(error)) => {
            assert_eq!(error.kind, ToolErrorKind::BadArgs, "{error:?}");
            assert!(!error.message.is_empty(), "an error without a message");
            InputResult::Refused
        }
        None => InputResult::Refused,
    }
}

fn check_rule(pattern: &str) -> InputResult {
    let mut result = InputResult::Refused;
    for action in ["fs.read", "shell.run"] {
        let Ok(rule) = Rule::parse(action, Some(pattern), Verdict::Deny) else { continue };
        result = InputResult::Accepted;
        let again = Rule::parse(&rule.action, Some(&rule.resource), Verdict::Deny);
        assert_eq!(again.as_ref(), Ok(&rule), "the round trip changed the rule");
        let deny = Authority::of(RuleSet { default: Verdict::Allow, rules: vec![rule.clone()] });
        let allow = RuleSet { default: Verdict::Deny, rules: vec![Rule { verdict: Verdict::Allow, ..rule }] };
        let allow = Authority::of(allow);
        for resource in FILES {
            let access = Access { action: action.into(), resource: resource.into() };
            // A deny rule also covers everything below a directory, so it is never narrower than an allow rule.
            let denied = deny.verdict(&access) == Verdict::Deny;
            let allowed = allow.verdict(&access) == Verdict::Allow;
            assert!(denied || !allowed, "{action} {pattern:?} of {resource}");
            let met = allow.meet(&deny);
            assert_eq!(met.verdict(&access), Verdict::Deny, "{action} {pattern:?} of {resource}");
        }
    }
    result
}
