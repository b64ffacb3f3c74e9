//! Keys that the file of a workspace may set: it comes with a clone, and its author is not the person who runs it.

use serde_json::Value;

use super::error::ConfigError;
use super::key::Key;
use super::origin::Origin;

/// The rights of a workspace's file over a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Set it.
    Free,
    /// Name models in it: of those that the person enables.
    Enabled,
    /// Lower what the person's own file says, or set it where that says nothing.
    Lower,
    /// Nothing: the person's own file, a variable or an option sets it.
    Own,
}

/// Every key with what the file of a workspace may do with it, and why; one that ends with `.*` means all below it.
pub const REACH: [(&str, Reach, &str); 23] = [
    ("agent", Reach::Free, "chooses among agents; none does more than options of the command allow"),
    ("sessions.*", Reach::Free, "titles and summaries, by agents without tools"),
    ("host.*", Reach::Own, "bounds of the process, in which sessions of other workspaces run too"),
    ("llm.model", Reach::Enabled, "chooses who answers"),
    ("llm.default_pool", Reach::Enabled, "chooses who answers"),
    ("llm.pools.*", Reach::Enabled, "chooses who answers"),
    ("llm.context_windows.*", Reach::Free, "bounds what one call sends"),
    ("llm.output_tokens.*", Reach::Own, "a higher cap would spend more"),
    ("subagents.enabled", Reach::Free, "children do no more than their parents"),
    ("subagents.messages", Reach::Free, "agents of one tree write to each other, and approve nothing"),
    ("tools.minion.options.model", Reach::Enabled, "chooses who answers"),
    ("tools.minion.templates.*", Reach::Enabled, "a template may name a model"),
    ("tools.options.*", Reach::Enabled, "an option may name a model"),
    ("tools.*", Reach::Free, "which tools start children, with which prompts; children do no more than their parents"),
    ("mcp.*", Reach::Own, "starts programs with your rights; a workspace names its servers in `.mcp.json`"),
    ("remote_tools.*", Reach::Own, "what models may call, and what workers of other machines get"),
    ("limits.tokens", Reach::Lower, "bounds what a run spends"),
    ("limits.cost_micro", Reach::Lower, "bounds what a run spends"),
    ("limits.wall_ms", Reach::Lower, "bounds what a run spends"),
    ("limits.*", Reach::Free, "bounds within a run; `--limit` sets them for one call"),
    ("shell.*", Reach::Own, "what commands get of your variables, and of the machine"),
    ("web.*", Reach::Own, "which hosts of your network are reached, and who gets your searches"),
    ("prices.*", Reach::Own, "a false price would lift a limit of money"),
];

impl Reach {
    /// Returns what the file of a workspace may do with `key`.
    pub fn of(key: &Key) -> Self {
        let names = key.names().join(".");
        let holds = |pattern: &str| match pattern.strip_suffix('*') {
            Some(above) => names.starts_with(above),
            None => names == pattern,
        };
        // A key without an entry has not been classified.
        REACH.iter().find(|(pattern, ..)| holds(pattern)).map_or(Self::Own, |(_, reach, _)| *reach)
    }

    /// Returns the reach in words, for the guide.
    pub fn words(self) -> &'static str {
        match self {
            Self::Free => "yes",
            Self::Enabled => "models that you enable",
            Self::Lower => "lower than your own file",
            Self::Own => "no",
        }
    }
}

/// Refuses what the file of a workspace says of a key that is not its own to set.
pub(super) fn check(values: &[(Key, Value, Origin)]) -> Result<(), ConfigError> {
    for (key, value, origin) in values.iter().filter(|(_, _, origin)| matches!(origin, Origin::Project(_))) {
        let why = match Reach::of(key) {
            Reach::Free | Reach::Enabled => continue,
            Reach::Own => "a workspace cannot set it: set it in your own file (`subtend config set --user`)".to_owned(),
            Reach::Lower => {
                match bound(values, key).filter(|bound| value.as_u64().is_none_or(|value| value > *bound)) {
                    Some(bound) => format!("a workspace can only lower it, and your own file says {bound}"),
                    None => continue,
                }
            }
        };
        return Err(ConfigError::Together { origin: origin.clone(), why: format!("`{key}`: {why}") });
    }
    Ok(())
}

/// Returns what the person's own file says of `key`.
fn bound(values: &[(Key, Value, Origin)], key: &Key) -> Option<u64> {
    let own = values.iter().rfind(|(of, _, origin)| of == key && matches!(origin, Origin::User(_)));
    own.and_then(|(_, value, _)| value.as_u64())
}

#[cfg(test)]
mod tests {
    use super::super::shape::Shape;
    use super::*;

    /// A key that is added is judged before it can be used.
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
            let judged = REACH.iter().any(|(pattern, ..)| match pattern.strip_suffix('*') {
                Some(above) => name.starts_with(above),
                None => name == *pattern,
            });
            assert!(judged, "{name}");
        }
    }

    #[test]
    fn the_guide_has_the_table_of_the_code() {
        let guide = include_str!("../guide/configuration.md");
        for (key, reach, why) in REACH {
            let row = format!("| `{key}` | {} | {why} |", reach.words());
            assert!(guide.contains(&row), "{row}");
        }
    }
}
