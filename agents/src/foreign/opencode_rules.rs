//! Permissions of OpenCode: an ordered list, in which the last matching entry decides.

use serde_json::Value;
use subtend_session::authority::Verdict;

use super::fields::{Fields, expected, field};
use super::rights::{MAX_RULES, Rights};
use super::wildcards;
use crate::form::shown;
use crate::front::BadManifest;

/// The keys that have a meaning of their own here.
const KEYS: [&str; 18] = [
    "read",
    "edit",
    "bash",
    "webfetch",
    "websearch",
    "task",
    "list",
    "glob",
    "grep",
    "skill",
    "lsp",
    "todowrite",
    "todoread",
    "question",
    "doom_loop",
    "external_directory",
    "plan_enter",
    "plan_exit",
];

/// One permission: a key and a pattern. In both, `*` represents any characters and `?` one character.
pub(super) struct OrderedPermission {
    key: String,
    pattern: String,
    verdict: Verdict,
}

/// The permissions of one key: the verdict for every resource, and later rules for patterns.
pub(super) struct KeyPermissions {
    pub(super) rest: Verdict,
    pub(super) rules: Vec<(String, Verdict)>,
}

fn entry(key: &str, pattern: &str, verdict: Verdict) -> OrderedPermission {
    OrderedPermission { key: matching_key(key, verdict), pattern: pattern.to_owned(), verdict }
}

/// The key of an allow does not change, because OpenCode would apply it only to keys that it has.
fn matching_key(key: &str, verdict: Verdict) -> String {
    let lower = key.to_lowercase();
    let known = match &*lower {
        "write" | "patch" | "multiedit" | "apply_patch" => "edit",
        "shell" => "bash",
        "fetch" => "webfetch",
        "agent" => "task",
        "ls" => "list",
        "search" => "grep",
        other if KEYS.contains(&other) => other,
        _ => key,
    };
    if verdict == Verdict::Allow { key.to_owned() } else { known.to_owned() }
}

fn verdict(at: &str, value: &Value) -> Result<Verdict, BadManifest> {
    match value.as_str() {
        Some("allow") => Ok(Verdict::Allow),
        Some("ask") => Ok(Verdict::Ask),
        Some("deny") => Ok(Verdict::Deny),
        Some(_) | None => Err(expected(at, "allow, ask or deny", value)),
    }
}

/// Takes the permissions of a file of the first generation, after the defaults of the product.
pub(super) fn first(fields: &mut Fields) -> Result<Vec<OrderedPermission>, BadManifest> {
    let mut entries = vec![
        entry("read", "*.env", Verdict::Ask),
        entry("read", "*.env.*", Verdict::Ask),
        entry("read", "*.env.example", Verdict::Allow),
    ];
    match fields.take("tools") {
        None => {}
        Some(Value::Object(tools)) => {
            for (tool, on) in &tools {
                let key = if matches!(&**tool, "write" | "edit" | "patch" | "multiedit") { "edit" } else { &**tool };
                let on = on.as_bool().ok_or_else(|| expected(&format!("tools.{tool}"), "true or false", on))?;
                entries.push(entry(key, "*", if on { Verdict::Allow } else { Verdict::Deny }));
            }
        }
        Some(other) => return Err(expected("tools", "a map of tools to true or false", &other)),
    }
    match fields.take("permission") {
        None => {}
        Some(all @ Value::String(_)) => entries.push(entry("*", "*", verdict("permission", &all)?)),
        Some(Value::Object(map)) => {
            for (key, value) in &map {
                let at = format!("permission.{key}");
                match value {
                    Value::Object(patterns) => {
                        for (pattern, value) in patterns {
                            entries.push(entry(key, pattern, verdict(&format!("{at}.{pattern}"), value)?));
                        }
                    }
                    Value::Null => {}
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                        entries.push(entry(key, "*", verdict(&at, value)?));
                    }
                }
            }
        }
        Some(other) => return Err(expected("permission", "allow, ask, deny, or a map", &other)),
    }
    Ok(entries)
}

/// Takes the permissions of a second-generation file, then those with keys of the first, which also apply.
pub(super) fn second(fields: &mut Fields) -> Result<Vec<OrderedPermission>, BadManifest> {
    if fields.has("permission") || fields.has("tools") {
        let key = if fields.has("permission") { "permission" } else { "tools" };
        return Err(field(
            key,
            "is of the first generation and cannot be combined with `permissions`, `system`, `disabled` or `request`",
        ));
    }
    let mut entries = Vec::new();
    let list = match fields.take("permissions") {
        None => Vec::new(),
        Some(Value::Array(list)) => list,
        Some(other) => return Err(expected("permissions", "a list of {action, resource, effect}", &other)),
    };
    for (at, item) in list.iter().enumerate() {
        let at = format!("permissions[{at}]");
        let text = |key: &str| item.get(key).and_then(Value::as_str);
        let action = text("action").ok_or_else(|| field(&at, format!("has no `action`: {}", shown(item))))?;
        let effect = item.get("effect").ok_or_else(|| field(&at, format!("has no `effect`: {}", shown(item))))?;
        let resource = match item.get("resource") {
            None | Some(Value::Null) => "*",
            Some(Value::String(text)) => text,
            Some(other) => return Err(expected(&format!("{at}.resource"), "a pattern", other)),
        };
        let action = if action == "shell" { "bash" } else { action };
        entries.push(entry(action, resource, verdict(&format!("{at}.effect"), effect)?));
    }
    Ok(entries)
}

pub(super) fn of(entries: &[OrderedPermission], key: &str, default: Verdict) -> KeyPermissions {
    let mut scope = KeyPermissions { rest: default, rules: Vec::new() };
    for entry in entries.iter().filter(|entry| wildcards::matches(&entry.key, key)) {
        if !entry.pattern.is_empty() && entry.pattern.bytes().all(|c| c == b'*') {
            scope = KeyPermissions { rest: entry.verdict, rules: Vec::new() };
        } else {
            scope.rules.push((entry.pattern.clone(), entry.verdict));
        }
    }
    scope
}

/// Returns the verdict for tools that no key names.
pub(super) fn rest(entries: &[OrderedPermission], default: Verdict) -> Verdict {
    let all: Vec<&OrderedPermission> =
        entries.iter().filter(|entry| !entry.key.is_empty() && entry.key.bytes().all(|c| c == b'*')).collect();
    let last = all.iter().rposition(|entry| entry.pattern == "*");
    let after = last.map_or(0, |at| at.saturating_add(1));
    let whole = last.and_then(|at| all.get(at)).map_or(default, |entry| entry.verdict);
    // A later pattern may match tools that are unknown here. The strictest verdict is therefore used for all of them.
    all.get(after..).unwrap_or_default().iter().map(|entry| entry.verdict).fold(whole, Verdict::min)
}

/// Adds rules for tools of hosts and servers that the keys name.
pub(super) fn others(entries: &[OrderedPermission], rights: &mut Rights) {
    for entry in entries {
        let any = entry.key.is_empty() || entry.key.bytes().all(|c| c == b'*');
        if any || KEYS.iter().any(|key| wildcards::matches(&entry.key, key)) {
            continue;
        }
        let lowers = entry.verdict != Verdict::Allow;
        let key: String = entry.key.chars().map(|c| if c == '?' { '*' } else { c }).collect();
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*' | '.');
        let exact = key == entry.key && key.chars().all(plain) && entry.pattern == "*";
        if !lowers && !exact {
            continue;
        }
        if lowers && !key.contains(['_', '*']) {
            rights.note(format!(
                "permission of {}: no tool here has this name, so it restricts none",
                shown(&Value::from(&*key))
            ));
        }
        rights.action(format!("tool:{key}"), entry.verdict);
        // In SERVER_TOOL both parts may contain `_`. Each split gets a rule, and a wrong one matches no tool. With more than
        // `MAX_RULES` of them the file is refused.
        for (at, _) in key.match_indices('_').take(MAX_RULES.saturating_add(1)) {
            let (server, tool) =
                (key.get(..at).unwrap_or_default(), key.get(at.saturating_add(1)..).unwrap_or_default());
            rights.action(format!("mcp:{server}:{tool}"), entry.verdict);
        }
        if key.contains('*') {
            rights.action(format!("mcp:{key}"), entry.verdict);
        }
    }
}

/// Translates a pattern of agent names. Characters that agent names cannot have are replaced.
pub(super) fn agents(pattern: &str) -> String {
    let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '*');
    pattern
        .chars()
        .map(|c| {
            if c == '?' {
                '*'
            } else if name(c) {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect()
}
