//! Children and what is heard of them.

use serde::{Deserialize, Serialize};

use crate::dialect::Dialect;
use crate::ids::{CallId, Hash, RunNo, Seq, SessionId, Short, Text};
use crate::index::RowKey;
use crate::outcome::{By, ContinueRefusal, Outcome};
use crate::place::{BranchKind, Mode};
use crate::usage::Usage;

/// A child and its first run, as the parent's journal knows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildSpawned {
    /// The call that made it: the key of the owned run.
    pub call: CallId,
    /// The child.
    pub child: SessionId,
    /// Its short name.
    pub short: Short,
    /// Its agent.
    pub agent: Text,
    /// Whether the call waits.
    pub mode: Mode,
    /// Whether the run is detached: not owned by this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached: bool,
    /// The dialect whose call made it: it is told of in its words.
    #[serde(default, skip_serializing_if = "Dialect::is_task")]
    pub dialect: Dialect,
    /// What it is called in the words of the call, where that gives it a name; bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Text>,
    /// Tools that the call wanted described to it and that it is not offered: they were left out (B8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Text>,
    /// What was left out of its prompt, and why: a bootstrap file that is missing, say (S3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// Whether people are shown its session as one of its own: then its full id is told too (K9).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inspectable: bool,
    /// Its depth.
    pub depth: u32,
    /// What the ledger granted.
    pub grant: SpawnGranted,
}

/// What the ledger granted for a spawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnGranted {
    /// Spawns of the root run that remain after this one.
    pub spawns_left: u32,
}

/// An ended child is asked to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContinueAsked {
    /// The call that asks: the key of the owned run.
    pub call: CallId,
    /// The child.
    pub child: SessionId,
    /// The input.
    pub input: Text,
    /// Whether the call waits.
    pub mode: Mode,
    /// Turn allowance, where the call names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u32>,
    /// The tools that the child is offered from here on, where the call says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Text>>,
}

/// A branch that a person or the host made: a child without a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchCreated {
    /// The child.
    pub child: SessionId,
    /// Its short name.
    pub short: Short,
    /// Its agent.
    pub agent: Text,
    /// Its kind.
    pub kind: BranchKind,
    /// The message that it hangs on; of an alternative, the answer that it is one of. A record of this session.
    pub at: Seq,
    /// On whose word.
    pub by: By,
}

/// Ends of owned runs, taken together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeTaken {
    /// The ends, in the order of their rows.
    pub items: Vec<Notice>,
    /// How they reach the model.
    pub carrier: Carrier,
}

/// How taken ends reach the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// As the result of the blocking call whose key the one item names.
    Result,
    /// As one synthetic message.
    Message,
    /// As the result of an await or check call.
    Await {
        /// The call.
        call: CallId,
    },
}

/// The end of one owned run (or of a person's or detached run of a child), as its owner's session hears of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The child.
    pub child: SessionId,
    /// Its run; absent when it refused to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunNo>,
    /// The key: the owner's call. Absent for a run that the receiver does not own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<CallId>,
    /// Why it refused to go on, if it did: then no run was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<ContinueRefusal>,
    /// The outcome.
    pub outcome: Outcome,
    /// Bytes of the whole text.
    pub len: u64,
    /// Hash of the whole text.
    pub hash: Hash,
    /// The bounded prefix of it (N-2). Empty where the receiver has no use for it: then only the child's journal has the text.
    #[serde(default)]
    pub prefix: Text,
    /// What the run and all that it owned cost.
    pub usage: Usage,
    /// Answered turns.
    #[serde(default)]
    pub turns: u32,
    /// Turns that earlier runs of the child answered: a count of iterations goes on from there (B6).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_turns: u32,
    /// Whether it wakes a run at rest.
    pub waking: bool,
    /// Whether the run ended by a `return` call: its text is an explicit result (M4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference to what it asks")]
fn is_zero(turns: &u32) -> bool {
    *turns == 0
}

impl Notice {
    /// What tells its outbox row apart; `None` for one that names neither a call nor a run.
    pub fn row_key(&self) -> Option<RowKey> {
        self.key.map(RowKey::Call).or(self.run.map(RowKey::Run))
    }

    /// Whether it names `outcome` as the end: whole, or without its free text where the receiver has no use for that.
    pub fn tells(&self, outcome: &Outcome) -> bool {
        let bare = || self.key.is_none() && self.prefix.is_empty() && self.outcome == outcome.clone().without_text();
        self.outcome == *outcome || bare()
    }

    /// Returns the notice without the child's text; length and hash still say what that was.
    #[must_use]
    pub(crate) fn without_text(self) -> Self {
        Self { prefix: Text::default(), outcome: self.outcome.without_text(), ..self }
    }
}
