use std::collections::BTreeMap;
use std::ops::ControlFlow;

use proptest::collection::vec;
use proptest::prelude::*;
use subtend_session::ids::{CallId, TurnNo};
use subtend_session::index::{InflightChange, Row, RowKey, RowKind};
use uuid::Uuid;

use super::*;
use crate::engine::GroupFrame;
use crate::sorted::tests::{frame, opened};

const TABLES: [Table; 4] = [Table::Log, Table::Ev, Table::Inflight, Table::Outbox];

/// Returns the next frame of session `n`, which changes a row of that session.
fn next_frame(n: u8, change: u8, written: &mut BTreeMap<u8, u64>, lsn: u64) -> GroupFrame {
    let session = SessionId(Uuid::from_u128(n.into()));
    let seq = written.entry(n).and_modify(|seq| *seq += 3).or_insert(1);
    let inflight = [InflightChange::Keep, opened(), InflightChange::Delete].into_iter().nth(change.into());
    let mut frame = frame(session, *seq, lsn, inflight.unwrap_or_default());
    let key = RowKey::Call(CallId { turn: TurnNo(1), ix: 0 });
    let row = Row { to: session, from: session, kind: RowKind::Notice, key };
    frame.changes.put.extend((change == 3).then_some(row));
    frame.changes.take.extend((change == 4).then_some(row));
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn groups_leave_the_rows_of_their_edits(
        groups in vec(vec((0_u8..24, 0_u8..5), 1..40), 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let engine = Redb::open(&dir.path().join("store"), 1 << 20).unwrap();
        let (mut written, mut lsn) = (BTreeMap::new(), 0);
        let mut expected: BTreeMap<(u8, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for group in groups {
            let mut next = |(n, change)| {
                lsn += 1;
                next_frame(n, change, &mut written, lsn)
            };
            let frames: Vec<GroupFrame> = group.into_iter().map(&mut next).collect();
            for (table, edits) in Sorted::of(Group { frames: frames.clone() }).unwrap().edits().unwrap().1 {
                for (key, value) in edits {
                    let at = (table as u8, key);
                    match value {
                        Some(value) => _ = expected.insert(at, value),
                        None => _ = expected.remove(&at),
                    }
                }
            }
            Tables::write(&engine, Group { frames }).unwrap();
        }
        let mut found = BTreeMap::new();
        for table in TABLES {
            let mut visit = |key: &[u8], value: &[u8]| {
                found.insert((table as u8, key.to_vec()), value.to_vec());
                Ok(ControlFlow::Continue(()))
            };
            engine.scan(table, None, &mut visit).unwrap();
        }
        prop_assert_eq!(found, expected);
    }
}
