//! Keys that the file of a workspace may set. The file may come with a clone, so its author is not trusted.

use serde_json::Value;

use super::error::ConfigError;
use super::key::Key;
use super::origin::Origin;

/// The rights of a workspace's file over a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The file may set it.
    Free,
    /// The file may name models that the user has enabled.
    Enabled,
    /// The file may lower the value of the user's own file, or set it if that file does not.
    Lower,
    /// Only the user's own file, a variable or an option may set it.
    Own,
}

/// Every key with the rights of a workspace's file, and the reason; `.*` at the end matches all keys below.
pub const REACH: [(&str, Reach, &str); 23] = [
    ("agent", Reach::Free, "chooses among agents, whose permissions are limited by options of the command"),
    ("sessions.*", Reach::Free, "titles and summaries, by agents without tools"),
    ("host.*", Reach::Own, "bounds of the process, which may run sessions of other workspaces"),
    ("llm.model", Reach::Enabled, "chooses the model"),
    ("llm.default_pool", Reach::Enabled, "chooses the model"),
    ("llm.pools.*", Reach::Enabled, "chooses the model"),
    ("llm.context_windows.*", Reach::Free, "limits the size of a call"),
    ("llm.output_tokens.*", Reach::Own, "a higher cap would spend more"),
    ("subagents.enabled", Reach::Free, "children have at most the permissions of their parents"),
    ("subagents.messages", Reach::Free, "messages between agents of a tree, without approvals"),
    ("tools.minion.options.model", Reach::Enabled, "chooses the model"),
    ("tools.minion.templates.*", Reach::Enabled, "a template may name a model"),
    ("tools.options.*", Reach::Enabled, "an option may name a model"),
    (
        "tools.*",
        Reach::Free,
        "tools and prompts for starting children, which have at most the permissions of their parents",
    ),
    ("mcp.*", Reach::Own, "starts programs with your rights; a workspace names its servers in `.mcp.json`"),
    ("remote_tools.*", Reach::Own, "decides about tools of models, and data that workers receive"),
    ("limits.tokens", Reach::Lower, "limits the cost of a run"),
    ("limits.cost_micro", Reach::Lower, "limits the cost of a run"),
    ("limits.wall_ms", Reach::Lower, "limits the cost of a run"),
    ("limits.*", Reach::Free, "limits within a run; `--limit` overrides them"),
    ("shell.*", Reach::Own, "gives commands access to variables and resources"),
    ("web.*", Reach::Own, "gives access to internal hosts, and receives your searches"),
    ("prices.*", Reach::Own, "a wrong price would weaken a cost limit"),
];

impl Reach {
    /// Returns the rights of a workspace's file over `key`.
    pub fn of(key: &Key) -> Self {
        let names = key.names().join(".");
        let holds = |pattern: &str| match pattern.strip_suffix('*') {
            Some(above) => names.starts_with(above),
            None => names == pattern,
        };
        // A key without an entry is denied.
        REACH.iter().find(|(pattern, ..)| holds(pattern)).map_or(Self::Own, |(_, reach, _)| *reach)
    }

    /// Returns the right as text for the guide.
    pub fn words(self) -> &'static str {
        match self {
            Self::Free => "yes",
            Self::Enabled => "models that you enable",
            Self::Lower => "lower than your own file",
            Self::Own => "no",
        }
    }
}

/// Refuses values of a workspace's file that it may not set.
pub(super) fn check(values: &[(Key, Value, Origin)]) -> Result<(), ConfigError> {
    for (key, value, origin) in values.iter().filter(|(_, _, origin)| matches!(origin, Origin::Project(_))) {
        let why = match Reach::of(key) {
            Reach::Free | Reach::Enabled => continue,
            Reach::Own => "a workspace cannot set it: set it in your own file (`subtend config set --user`)".to_owned(),
            Reach::Lower => {
                match bound(values, key).filter(|bound| value.as_u64().is_none_or(|value| value > *bound)) {
                    Some(bound) => format!("a workspace can only lower it, and your own file sets {bound}"),
                    None => continue,
                }
            }
        };
        return Err(ConfigError::Together { origin: origin.clone(), why: format!("`{key}`: {why}") });
    }
    Ok(())
}

/// Returns the value of `key` in the user's own file.
fn bound(values: &[(Key, Value, Origin)], key: &Key) -> Option<u64> {
    let own = values.iter().rfind(|(of, _, origin)| of == key && matches!(origin, Origin::User(_)));
    own.and_then(|(_, value, _)| value.as_u64())
}

#[cfg(test)]
mod tests {
    use super::super::shape::Shape;
    use super::*;

    /// A new key must be classified before it can be used.
    #[test]
    fn every_key_has_an_entry() {
        let leaves: Vec<String> = Shape::whole().leaves().iter().map(|(key, _)| key.names().join(".")).collect();
        let maps = [
            "llm.pools.",
            "llm.context_windows.",
            "llm.output_tokens.",
            "prices.",
            "remote_tools.",
            "tools.options.",
            "tools.spawn.profiles.",
            "tools.minion.templates.",
        ];
        for name in leaves.iter().map(String::as_str).chain(maps) {
            let is_classified = REACH.iter().any(|(pattern, ..)| match pattern.strip_suffix('*') {
                Some(above) => name.starts_with(above),
                None => name == *pattern,
            });
            assert!(is_classified, "{name}");
        }
    }

    #[test]
    fn guide_contains_the_table_of_rights() {
        let guide = include_str!("../guide/configuration.md");
        for (key, reach, why) in REACH {
            let row = format!("| `{key}` | {} | {why} |", reach.words());
            assert!(guide.contains(&row), "{row}");
        }
    }
}
