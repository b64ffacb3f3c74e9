//! Unknown keys of front matter: a warning, or a refusal of the file.
//!
//! Agent files of other products have further keys. A descriptive key (`color`, `hooks`) is kept with a warning. If a
//! key restricts the agent (`disallowedTools`, `readonly`, `maxTurns`), the file is refused. Without the restriction,
//! the agent could do what the file denies.

use serde_json::Value;
use subtend_session::near::near;

use crate::schema::keys;

const RESTRICTIONS: [(&[&str], &str); 5] = [
    (
        &[
            "perm",
            "perms",
            "permit",
            "permitted",
            "permission",
            "permissions",
            "deny",
            "denied",
            "denies",
            "denylist",
            "disallow",
            "disallowed",
            "disallows",
            "forbid",
            "forbidden",
            "block",
            "blocked",
            "blocklist",
            "blacklist",
            "exclude",
            "excluded",
            "excludes",
            "restrict",
            "restricted",
            "restrictions",
            "ask",
            "confirm",
            "approval",
            "approvals",
            "approve",
        ],
        "write `permissions: {ACTION: deny}` (or `ask`), such as `permissions: {fs.write: deny, shell.run: ask}`",
    ),
    (
        &["allow", "allowed", "allows", "allowlist", "whitelist"],
        "write `tools: [NAME]` to limit the agent to these tools, or `permissions: {\"*\": deny, ACTION: allow}`",
    ),
    (&["readonly", "sandbox", "isolated"], "write `permissions: {fs.write: deny, shell.run: deny}`"),
    (
        &["max", "limit", "limits", "steps", "timeout", "budget"],
        "write `turns: N` or `output_tokens: N`, or set `limits` in subtend.yaml",
    ),
    (
        &["disable", "disabled", "enabled", "invocable", "invokable", "infer"],
        "write `mode: primary` or `mode: subagent` to limit who may start it, or delete the file",
    ),
];

const NOT_MISSPELLED: [&str; 3] = ["hooks", "top_k", "topk"];

pub(super) fn refused(key: &str, value: &Value) -> Option<String> {
    if restricts_nothing(key, value) {
        return None;
    }
    let words = words(key);
    if let Some(form) = form(&words) {
        return Some(format!("is an unknown key, and a restriction is never ignored: {form}"));
    }
    let candidates = keys().filter(|known| !matches!(*known, "mode" | "name" | "pool"));
    let known = near(&words.join("_"), candidates).filter(|_| !NOT_MISSPELLED.contains(&&*key.to_lowercase()))?;
    Some(format!("is an unknown key; did you mean `{known}`?"))
}

/// Returns whether an unknown key with that value seems to restrict the agent.
pub(crate) fn restricts(key: &str, value: &Value) -> bool {
    !restricts_nothing(key, value) && form(&words(key)).is_some()
}

/// Returns how an agent file expresses the restriction that the words of an unknown key suggest.
fn form(words: &[String]) -> Option<&'static str> {
    let joined = words.concat();
    let restricts = |names: &[&str]| names.iter().any(|name| *name == joined || words.iter().any(|word| word == name));
    RESTRICTIONS.iter().find(|(names, _)| restricts(names)).map(|(_, form)| *form)
}

fn restricts_nothing(key: &str, value: &Value) -> bool {
    let words = words(key);
    // In these modes Claude Code asks as usual or less often. The modes `plan` and `dontAsk` deny actions.
    if words == ["permission", "mode"] {
        return matches!(value.as_str(), Some("default" | "acceptEdits" | "bypassPermissions"));
    }
    // For these keys, the value `false` denies.
    let affirms = words.iter().any(|word| matches!(&**word, "enabled" | "invocable" | "invokable" | "infer"));
    match value {
        Value::Null => true,
        Value::Bool(value) => *value == affirms,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    }
}

/// Splits a key into lower-case words: `disallowedTools` and `disallowed-tools` are `disallowed` and `tools`.
fn words(key: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut after_lower = false;
    for c in key.chars() {
        if !c.is_alphanumeric() {
            after_lower = false;
            words.push(String::new());
            continue;
        }
        if (c.is_uppercase() && after_lower) || words.is_empty() {
            words.push(String::new());
        }
        after_lower = c.is_lowercase() || c.is_numeric();
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
