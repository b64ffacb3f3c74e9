//! The fold of one imported session, with bounds on its work.

use subtend_session::ids::{Epoch, Lsn, SessionId};
use subtend_session::index::{self, Changes, Head, Inflight};
use subtend_session::place::{Owner, Place};
use subtend_session::record::Record;
use subtend_session::state::State;

use super::survey::LinePosition;
use super::{ImportBounds, ImportError};

/// Maximum number of inputs in the queue of a session. Without it, the fold of many short records takes quadratic time.
const MAX_QUEUED: usize = 4_096;
/// Maximum number of inputs of a session, for the same reason.
const MAX_INPUTS: usize = 1 << 16;
/// Maximum work of records that reread their session, in units of [`State::reread_work`]: some seconds.
const MAX_REREAD: u64 = 1 << 32;

/// Maximum bytes of the texts of a session, plus those of [`RECORD_BYTES`] for each of its records, if the import may not
/// use more memory.
const MAX_STATE: u64 = 128 << 20;
/// Bytes that a record without text keeps in memory. The largest is that of a child.
const RECORD_BYTES: u64 = 384;

/// The rows of a session.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) session: SessionId,
    pub(super) head: Box<Head>,
    pub(super) inflight: Option<Box<Inflight>>,
    /// The frame that opened the run in flight.
    pub(super) opened: Option<usize>,
}

pub(super) struct Fold {
    id: SessionId,
    pub(super) state: Option<State>,
    place: Option<Place>,
    owner: Option<Owner>,
    opened: Option<usize>,
    reread: u64,
    max_state: u64,
}

impl Fold {
    /// Creates the fold of a session in an import that may use `memory` bytes.
    pub(super) fn new(id: SessionId, memory: usize) -> Self {
        let max_state = if memory > ImportBounds::MEMORY { memory as u64 } else { MAX_STATE };
        Self { id, state: None, place: None, owner: None, opened: None, reread: 0, max_state }
    }

    /// Folds a frame and returns its obligations.
    pub(super) fn fold_frame(
        &mut self,
        ix: usize,
        at: LinePosition,
        records: &[Record],
    ) -> Result<Changes, ImportError> {
        let damaged = |why: String| ImportError::Damaged { line: at.line, why };
        let rest = match &self.state {
            Some(_) => records,
            None => {
                let (creation, rest) = records.split_at_checked(1).unwrap_or((records, &[]));
                let state = State::fold(self.id, creation).map_err(|error| damaged(error.to_string()))?;
                self.place = Some(state.created.place.clone());
                self.state = Some(state);
                rest
            }
        };
        let mut out = Changes::default();
        if let (Some(state), Some(place)) = (&mut self.state, &self.place) {
            for record in rest {
                state.follow(record).map_err(|error| damaged(error.to_string()))?;
                if state.queue.len() > MAX_QUEUED {
                    return Err(damaged(format!("more than {MAX_QUEUED} inputs are queued in session {}", self.id)));
                }
                if state.accepted.len() > MAX_INPUTS {
                    return Err(damaged(format!("session {} has more than {MAX_INPUTS} inputs", self.id)));
                }
                let records = state.next_seq.0.saturating_mul(RECORD_BYTES);
                if state.text_bytes.saturating_add(records) > self.max_state {
                    let most = self.max_state >> 20;
                    return Err(damaged(format!(
                        "session {} takes more than {most} MiB of memory: allow more with --max-memory",
                        self.id
                    )));
                }
                self.reread = self.reread.saturating_add(state.reread_work(record));
                if self.reread > MAX_REREAD {
                    let kind = record.kind();
                    let why = format!("session {} repeats its earlier messages too often: `{kind}`", self.id);
                    return Err(damaged(why));
                }
            }
            index::rows(self.id, place, self.owner.as_ref(), records, &mut out);
        }
        for record in records {
            if let Record::RunOpened(opened) = record {
                self.owner = Some(opened.owner.clone());
                self.opened = Some(ix);
            }
        }
        Ok(out)
    }

    pub(super) fn rows(self, epoch: Epoch, created_ms: i64, at_ms: i64) -> Option<Rows> {
        let state = self.state?;
        let head = Box::new(index::head(&state, epoch, created_ms, at_ms));
        let inflight = index::inflight(&state, Lsn(0), epoch, 0).map(Box::new);
        Some(Rows { session: self.id, head, inflight, opened: self.opened })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use subtend_session::ids::{InputId, Interned};
    use subtend_session::limits::Limits;

    use super::*;

    fn record(value: Value) -> Record {
        serde_json::from_value(value).unwrap()
    }

    fn new_fold() -> Fold {
        let hash = "07070707070707070707070707070707";
        let created = record(json!({"session_created": {
            "place": "root", "short": "abc123", "agent": "explore", "agent_hash": hash, "model": "m",
            "system": Interned::<str>::new(Arc::from("s")).unwrap(),
            "ceiling": Interned::new(Arc::new(subtend_session::authority::Authority::deny_all())).unwrap(),
            "limits": Interned::new(Arc::new(Limits::default())).unwrap(), "workspace": ".",
        }}));
        let id = SessionId(uuid::Uuid::from_u128(7));
        let mut fold = Fold::new(id, 0);
        fold.fold_frame(0, LinePosition { line: 1, offset: 0 }, &[created]).unwrap();
        fold
    }

    fn input(n: usize) -> Record {
        let id = uuid::Uuid::from_u128(n as u128);
        record(
            json!({"input_accepted": {"id": id, "from": "person", "lane": "send", "text": "x", "as_owner": "person"}}),
        )
    }

    /// The fold remembers all inputs; the test sets their number. Control: the maximum is accepted.
    #[test]
    fn import_refuses_a_session_with_too_many_inputs() {
        let with = |inputs: usize| {
            let mut fold = new_fold();
            fold.state.as_mut().unwrap().accepted =
                (1..inputs).map(|n| InputId(uuid::Uuid::from_u128(n as u128))).collect();
            fold.fold_frame(1, LinePosition { line: 9, offset: 0 }, &[input(inputs)]).map(drop)
        };
        with(MAX_INPUTS).unwrap();
        let refused = with(MAX_INPUTS + 1).unwrap_err();
        let why = format!("session {} has more than 65536 inputs", new_fold().id);
        assert!(matches!(&refused, ImportError::Damaged { line: 9, why: found } if *found == why), "{refused}");
    }

    /// The fold keeps the texts of a session. The controls: as many bytes as the bound, and an import with more memory.
    #[test]
    fn import_refuses_sessions_of_endless_texts() {
        let with = |texts: u64, memory: u64| {
            let mut fold = new_fold();
            fold.max_state = MAX_STATE.max(memory);
            fold.state.as_mut().unwrap().text_bytes = texts;
            fold.fold_frame(1, LinePosition { line: 9, offset: 0 }, &[input(1)])?;
            let state = fold.state.unwrap();
            Ok(state.text_bytes + state.next_seq.0 * RECORD_BYTES)
        };
        let bytes: u64 = with(0, 0).unwrap();
        assert_eq!(with(MAX_STATE - bytes, 0).unwrap(), MAX_STATE);
        assert_eq!(with(MAX_STATE - bytes + 1, MAX_STATE + 1).unwrap(), MAX_STATE + 1);
        let refused: ImportError = with(MAX_STATE - bytes + 1, 0).unwrap_err();
        let why = format!("session {} takes more than 128 MiB of memory: allow more with --max-memory", new_fold().id);
        assert!(matches!(&refused, ImportError::Damaged { line: 9, why: found } if *found == why), "{refused}");
    }

    /// The fold keeps whole inputs, also their lists of empty names. Each attack has four inputs of a quarter of the bound.
    /// The control: three of them.
    #[test]
    fn import_refuses_sessions_of_endless_lists() {
        const QUARTER: usize = 1 << 16;
        let text = "x".repeat(QUARTER);
        let other = json!({"agent": "a", "agent_hash": "07".repeat(16), "model": "m", "system": text});
        let names = vec![""; QUARTER / 48];
        let attacks: [(&str, Value); 5] = [
            ("tools", json!(names)),
            ("metadata", json!(text)),
            ("format", json!(text)),
            ("key", json!(text)),
            ("agent_override", other),
        ];
        for (field, value) in attacks {
            let with = |inputs: usize| {
                let mut fold = new_fold();
                fold.max_state = 4 * QUARTER as u64;
                for n in 1..=inputs {
                    let mut input = serde_json::to_value(input(n)).unwrap();
                    input["input_accepted"][field] = value.clone();
                    fold.fold_frame(n, LinePosition { line: 9, offset: 0 }, &[record(input)])?;
                }
                Ok::<_, ImportError>(())
            };
            with(3).unwrap();
            let refused = with(4).unwrap_err();
            assert!(refused.to_string().contains("takes more than 0 MiB of memory"), "{field}: {refused}");
        }
    }

    /// A compaction reads the transcript again, so such work is limited. Control: slightly less is accepted.
    #[test]
    fn import_refuses_too_much_work_on_earlier_messages() {
        let with = |reread: u64| {
            let mut fold = new_fold();
            let service = record(json!({"branch_created": {
                "child": uuid::Uuid::from_u128(9), "short": "000009", "agent": "compaction", "kind": "service", "at": 1, "by": "host"
            }}));
            let at = LinePosition { line: 9, offset: 0 };
            fold.fold_frame(1, at, &[service]).unwrap();
            let answer = json!({"assistant": {"seq": 2, "text": "x", "reasoning": null, "calls": []}});
            fold.state.as_mut().unwrap().transcript = serde_json::from_value(json!([answer, answer])).unwrap();
            fold.reread = reread;
            let compacted = json!({"cause": "asked", "by": "person", "upto": 1, "text": "x", "of": uuid::Uuid::from_u128(9), "before": 9, "after": 3});
            fold.fold_frame(2, at, &[record(json!({ "compacted": compacted }))]).map(drop)
        };
        with(MAX_REREAD - 2).unwrap();
        let refused = with(MAX_REREAD - 1).unwrap_err();
        let why = format!("session {} repeats its earlier messages too often: `compacted`", new_fold().id);
        assert!(matches!(&refused, ImportError::Damaged { line: 9, why: found } if *found == why), "{refused}");
    }
}
