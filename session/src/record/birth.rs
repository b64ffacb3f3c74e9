//! Births of sessions and runs.

use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::ids::{Hash, InputId, Interned, RunNo, Short, Text};
use crate::limits::Limits;
use crate::message::Transcript;
use crate::place::{Mode, OnRestart, Owner, Place, Source};

/// The birth of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated {
    /// Where it stands.
    pub place: Place,
    /// Its short name, unique among its siblings.
    pub short: Short,
    /// The agent's name.
    pub agent: Text,
    /// Hash of the agent's manifest at birth.
    pub agent_hash: Hash,
    /// The model, as named by host, manifest or parent.
    pub model: Text,
    /// The resolved system prompt (B17); its body travels once per distinct value.
    pub system: Interned<str>,
    /// What the session may do at most, for life (P-4).
    pub ceiling: Interned<Authority>,
    /// Its limits.
    pub limits: Interned<Limits>,
    /// The workspace root, as the host gave it.
    pub workspace: Text,
    /// Whether listings and pickers show it as a row of its own.
    #[serde(default)]
    pub inspectable: bool,
    /// What a restart of the host does with runs that an input opens.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// Whether the prompt has the `caller` line (G10).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub caller_line: bool,
    /// The dialects that it is offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dialects: Vec<Text>,
    /// The tools that it is offered, if fewer than the host has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// The tools that it is shown in full, where it finds the others by `get_tools` and calls them by `use_tool` (B8). Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_full: Option<Vec<Text>>,
    /// Where its calls come from (B10); what it starts has the same.
    #[serde(default, skip_serializing_if = "Source::is_internal")]
    pub source: Source,
    /// Whether it is offered `return`: its caller's dialect lets it end by an explicit result (M4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// Whether the result of a run is all text that it sent, joined, rather than its final answer: its caller's dialect reads it
    /// so (S7, K12).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
    /// Whether what a run said is rolled back with its end where it did not complete (M10).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls_back: bool,
    /// A title, where one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// Whether the host opened it as a task without a parent (R1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub task: bool,
    /// What a branch inherits: the messages up to its branch point as they stood when it was made (B2). Empty for others.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub inherited: Transcript,
    /// What the host attached; JSON text, `{}` if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// Servers that its models are called at instead of the providers' own: `URL`, or `PROVIDER=URL`. On the root of a tree alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Text>,
    /// Where an import brought it: what it may do at most besides its ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Authority>,
}

fn is_empty(transcript: &Transcript) -> bool {
    transcript.is_empty()
}

/// The birth of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOpened {
    /// The run.
    pub run: RunNo,
    /// Who owns it.
    pub owner: Owner,
    /// The inputs that it was opened with: consumed by it, so that only later ones can open the next run.
    pub inputs: Vec<InputId>,
    /// Whether its owner's call waits for it.
    pub mode: Mode,
    /// Turn allowance.
    pub max_turns: u32,
    /// Turns that earlier runs of the session answered: what a count of iterations starts from (B6).
    #[serde(default)]
    pub base_turns: u32,
    /// Working-time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Wall-clock cap, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_cap_at: Option<i64>,
    /// What a restart of the host does with it.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// Whether it needs a slot to work.
    pub slot: bool,
}
