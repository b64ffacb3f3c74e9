//! Keys that the file of a workspace may set. The file may come from a cloned repository, so its author is not trusted.

use serde_json::Value;

use super::Config;
use super::error::ConfigError;
use super::key::Key;
use super::origin::Origin;

/// The rights of a workspace's file over a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectAccess {
    /// The file may set it.
    Anything,
    /// The file may name models that the user has enabled.
    EnabledModels,
    /// The file may lower the value of the user's own file, or the default.
    LowerOnly,
    /// Only the user's own file, a variable or an option may set it.
    UserOnly,
}

/// For each key, the rights of a workspace's file and the reason. `*` matches any text.
pub const PROJECT_ACCESS: [(&str, ProjectAccess, &str); 29] = [
    ("agent", ProjectAccess::Anything, "chooses among agents, whose permissions are limited by options of the command"),
    ("sessions.*", ProjectAccess::Anything, "titles and summaries, by agents without tools"),
    ("host.*", ProjectAccess::UserOnly, "bounds of the process, which may run sessions of other workspaces"),
    ("llm.model", ProjectAccess::EnabledModels, "chooses the model"),
    ("llm.default_pool", ProjectAccess::EnabledModels, "chooses the model"),
    ("llm.pools.*", ProjectAccess::EnabledModels, "chooses the model"),
    ("llm.context_windows.*", ProjectAccess::Anything, "limits the size of a call"),
    ("llm.output_tokens.*", ProjectAccess::UserOnly, "a higher cap would spend more"),
    ("subagents.enabled", ProjectAccess::Anything, "children have at most the permissions of their parents"),
    ("subagents.messages", ProjectAccess::Anything, "messages between agents of a tree, without approvals"),
    ("tools.minion.options.model", ProjectAccess::EnabledModels, "chooses the model"),
    ("tools.minion.templates.*", ProjectAccess::EnabledModels, "a template may name a model"),
    ("tools.options.*", ProjectAccess::EnabledModels, "an option may name a model"),
    (
        "tools.*",
        ProjectAccess::Anything,
        "tools and prompts for starting children, which have at most the permissions of their parents",
    ),
    (
        "mcp.*",
        ProjectAccess::UserOnly,
        "starts programs with your rights; a workspace names its servers in `.mcp.json`",
    ),
    ("remote_tools.*", ProjectAccess::UserOnly, "decides which tools models have, and which data workers receive"),
    ("limits.tokens", ProjectAccess::LowerOnly, "limits the cost of a run"),
    ("limits.cost_micro", ProjectAccess::LowerOnly, "limits the cost of a run"),
    ("limits.wall_ms", ProjectAccess::LowerOnly, "limits the cost of a run"),
    ("limits.*_bytes", ProjectAccess::LowerOnly, "limits the memory of the process"),
    ("limits.calls_per_answer", ProjectAccess::LowerOnly, "limits the memory of the process"),
    ("limits.local_calls", ProjectAccess::LowerOnly, "limits the memory of the process"),
    ("limits.live_runs", ProjectAccess::LowerOnly, "limits the memory of the process"),
    ("limits.live_person_runs", ProjectAccess::LowerOnly, "limits the memory of the process"),
    ("limits.queue", ProjectAccess::LowerOnly, "limits the memory of the process"),
    ("limits.*", ProjectAccess::Anything, "limits within a run; `--limit` overrides them"),
    ("shell.*", ProjectAccess::UserOnly, "gives commands more variables and resources"),
    ("web.*", ProjectAccess::UserOnly, "gives access to internal hosts, and receives your searches"),
    ("prices.*", ProjectAccess::UserOnly, "a wrong price would weaken a cost limit"),
];

impl ProjectAccess {
    /// Returns the rights of a workspace's file over `key`.
    pub fn of(key: &Key) -> Self {
        let names = key.names().join(".");
        let holds = |pattern: &str| match pattern.split_once('*') {
            Some((begin, end)) => names.starts_with(begin) && names.ends_with(end),
            None => names == pattern,
        };
        // A key without an entry is denied.
        PROJECT_ACCESS.iter().find(|(pattern, ..)| holds(pattern)).map_or(Self::UserOnly, |(_, reach, _)| *reach)
    }

    /// Returns the right as text for the guide.
    pub fn words(self) -> &'static str {
        match self {
            Self::Anything => "yes",
            Self::EnabledModels => "models that you enable",
            Self::LowerOnly => "lower than your own file or the default",
            Self::UserOnly => "no",
        }
    }
}

/// Refuses values of a workspace's file that it may not set.
pub(super) fn check(values: &[(Key, Value, Origin)]) -> Result<(), ConfigError> {
    for (key, value, origin) in values.iter().filter(|(_, _, origin)| matches!(origin, Origin::Project(_))) {
        let why = match ProjectAccess::of(key) {
            ProjectAccess::Anything | ProjectAccess::EnabledModels => continue,
            ProjectAccess::UserOnly => {
                "a workspace cannot set it: set it in your own file (`subtend config set --user`)".to_owned()
            }
            ProjectAccess::LowerOnly => {
                match numeric_bound(values, key).filter(|bound| value.as_u64().is_none_or(|value| value > *bound)) {
                    Some(bound) => format!("a workspace can only lower it, from {bound}"),
                    None => continue,
                }
            }
        };
        return Err(ConfigError::Conflict { origin: origin.clone(), why: format!("`{key}`: {why}") });
    }
    Ok(())
}

/// Returns the value of `key` in the user's own file, or else its default.
fn numeric_bound(values: &[(Key, Value, Origin)], key: &Key) -> Option<u64> {
    let own = values.iter().rfind(|(of, _, origin)| of == key && matches!(origin, Origin::User(_)));
    let Some((_, value, _)) = own else {
        let whole = serde_json::to_value(Config::default()).ok()?;
        return key.names().iter().try_fold(&whole, |value, name| value.get(name))?.as_u64();
    };
    value.as_u64()
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
            let is_classified = PROJECT_ACCESS.iter().any(|(pattern, ..)| match pattern.strip_suffix('*') {
                Some(above) => name.starts_with(above),
                None => name == *pattern,
            });
            assert!(is_classified, "{name}");
        }
    }

    /// A new limit must be added to one of the lists: a limit of memory or cost must not be raised by a repository.
    #[test]
    fn workspace_raises_no_limit_of_memory_or_cost() {
        let limits = |access| {
            let leaves = Shape::whole().leaves().into_iter().map(|(key, _)| key);
            let of = leaves.filter(|key| key.names().first().is_some_and(|name| name == "limits"));
            of.filter(|key| ProjectAccess::of(key) == access).map(|key| key.names()[1..].join(".")).collect::<Vec<_>>()
        };
        let sorted = |names: &str| {
            let mut names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
            names.sort();
            names
        };
        let mut lower = limits(ProjectAccess::LowerOnly);
        lower.sort();
        assert_eq!(
            lower,
            sorted(
                "argument_bytes calls_per_answer cost_micro inherited_bytes input_bytes live_person_runs live_runs \
                 local_calls notices_bytes queue recorded_bytes result_bytes tokens tool_result_bytes wall_ms"
            )
        );
        // The control: limits of times and counts within a run.
        let mut free = limits(ProjectAccess::Anything);
        free.sort();
        assert_eq!(
            free,
            sorted(
                "ask_ms attempts backoff_ms check_ms compact_at detached_ms first_byte_ms grace_ms max_depth \
                 output_tokens park queue_ms run_ms spawns stall_ms tool_ms turn_ms turns"
            )
        );
    }

    #[test]
    fn workspace_lowers_and_never_raises_live_runs() {
        let load = |own: &str, project: &str| {
            let layers = [(Origin::User("own".into()), own), (Origin::Project("w".into()), project)];
            let layers = layers.map(|(origin, text)| super::super::Layer::file(origin, text).unwrap());
            super::super::Loaded::of(layers).map(|loaded| loaded.config.limits).map_err(|error| error.to_string())
        };
        for (name, default) in [("live_runs", 3), ("live_person_runs", 64), ("queue", 256)] {
            let refused = load("", &format!("limits: {{{name}: {}}}", default + 1)).unwrap_err();
            assert_eq!(refused, format!("w: `limits.{name}`: a workspace can only lower it, from {default}"));
            let own = load(&format!("limits: {{{name}: 2}}"), &format!("limits: {{{name}: 3}}")).unwrap_err();
            assert_eq!(own, format!("w: `limits.{name}`: a workspace can only lower it, from 2"));
        }
        // The control: lower values apply.
        let lowered = load("", "limits: {live_runs: 2, live_person_runs: 5, queue: 7}").unwrap();
        assert_eq!((lowered.live_runs, lowered.live_person_runs, lowered.queue), (2, 5, 7));
    }

    #[test]
    fn guide_contains_the_table_of_rights() {
        let guide = include_str!("../guide/configuration.md");
        for (key, reach, why) in PROJECT_ACCESS {
            let row = format!("| `{key}` | {} | {why} |", reach.words());
            assert!(guide.contains(&row), "{row}");
        }
    }
}
