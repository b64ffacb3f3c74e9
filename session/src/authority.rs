//! Authority: what a session may do, combined only by meet.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Text;

/// What may be done with one resource; the order is the lattice: `Deny < Ask < Allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Never.
    Deny,
    /// With a person's word.
    Ask,
    /// Yes.
    Allow,
}

/// One rule: an action pattern, a resource pattern, a verdict.
///
/// Actions are words such as `fs.read`, `shell.run`, `task:explore`, `mcp:server:tool`; `*` stands for any run of characters.
/// Resources of `fs.*` are paths relative to the workspace, with `/` between parts and no leading `/`; the workspace itself is `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// Pattern of actions.
    pub action: Text,
    /// Pattern of resources.
    #[serde(default = "any", skip_serializing_if = "is_any")]
    pub resource: Text,
    /// The verdict.
    pub verdict: Verdict,
}

fn any() -> Text {
    "*".into()
}

fn is_any(pattern: &Text) -> bool {
    &**pattern == "*"
}

/// Rules of one source (host, manifest, request): the most specific pattern wins, ties take the lower verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleSet {
    /// What holds where no rule matches.
    pub default: Verdict,
    /// The rules; their order means nothing (P-3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// What a session may do: the meet of its rule sets, which is the least of their verdicts at each point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authority {
    /// Sorted and without repeats, so that equal authorities are equal values.
    sets: Vec<Arc<RuleSet>>,
}

/// What a call is about to do, put to an authority.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The action.
    pub action: Text,
    /// The resource.
    pub resource: Text,
}
