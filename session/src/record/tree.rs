//! Children and their ends.

use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::ids::{CallId, Hash, RunNo, Seq, SessionId, Short, Text};
use crate::index::RowKey;
use crate::outcome::{By, ContinueRefusal, Outcome};
use crate::place::{BranchKind, Mode};
use crate::usage::Usage;

/// A child and its first run, in the parent's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSpawned {
    /// The call that created it: the key of the owned run.
    pub call: CallId,
    pub child: SessionId,
    pub short: Short,
    pub agent: Text,
    pub mode: Mode,
    /// Whether the run is detached: this run does not own it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// The dialect whose call created it: its ends are rendered in that dialect.
    #[serde(default, skip_serializing_if = "Dialect::is_task")]
    pub dialect: Dialect,
    /// The call's name for it; bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Text>,
    /// Requested tools that the child is not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// Whether people see its session as their own: the model then receives its full id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inspectable: bool,
    pub depth: u32,
    pub grant: SpawnGranted,
}

/// The ledger's grant of a spawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnGranted {
    /// Spawns that remain for the root run after this one.
    pub spawns_left: u32,
}

/// The continuation of an ended child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueAsked {
    /// The call that asks: the key of the owned run.
    pub call: CallId,
    pub child: SessionId,
    pub input: Text,
    pub mode: Mode,
    /// Turn allowance, if the call names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The tools offered from here on, if the call changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
}

/// A branch that a person or the host created: a child without a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchCreated {
    pub child: SessionId,
    pub short: Short,
    pub agent: Text,
    pub kind: BranchKind,
    /// The branch point; for an alternative, the original answer. A record of this session.
    pub at: Seq,
    pub by: By,
}

/// Ends of owned runs, taken together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeTaken {
    /// The ends, in the order of their rows.
    pub items: Vec<Notice>,
    pub carrier: Carrier,
}

/// How taken ends reach the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// As the result of the blocking call that the one item names.
    Result,
    /// As one synthetic message.
    Message,
    /// As the result of an await or check call.
    Await { call: CallId },
}

/// The end of an owned, persons' or detached run of a child, as the receiver gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub child: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNo>,
    /// The owner's call. Absent for a run that the receiver does not own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CallId>,
    /// Why the child refused to continue: no run was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ContinueRefusal>,
    pub outcome: Outcome,
    pub len: u64,
    pub hash: Hash,
    /// The bounded prefix. Empty if the receiver does not use it: only the child's journal has the text.
    #[serde(default)]
    pub prefix: Text,
    /// The usage of the run and of all that it owned.
    pub usage: Usage,
    #[serde(default)]
    pub turns: u32,
    /// Turns of earlier runs of the child: the base of an iteration count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_turns: u32,
    pub waking: bool,
    /// Whether a `return` call gave an explicit result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference to what it asks")]
fn is_zero(turns: &u32) -> bool {
    *turns == 0
}

impl Notice {
    /// Returns the key of its outbox row; `None` if it names neither a call nor a run.
    pub fn row_key(&self) -> Option<RowKey> {
        self.key.map(RowKey::Call).or(self.run.map(RowKey::Run))
    }

    /// Returns whether it names `outcome`, with or without its free text.
    pub fn tells(&self, outcome: &Outcome) -> bool {
        let bare = || self.key.is_none() && self.prefix.is_empty() && self.outcome == outcome.clone().without_text();
        self.outcome == *outcome || bare()
    }

    /// Returns the notice without the child's text; length and hash remain.
    #[must_use]
    pub(crate) fn without_text(self) -> Self {
        Self { prefix: Text::default(), outcome: self.outcome.without_text(), ..self }
    }
}
