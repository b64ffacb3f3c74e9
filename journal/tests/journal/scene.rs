//! A small valid tree: a root starts a child, the child answers, the root receives its notice.

pub(crate) use std::io::{BufReader, Cursor};
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::{Command, Stdio};
pub(crate) use std::sync::Arc;

pub(crate) use serde_json::{Value, json};
pub(crate) use subtend_journal::blobs::Blobs;
pub(crate) use subtend_journal::engine::Engine;
pub(crate) use subtend_journal::faulty::Faulty;
pub(crate) use subtend_journal::memory::Memory;
pub(crate) use subtend_journal::{
    AppendError, Batch, Frame, ImportBounds, Journal, OpenError, Options, ReadError, Scope, StoreSpec, Stored,
    open_store, open_store_to_read,
};
pub(crate) use subtend_session::ids::{CallId, Hash, Lsn, Seq, SessionId, TurnNo};
pub(crate) use subtend_session::index::Row;
pub(crate) use subtend_session::record::Record;

use subtend_session::authority::Authority;
use subtend_session::effect::NewSession;
use subtend_session::ids::{Epoch, Interned};
use subtend_session::index::{self, Changes, InflightChange, Stamp};
use subtend_session::limits::Limits;
use subtend_session::state::State;
use uuid::Uuid;

pub(crate) const AT_MS: i64 = 1_700_000_000_000;

pub(crate) fn id(n: u128) -> SessionId {
    SessionId(Uuid::from_u128(n))
}

pub(crate) fn problems(journal: &Journal) -> Vec<String> {
    journal.verify(&mut |_| {}).unwrap().problems.iter().map(ToString::to_string).collect()
}

/// Parses a record from JSON, so that tests need no change for a new field with a default.
pub(crate) fn record(json: Value) -> Record {
    serde_json::from_value(json).unwrap()
}

/// Builds the frames of one session, as its activation would.
#[derive(Clone, Debug)]
pub(crate) struct SessionWriter {
    pub(crate) id: SessionId,
    pub(crate) epoch: Epoch,
    pub(crate) records: Vec<Record>,
    pub(crate) opened_lsn: Lsn,
}

impl SessionWriter {
    pub(crate) fn new(id: SessionId) -> Self {
        Self { id, epoch: Epoch(1), records: Vec::new(), opened_lsn: Lsn(0) }
    }

    pub(crate) fn state(&self) -> State {
        State::fold(self.id, &self.records).unwrap()
    }

    fn stamp(&self) -> Stamp {
        Stamp { epoch: self.epoch, starts: 0, opened_lsn: self.opened_lsn, created_ms: AT_MS, updated_ms: AT_MS }
    }

    /// Returns the next frame with its rows.
    pub(crate) fn frame_of(&mut self, records: Vec<Record>) -> Frame {
        let first_seq = Seq(self.records.len() as u64 + 1);
        let changes = if self.records.is_empty() {
            self.records.clone_from(&records);
            index::creation(&NewSession { session: self.id, records: records.clone() }, self.stamp())
        } else {
            let before = index::Before::of(&self.state());
            self.records.extend(records.iter().cloned());
            index::changes(&before, &self.state(), &records, self.stamp())
        };
        Frame { session: self.id, first_seq, epoch: self.epoch, at_ms: AT_MS, records, changes }
    }

    /// Returns the frame of one more input.
    pub(crate) fn input_frame(&mut self) -> Frame {
        let n = self.records.len() as u128 + 1;
        self.frame_of(vec![record(json!({"input_accepted": {
            "id": Uuid::from_u128(self.id.0.as_u128() << 32 | n), "from": "person", "lane": "send", "text": "continue",
            "as_owner": "person",
        }}))])
    }

    /// Returns a frame without records, which an activation writes before its first effect.
    pub(crate) fn rows(&self) -> Frame {
        let row = index::inflight(&self.state(), self.opened_lsn, self.epoch, 1);
        let inflight = row.map_or(InflightChange::Keep, |row| InflightChange::Put(Box::new(row)));
        let changes = Changes { inflight, ..Changes::default() };
        let first_seq = Seq(self.records.len() as u64 + 1);
        Frame { session: self.id, first_seq, epoch: self.epoch, at_ms: AT_MS, records: vec![], changes }
    }
}

pub(crate) fn one(frame: Frame) -> Batch {
    Batch { frames: vec![frame] }
}

/// Returns the first records of a session with one open run: of a root, or of a child by call 1.0 of `parent`.
pub(crate) fn creation(id: SessionId, parent: Option<SessionId>) -> Vec<Record> {
    let authority: Authority = serde_json::from_str("[]").unwrap();
    let call = json!({"turn": 1, "ix": 0});
    let (place, owner, from) = match parent {
        None => (json!("root"), json!("person"), json!("person")),
        Some(parent) => (
            json!({"child": {
                "parent": parent, "root": parent, "kind": "subagent", "call": call, "depth": 1,
                "user_msg": {"session": parent, "seq": 2},
            }}),
            json!({"run": {"session": parent, "run": 1, "call": call}}),
            json!({"model": {"session": parent, "run": 1, "call": call}}),
        ),
    };
    let created = record(json!({"session_created": {
        "place": place, "short": id.short(), "agent": "explore", "agent_hash": Hash([7; 16]), "model": "scripted",
        "system": Interned::<str>::new(Arc::from("be brief")).unwrap(),
        "ceiling": Interned::new(Arc::new(authority)).unwrap(),
        "limits": Interned::new(Arc::new(Limits::default())).unwrap(),
        "workspace": ".", "inspectable": true,
    }}));
    let accepted = record(json!({"input_accepted": {
        "id": id.0, "from": from, "lane": "send", "text": "look around", "as_owner": owner,
    }}));
    let opened = record(json!({"run_opened": {
        "run": 1, "owner": owner, "inputs": [id.0], "mode": "blocking", "max_turns": 9, "slot": false,
    }}));
    vec![created, accepted, opened]
}

/// Returns the first frame of a session, with bodies if `defines`.
pub(crate) fn created_session(writer: &mut SessionWriter, parent: Option<SessionId>, defines: bool) -> Frame {
    let mut frame = writer.frame_of(creation(writer.id, parent));
    if defines && let Some(Record::SessionCreated(created)) = frame.records.first() {
        frame.changes.defs = index::defs(created).unwrap();
    }
    frame
}

/// Returns the records of a run that starts and calls its model.
pub(crate) fn start(id: SessionId) -> Vec<Record> {
    vec![
        record(json!({"run_started": {"run": 1, "slot": false}})),
        record(json!({"inputs_taken": {"ids": [id.0], "run": 1, "turn": 1}})),
        record(json!({"turn_started": {"run": 1, "turn": 1, "attempt": 1, "prompt": "plain", "model": "scripted"}})),
    ]
}

fn turn_answered(text: Option<&str>, calls: Value) -> Record {
    let stop = if text.is_some() { "end" } else { "calls" };
    record(json!({"turn_answered": {
        "run": 1, "turn": 1, "attempt": 1, "text": text, "calls": calls, "stop": stop, "usage": {}, "worked_ms": 3,
    }}))
}

pub(crate) struct Family {
    pub(crate) root: SessionWriter,
    pub(crate) child: SessionWriter,
}

/// Appends the records of two sessions from `n` on, up to the child's end; the notice is in the outbox.
pub(crate) fn family(journal: &Journal, n: u128, defines: bool) -> Family {
    let (mut root, mut child) = (SessionWriter::new(id(n)), SessionWriter::new(id(n + 1)));
    let frame = created_session(&mut root, None, defines);
    root.opened_lsn = journal.append(one(frame)).unwrap().last;
    journal.append(one(root.frame_of(start(root.id)))).unwrap();
    let calls = json!([{"provider_id": "c0", "tool": "task", "args": "{}"}]);
    journal.append(one(root.frame_of(vec![turn_answered(None, calls)]))).unwrap();
    let call = json!({"turn": 1, "ix": 0});
    let spawned = root.frame_of(vec![
        record(json!({"call_started": {"call": call, "kind": {"child": "blocking"}}})),
        record(json!({"child_spawned": {
            "call": call, "child": child.id, "short": child.id.short(), "agent": "explore", "mode": "blocking",
            "depth": 1, "grant": {"spawns_left": 9},
        }})),
    ]);
    let creation = created_session(&mut child, Some(root.id), false);
    child.opened_lsn = journal.append(Batch { frames: vec![spawned, creation] }).unwrap().last;
    journal.append(one(child.frame_of(start(child.id)))).unwrap();
    let ended = child.frame_of(vec![
        turn_answered(Some("done"), json!([])),
        record(json!({"run_ended": {
            "run": 1, "outcome": "completed", "result": 7, "text": "done", "len": 4, "hash": Hash::of(b"done"),
            "turns": 1, "usage_self": {}, "usage_owned": {}, "worked_ms": 3,
        }})),
    ]);
    journal.append(one(ended)).unwrap();
    Family { root, child }
}

impl Family {
    /// Returns the root's next frame, which receives the notice.
    pub(crate) fn taken(&mut self) -> Frame {
        let taken = record(json!({"notice_taken": {
            "items": [{
                "child": self.child.id, "run": 1, "key": {"turn": 1, "ix": 0}, "outcome": "completed", "len": 4,
                "hash": Hash::of(b"done"), "prefix": "done", "usage": {}, "turns": 1, "waking": false,
            }],
            "carrier": "result",
        }}));
        self.root.frame_of(vec![taken])
    }
}
