//! Load: sessions with inputs of about a kilobyte that compress badly. Each frame rewrites the session's head, as real frames do.

use std::sync::Arc;

use serde_json::{Value, json};
use subtend_journal::{Batch, Frame};
use subtend_session::authority::Authority;
use subtend_session::effect::NewSession;
use subtend_session::ids::{Epoch, Hash, Interned, Lsn, Seq, SessionId};
use subtend_session::index::{self, Stamp};
use subtend_session::limits::Limits;
use subtend_session::record::Record;
use subtend_session::state::State;
use uuid::Uuid;

/// Frames of a session: its creation and its inputs.
const SESSION: usize = 10;
const TEXT: usize = 900;

pub struct Load {
    pub producers: usize,
    pub frames: usize,
    pub bytes: usize,
    pub records_each: usize,
    pub sessions: Vec<SessionId>,
    batches: Vec<Vec<Batch>>,
}

impl Load {
    pub fn new(producers: usize, each: usize) -> Self {
        let mut seed = 42;
        let mut load = Self {
            producers,
            frames: 0,
            bytes: 0,
            records_each: SESSION + 2,
            sessions: Vec::new(),
            batches: Vec::new(),
        };
        for _ in 0..producers {
            let mut batches = Vec::new();
            for _ in 0..each.div_ceil(SESSION) {
                // As in version 7: time first, then random bits, so that active sessions are scattered.
                let id =
                    SessionId(Uuid::from_u128(u128::from(random(&mut seed)) | (load.sessions.len() as u128) << 80));
                load.sessions.push(id);
                batches.extend(session(id, &mut seed).into_iter().map(|frame| Batch { frames: vec![frame] }));
            }
            load.batches.push(batches);
        }
        let all = || load.batches.iter().flatten().flat_map(|batch| &batch.frames);
        load.bytes = all().map(|frame| subtend_journal::codec::encode(frame).expect("a frame").len()).sum();
        load.frames = all().count();
        load
    }

    pub fn batches(&self) -> Vec<Vec<Batch>> {
        self.batches.clone()
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let mixed = (*seed ^ (*seed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

fn record(json: Value) -> Record {
    serde_json::from_value(json).expect("a record")
}

fn text(seed: &mut u64) -> String {
    let letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .";
    (0..TEXT).map(|_| char::from(letters[(random(seed) >> 32) as usize % letters.len()])).collect()
}

fn creation(id: SessionId) -> Vec<Record> {
    let authority: Authority = serde_json::from_str("[]").expect("an authority");
    vec![
        record(json!({"session_created": {
            "place": "root", "short": id.short(), "agent": "explore", "agent_hash": Hash([7; 16]), "model": "scripted",
            "system": Interned::<str>::new(Arc::from("be brief")).expect("a body"),
            "ceiling": Interned::new(Arc::new(authority)).expect("a body"),
            "limits": Interned::new(Arc::new(Limits::default())).expect("a body"),
            "workspace": ".", "inspectable": true,
        }})),
        record(json!({"input_accepted": {
            "id": id.0, "from": "person", "lane": "send", "text": "read README", "as_owner": "person",
        }})),
        record(json!({"run_opened": {
            "run": 1, "owner": "person", "inputs": [id.0], "mode": "blocking", "max_turns": 9, "slot": false,
        }})),
    ]
}

fn session(id: SessionId, seed: &mut u64) -> Vec<Frame> {
    let stamp = Stamp { epoch: Epoch(1), starts: 0, opened_lsn: Lsn(1), created_ms: 0, updated_ms: 0 };
    let frame =
        |first_seq, records, changes| Frame { session: id, first_seq, epoch: Epoch(1), at_ms: 0, records, changes };
    let mut all = creation(id);
    let mut born = index::creation(&NewSession { session: id, records: all.clone() }, stamp);
    if let Some(Record::SessionCreated(created)) = all.first() {
        born.defs = index::defs(created).expect("bodies");
    }
    let mut frames = vec![frame(Seq(1), all.clone(), born)];
    for n in 1..SESSION {
        let before = State::fold(id, &all).expect("a story");
        let received = record(json!({"input_accepted": {
            "id": Uuid::from_u128(u128::from(random(seed)) << 64 | n as u128), "from": "person", "lane": "send",
            "text": text(seed), "as_owner": "person",
        }}));
        let first_seq = Seq(all.len() as u64 + 1);
        all.push(received.clone());
        let after = State::fold(id, &all).expect("a story");
        let changes = index::changes(&index::Before::of(&before), &after, std::slice::from_ref(&received), stamp);
        frames.push(frame(first_seq, vec![received], changes));
    }
    frames
}
