use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::ids::{CallId, Hash, RunNo, Seq, SessionId, Short, Text};
use crate::index::RowKey;
use crate::outcome::{ContinueRefusal, Initiator, Outcome};
use crate::place::{BranchKind, Mode};
use crate::usage::Usage;

/// A child and its first run, in the parent's journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSpawned {
    /// The call that created the child: the key of the owned run.
    pub call: CallId,
    pub child: SessionId,
    pub short: Short,
    pub agent: Text,
    pub mode: Mode,
    /// True if the child's run is detached and not owned by this session's run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// The dialect of the call that created the child. The child's ends are rendered in it.
    #[serde(default, skip_serializing_if = "Dialect::is_task")]
    pub dialect: Dialect,
    /// The name that the call gives the child; bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Text>,
    /// Requested tools that the child is not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// Bytes of the texts in the child's first records. 0 in older journals.
    #[serde(default, skip_serializing_if = "crate::usage::is_zero")]
    pub bytes: u64,
    /// True if listings show the session in a row of its own. The model then receives its full id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inspectable: bool,
    pub depth: u32,
    pub grant: SpawnGranted,
}

/// A granted spawn, counted in the root run's budget of spawns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnGranted {
    /// Number of spawns that the root run has left after this one.
    pub spawns_left: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueAsked {
    /// The call that continues the child: the key of the owned run.
    pub call: CallId,
    pub child: SessionId,
    pub input: Text,
    pub mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
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
    pub by: Initiator,
}

/// Ends of owned runs that the model receives in one message or result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeTaken {
    /// The ends, in the order of their rows.
    pub items: Vec<Notice>,
    pub carrier: Carrier,
}

/// The form in which the model receives the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// The result of the blocking call that the single item names.
    Result,
    /// One synthetic message.
    Message,
    /// The result of an await or check call.
    Await { call: CallId },
}

/// The end of a child's run, as its receiver gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub child: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNo>,
    /// The owner's call. Absent for a run that the receiver does not own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CallId>,
    /// The reason why the child refused to continue, in which case no run was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ContinueRefusal>,
    pub outcome: Outcome,
    /// Bytes of the whole text.
    pub len: u64,
    pub hash: Hash,
    /// The start of the text, bounded. Empty if the receiver does not use it; the child's journal has the whole text.
    #[serde(default)]
    pub prefix: Text,
    /// The usage of the run and of all runs that it owned.
    pub usage: Usage,
    #[serde(default)]
    pub turns: u32,
    /// Number of turns of earlier runs of the child. Shown iteration counts include them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_turns: u32,
    /// True if the end wakes its owner, so that a turn starts for it.
    pub waking: bool,
    /// True if a `return` call gave an explicit result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(turns: &u32) -> bool {
    *turns == 0
}

impl Notice {
    /// Returns the key of the notice's outbox row; `None` if the notice names neither a call nor a run.
    pub fn row_key(&self) -> Option<RowKey> {
        self.key.map(RowKey::Call).or(self.run.map(RowKey::Run))
    }

    /// Returns whether the notice has `outcome`, with or without the free text.
    pub fn has_outcome(&self, outcome: &Outcome) -> bool {
        let without_text =
            || self.key.is_none() && self.prefix.is_empty() && self.outcome == outcome.clone().without_text();
        self.outcome == *outcome || without_text()
    }

    /// Returns the notice without the child's text; length and hash remain.
    #[must_use]
    pub(crate) fn without_text(self) -> Self {
        Self { prefix: Text::default(), outcome: self.outcome.without_text(), ..self }
    }
}
