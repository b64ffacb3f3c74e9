//! Index rows: a pure function of the records, kept by the journal beside them so that listing, boot and delivery need no fold.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, Epoch, Hash, Lsn, RunNo, Seq, SessionId, Short, Text};
use crate::outcome::OutcomeKind;
use crate::place::{BranchKind, OnRestart, Owner};
use crate::state::Phase;

pub use changes::{Before, Stamp, born, changes, defs, head, inflight, rows};
pub use obliged::{cancel_by, continue_from, continue_input, notice_from, refusal_from, unreadable_from};

mod changes;
mod obliged;

/// One row per session: what listings show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its parent.
    pub parent: Option<SessionId>,
    /// The root of its tree.
    pub root: SessionId,
    /// Its short name.
    pub short: Short,
    /// Its agent.
    pub agent: Text,
    /// Subagent edges from the root.
    pub depth: u32,
    /// Whether listings show it as a row of its own.
    pub inspectable: bool,
    /// The last record.
    pub last_seq: Seq,
    /// The activation that wrote it.
    pub epoch: Epoch,
    /// Where its run stands.
    pub state: Phase,
    /// What kind of branch it is; of a root only where it is a task of the host.
    #[serde(default)]
    pub kind: Option<BranchKind>,
    /// Whether it is closed.
    #[serde(default)]
    pub closed: bool,
    /// Whether it is deleted: in no listing.
    #[serde(default)]
    pub deleted: bool,
    /// How its last run ended.
    pub last_outcome: Option<OutcomeKind>,
    /// The title, or the start of the first input; one line.
    #[serde(deserialize_with = "crate::title::read")]
    pub title: Text,
    /// Wall clock of the birth, milliseconds since the epoch; informative.
    pub created_ms: i64,
    /// Wall clock of the last change; informative.
    pub updated_ms: i64,
}

impl Head {
    /// Whether the session is erased: its records are gone from the store, and this row is all that remains of it.
    pub fn is_erased(&self) -> bool {
        self.deleted && self.last_seq == Seq(0)
    }

    /// Returns the row that remains of a session when it is erased: its place, and no text.
    #[must_use]
    pub fn erased(&self) -> Self {
        // Each field by its name: whoever adds one decides whether it is text.
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
            last_outcome: None,
            title: Text::default(),
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
        }
    }
}

/// One row per session with a run in flight: the boot scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inflight {
    /// The run.
    pub run: RunNo,
    /// Where it stands.
    pub state: Phase,
    /// Its owner.
    pub owner: Owner,
    /// The root of its tree.
    pub root: SessionId,
    /// Subagent edges from the root: the sweep goes deepest first.
    pub depth: u32,
    /// The LSN of its `RunOpened`; its place in the queue. 0 until the journal has given it.
    pub opened_lsn: Lsn,
    /// What is left of its working time.
    pub deadline_left_ms: Option<u64>,
    /// Its wall-clock cap.
    pub wall_cap_at: Option<i64>,
    /// What a restart of the host does with it.
    pub on_restart: OnRestart,
    /// The activation that wrote the row.
    pub epoch: Epoch,
    /// Starts of an activation since the last durable record (V-3).
    pub starts: u32,
}

/// What an outbox row obliges to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Tell an owner (or parent) of an end.
    Notice,
    /// Go on with a new run.
    Continue,
    /// Cancel an owned run.
    Cancel,
    /// Ask for a person's word.
    Ask,
    /// Give a person's word.
    Answer,
}

/// What tells rows of one (to, from, kind) apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKey {
    /// The owner's call that opened the run.
    Call(CallId),
    /// The run, where the receiver does not own it.
    Run(RunNo),
}

/// An obligation of one session to another: inserted by the sender's batch, deleted by the receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Row {
    /// Who is obliged to take it.
    pub to: SessionId,
    /// Who sent it.
    pub from: SessionId,
    /// What it obliges to.
    pub kind: RowKind,
    /// What tells it apart.
    pub key: RowKey,
}

/// What a frame of one session changes in the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The session's head after the frame; `None` leaves it as it is.
    pub head: Option<Box<Head>>,
    /// The session's row of the boot scan after the frame.
    pub inflight: InflightChange,
    /// Whether the frame is the session's birth below this parent: a `kid` row.
    pub kid_of: Option<SessionId>,
    /// Obligations that the frame's records make; their LSN is that of the frame.
    pub put: Vec<Row>,
    /// Obligations that the frame's records take. A row that is not there was taken before.
    pub take: Vec<Row>,
    /// Bodies that the frame's records carry for the first time: `def` rows. Body is JSON.
    pub defs: Vec<(Hash, Text)>,
}

/// What happens to the session's row of the boot scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum InflightChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is written.
    Put(Box<Inflight>),
    /// It is deleted: no run is in flight.
    Delete,
}
