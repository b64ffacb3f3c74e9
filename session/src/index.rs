//! Index rows: a pure function of the records. With them, listing, boot and delivery do not fold journals.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Epoch, Hash, Lsn, RunNo, Seq, SessionId, Short, Text};
use crate::outcome::OutcomeKind;
use crate::place::{BranchKind, OnRestart, Owner};
use crate::state::Phase;

pub use changes::{Before, Stamp, changes, creation, defs, head, inflight, rows};
pub use outbox_rows::{
    cancel_by, continue_from, continue_input, message_input, notice_from, refusal_from, unreadable_from,
};
pub use surviving_runs::surviving_runs;

mod changes;
mod outbox_rows;
mod surviving_runs;

/// One row per session, for listings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub parent: Option<SessionId>,
    pub root: SessionId,
    pub short: Short,
    pub agent: Text,
    /// Subagent edges from the root.
    pub depth: u32,
    /// True if listings show the session in a row of its own.
    pub inspectable: bool,
    pub last_seq: Seq,
    /// The activation that wrote the row.
    pub epoch: Epoch,
    pub state: Phase,
    /// The kind of branch. A root has a kind only if it is a task of the host.
    #[serde(default)]
    pub kind: Option<BranchKind>,
    #[serde(default)]
    pub closed: bool,
    #[serde(default)]
    pub deleted: bool,
    /// True if the row came with an export as that of a deleted session, so that no command of this store created it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub imported: bool,
    pub last_outcome: Option<OutcomeKind>,
    /// The title, or the start of the first input; one line.
    #[serde(deserialize_with = "crate::title::read")]
    pub title: Text,
    /// Wall-clock time of the creation in milliseconds since the epoch; informative.
    pub created_ms: i64,
    /// Wall-clock time of the last change; informative.
    pub updated_ms: i64,
}

impl Head {
    /// Returns whether the session is erased, so that only this row remains.
    pub fn is_erased(&self) -> bool {
        self.deleted && self.last_seq == Seq(0)
    }

    /// Returns the row that remains after erasure: the position in the tree, without text.
    #[must_use]
    pub fn erased(&self) -> Self {
        // Lists every field, so that the author of a new one must decide whether erasure clears it.
        Self {
            parent: self.parent,
            root: self.root,
            short: self.short.clone(),
            agent: Text::default(),
            depth: self.depth,
            inspectable: self.inspectable,
            last_seq: Seq(0),
            epoch: self.epoch,
            state: Phase::Quiet,
            kind: self.kind,
            closed: self.closed,
            deleted: true,
            imported: self.imported,
            last_outcome: None,
            title: Text::default(),
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
        }
    }
}

/// One row per session with a run in flight, for the boot scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inflight {
    pub run: RunNo,
    pub state: Phase,
    pub owner: Owner,
    pub root: SessionId,
    /// Subagent edges from the root: the sweep starts with the deepest.
    pub depth: u32,
    /// The LSN of `RunOpened`: the position in the queue. 0 until the journal assigns it.
    pub opened_lsn: Lsn,
    pub deadline_left_ms: Option<u64>,
    pub wall_cap_at: Option<i64>,
    pub on_restart: OnRestart,
    pub epoch: Epoch,
    /// Number of activation starts since the last durable record.
    pub starts: u32,
    /// Reset time of the provider's limit that the run waits for, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<i64>,
}

/// The obligation of an outbox row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Notify an owner or parent of the end of a run.
    Notice,
    /// Continue with a new run.
    Continue,
    /// Cancel an owned run.
    Cancel,
    Ask,
    Answer,
}

/// The key that distinguishes rows with the same receiver, sender and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKey {
    Call(CallId),
    Run(RunNo),
}

/// An obligation between sessions: inserted by the sender's batch, deleted by the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Row {
    /// The session that must fulfil it.
    pub to: SessionId,
    pub from: SessionId,
    pub kind: RowKind,
    pub key: RowKey,
}

/// Changes of the index by a frame of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The head after the frame; `None` leaves it unchanged.
    pub head: Option<Box<Head>>,
    pub inflight: InflightChange,
    /// The parent, if the frame creates the session: a `kid` row.
    pub child_of: Option<SessionId>,
    /// Obligations that the frame adds, at the frame's LSN.
    pub put: Vec<Row>,
    /// Obligations that the frame fulfils. A missing row was fulfilled before.
    pub take: Vec<Row>,
    /// Bodies that the frame's records contain for the first time, as JSON: `def` rows.
    pub defs: Vec<(Hash, Text)>,
}

/// The change of the boot-scan row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InflightChange {
    #[default]
    Keep,
    Put(Box<Inflight>),
    /// No run is in flight.
    Delete,
}
