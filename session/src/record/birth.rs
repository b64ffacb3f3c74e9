//! Births of sessions and runs.

use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::ids::{Hash, InputId, Interned, RunNo, Short, Text};
use crate::limits::Limits;
use crate::message::Transcript;
use crate::place::{Mode, OnRestart, Owner, Place, Source, Worktree};

/// The birth of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated {
    pub place: Place,
    pub short: Short,
    pub agent: Text,
    /// Hash of the agent's manifest at birth.
    pub agent_hash: Hash,
    /// The model, as named by host, manifest or parent.
    pub model: Text,
    /// The resolved system prompt; its body is stored once per distinct value.
    pub system: Interned<str>,
    /// The maximum authority of the session, for life.
    pub ceiling: Interned<Authority>,
    pub limits: Interned<Limits>,
    /// The workspace root, as the host gave it.
    pub workspace: Text,
    /// The worktree that its tools work in; the workspace itself if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// Whether listings and pickers show it as its own row.
    #[serde(default)]
    pub inspectable: bool,
    /// The effect of a host restart on runs that an input opens.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// Whether the prompt has the `caller` line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub caller_line: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dialects: Vec<Text>,
    /// The offered tools, if fewer than the host has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// The tools offered in full; `get_tools` and `use_tool` reach the others. All if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_full: Option<Vec<Text>>,
    /// The origin of its calls, which its children inherit.
    #[serde(default, skip_serializing_if = "Source::is_internal")]
    pub source: Source,
    /// Whether it is offered `return`: its caller's dialect accepts an explicit result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// Whether the result of a run is all its text joined rather than its final answer, as its caller's dialect
    /// requires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
    /// Whether a run that does not complete is rolled back at its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls_back: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// Whether the host opened it as a task without a parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub task: bool,
    /// The messages that a branch inherits, as they were when it was created. Empty for others.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub inherited: Transcript,
    /// The host's metadata; JSON text, `{}` if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// Servers that replace the providers' own: `URL`, or `PROVIDER=URL`. Only on the root of a tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Text>,
    /// The bound of an imported session's authority, besides its ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Authority>,
}

fn is_empty(transcript: &Transcript) -> bool {
    transcript.is_empty()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOpened {
    pub run: RunNo,
    pub owner: Owner,
    /// The inputs that opened it: consumed, so that only later ones can open the next run.
    pub inputs: Vec<InputId>,
    pub mode: Mode,
    pub max_turns: u32,
    /// Turns answered by earlier runs of the session: the base of an iteration count.
    #[serde(default)]
    pub base_turns: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Wall-clock cap, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_cap_at: Option<i64>,
    #[serde(default)]
    pub on_restart: OnRestart,
    pub slot: bool,
}
