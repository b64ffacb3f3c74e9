//! Sorts a group by table and key and coalesces it: each row is written once, or not if created and taken in it.

use std::collections::BTreeMap;

use serde::Serialize;
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Changes, Head, Inflight, InflightChange, Row};

use crate::engine::{Group, Payload, Result};
use crate::error::EngineError;
use crate::rows;
use crate::tables::{Edit, Table, TableEdits};

/// Net effect of a group on one row of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutboxEdit {
    Put(Lsn),
    Take,
    /// Taken and created again. It may have existed before the group, so a later take must still be written.
    Replace(Lsn),
}

#[derive(Debug, Default)]
pub(crate) struct Sorted {
    log: Vec<(Lsn, Vec<u8>)>,
    ev: BTreeMap<(SessionId, Seq), Lsn>,
    heads: BTreeMap<SessionId, Box<Head>>,
    inflight: BTreeMap<SessionId, Option<Box<Inflight>>>,
    children: Vec<(SessionId, SessionId)>,
    outbox: BTreeMap<Row, OutboxEdit>,
    defs: BTreeMap<Hash, Text>,
    last: Lsn,
}

impl Sorted {
    pub(crate) fn of(group: Group) -> Result<Self> {
        let mut sorted = Self { last: group.last().unwrap_or_default(), ..Self::default() };
        for frame in group.frames {
            if let Payload::Bytes(bytes) = frame.payload {
                if sorted.ev.insert((frame.session, frame.first_seq), frame.lsn).is_some() {
                    return Err(EngineError::Overwrite { session: frame.session, seq: frame.first_seq });
                }
                sorted.log.push((frame.lsn, bytes));
            }
            sorted.change(frame.session, frame.lsn, frame.changes);
        }
        Ok(sorted)
    }

    /// Returns the LSN of the last frame, and the edits by table in key order.
    pub(crate) fn edits(mut self) -> Result<(Lsn, Vec<TableEdits>)> {
        let number = |lsn: Lsn| lsn.0.to_be_bytes().to_vec();
        let log = self.log.into_iter().map(|(lsn, frame)| (number(lsn), Some(frame))).collect();
        let ev = self.ev.into_iter();
        let ev = ev.map(|((session, seq), lsn)| (rows::ev_key(session, seq).to_vec(), Some(number(lsn)))).collect();
        let heads = self.heads.iter().map(|(session, head)| json(Table::Head, *session, Some(head)));
        let inflight = self.inflight.iter().map(|(session, row)| json(Table::Inflight, *session, row.as_ref()));
        self.children.sort_unstable();
        let children =
            self.children.iter().map(|(parent, child)| (rows::child_key(*parent, *child).to_vec(), Some(Vec::new())));
        let outbox = self.outbox.iter().map(|(row, fate)| {
            let key = rows::outbox_key(row);
            let sealed = match fate {
                OutboxEdit::Put(lsn) | OutboxEdit::Replace(lsn) => {
                    Some(rows::seal("outbox", &key, &lsn.0.to_be_bytes()))
                }
                OutboxEdit::Take => None,
            };
            (key.to_vec(), sealed)
        });
        let defs = self.defs.iter().map(|(hash, text)| (hash.0.to_vec(), Some(text.as_bytes().to_vec())));
        let mut tables = vec![
            (Table::Log, log),
            (Table::Ev, ev),
            (Table::Head, heads.collect::<Result<_>>()?),
            (Table::Inflight, inflight.collect::<Result<_>>()?),
            (Table::Child, children.collect()),
            (Table::Outbox, outbox.collect()),
            (Table::Def, defs.collect()),
        ];
        tables.retain(|(_, edits): &TableEdits| !edits.is_empty());
        Ok((self.last, tables))
    }

    fn change(&mut self, session: SessionId, lsn: Lsn, changes: Changes) {
        let Changes { head, inflight, child_of, put, take, defs } = changes;
        if let Some(head) = head {
            self.heads.insert(session, head);
        }
        match inflight {
            InflightChange::Keep => {}
            InflightChange::Put(row) => {
                self.inflight.insert(session, Some(row));
            }
            // Created and ended within the group: the session has no row.
            InflightChange::Delete if self.ev.contains_key(&(session, Seq(1))) => {
                self.inflight.remove(&session);
            }
            InflightChange::Delete => {
                self.inflight.insert(session, None);
            }
        }
        self.children.extend(child_of.map(|parent| (parent, session)));
        for row in put {
            let fate = match self.outbox.get(&row) {
                None | Some(OutboxEdit::Put(_)) => OutboxEdit::Put(lsn),
                Some(OutboxEdit::Take | OutboxEdit::Replace(_)) => OutboxEdit::Replace(lsn),
            };
            self.outbox.insert(row, fate);
        }
        for row in take {
            match self.outbox.get(&row) {
                // Created and taken within the group.
                Some(OutboxEdit::Put(_)) => {
                    self.outbox.remove(&row);
                }
                None | Some(OutboxEdit::Take | OutboxEdit::Replace(_)) => {
                    self.outbox.insert(row, OutboxEdit::Take);
                }
            }
        }
        self.defs.extend(defs);
    }
}

fn json(table: Table, session: SessionId, row: Option<&impl Serialize>) -> Result<Edit> {
    let key = rows::session_key(session);
    Ok((key.to_vec(), row.map(|row| rows::seal_json(table.name(), &key, row)).transpose()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use subtend_session::ids::{Epoch, RunNo};
    use subtend_session::place::{OnRestart, Owner};
    use subtend_session::state::Phase;
    use uuid::Uuid;

    use super::*;
    use crate::engine::GroupFrame;

    const ONE: SessionId = SessionId(Uuid::from_u128(1));
    const TWO: SessionId = SessionId(Uuid::from_u128(2));

    pub(crate) fn opened() -> InflightChange {
        InflightChange::Put(Box::new(Inflight {
            run: RunNo(1),
            state: Phase::Queued,
            owner: Owner::Person,
            root: ONE,
            depth: 0,
            opened_lsn: Lsn(1),
            deadline_left_ms: None,
            wall_cap_at: None,
            on_restart: OnRestart::Fail,
            epoch: Epoch(1),
            starts: 0,
            limited_until: None,
        }))
    }

    pub(crate) fn frame(session: SessionId, first_seq: u64, lsn: u64, inflight: InflightChange) -> GroupFrame {
        GroupFrame {
            lsn: Lsn(lsn),
            session,
            first_seq: Seq(first_seq),
            count: 3,
            epoch: Epoch(1),
            at_ms: 0,
            payload: Payload::Bytes(Vec::new()),
            changes: Changes { inflight, ..Changes::default() },
        }
    }

    fn inflight_edits(frames: Vec<GroupFrame>) -> Vec<(Vec<u8>, bool)> {
        let (_, tables) = Sorted::of(Group { frames }).unwrap().edits().unwrap();
        let edits = tables.into_iter().filter(|(table, _)| *table == Table::Inflight).flat_map(|(_, edits)| edits);
        edits.map(|(key, value)| (key, value.is_some())).collect()
    }

    /// The controls: a run of an earlier group needs the removal, and a run that is still open needs its row.
    #[test]
    fn run_that_a_group_opens_and_ends_has_no_edit() {
        let created_and_ended = [frame(ONE, 1, 1, opened()), frame(ONE, 4, 2, InflightChange::Delete)];
        assert_eq!(inflight_edits(created_and_ended.to_vec()), []);
        let others = [frame(ONE, 4, 1, InflightChange::Delete), frame(TWO, 1, 2, opened())];
        let keys = [ONE, TWO].map(|session| rows::session_key(session).to_vec());
        assert_eq!(inflight_edits(others.to_vec()), keys.into_iter().zip([false, true]).collect::<Vec<_>>());
    }
}
