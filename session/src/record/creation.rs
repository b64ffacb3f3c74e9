use serde::{Deserialize, Serialize};

use crate::authority::Authority;
use crate::ids::{Hash, InputId, Interned, RunNo, Short, Text};
use crate::limits::Limits;
use crate::message::{Message, Transcript};
use crate::place::{Mode, OnRestart, Owner, Place, Source, Worktree};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated {
    pub place: Place,
    pub short: Short,
    pub agent: Text,
    /// Hash of the agent's manifest when the session was created.
    pub agent_hash: Hash,
    /// The model, as named by the host, manifest or parent.
    pub model: Text,
    /// The resolved system prompt. Its body is stored once per distinct value.
    pub system: Interned<str>,
    /// The maximum authority of the session, which never changes.
    pub ceiling: Interned<Authority>,
    pub limits: Interned<Limits>,
    /// Turn allowance of the session's runs, if its agent has one below the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The workspace root, as the host gave it.
    pub workspace: Text,
    /// The worktree that its tools use; the workspace itself if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// True if listings and pickers show the session in a row of its own.
    #[serde(default)]
    pub inspectable: bool,
    /// The effect of a host restart on runs that an input opens.
    #[serde(default)]
    pub on_restart: OnRestart,
    /// True if the prompt contains the line that the caller is an agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub caller_line: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dialects: Vec<Text>,
    /// The offered tools, if not all tools of the host are offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
    /// The tools offered in full. The model reaches the others with `get_tools` and `use_tool`. If absent, all tools are
    /// offered in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_full: Option<Vec<Text>>,
    /// The origin of its calls, which its children inherit.
    #[serde(default, skip_serializing_if = "Source::is_internal")]
    pub source: Source,
    /// True if `return` is offered, because the caller's dialect accepts an explicit result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// True if the result of a run is all its text joined instead of its final answer, as the caller's dialect requires.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
    /// True if a run that does not complete is rolled back at its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls_back: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Text>,
    /// True if the host opened it as a task without a parent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub task: bool,
    /// The messages that a branch inherited when it was created. Empty for other sessions.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub inherited: Transcript,
    /// The host's metadata as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Text>,
    /// Servers to call instead of the providers' own: `URL`, or `PROVIDER=URL`. Only on the root of a tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Text>,
    /// An additional bound of an imported session's authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Authority>,
}

impl SessionCreated {
    /// Returns the bytes that the inherited messages take in JSON.
    pub fn inherited_bytes(&self) -> u64 {
        self.inherited.iter().map(Message::json_bytes).fold(0, u64::saturating_add)
    }
}

fn is_empty(transcript: &Transcript) -> bool {
    transcript.is_empty()
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOpened {
    pub run: RunNo,
    pub owner: Owner,
    /// The inputs that opened the run. They leave the queue, so that only later inputs can open the next run.
    pub inputs: Vec<InputId>,
    pub mode: Mode,
    pub max_turns: u32,
    /// Number of turns that earlier runs of the session answered. Shown iteration counts include them.
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
