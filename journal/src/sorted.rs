//! A group sorted by table and key and coalesced: the last value of a row is written once, and a row created and taken within the group
//! never.

use std::collections::BTreeMap;

use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Changes, Head, Inflight, InflightChange, Row};

use crate::engine::{Group, Payload, Result};
use crate::error::EngineError;

/// Net effect of a group on one row of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Put(Lsn),
    Take,
    /// Taken and created again: it may exist before, so that a later take must not vanish.
    Replace(Lsn),
}

#[derive(Debug, Default)]
pub(crate) struct Sorted {
    pub(crate) log: Vec<(Lsn, Vec<u8>)>,
    pub(crate) ev: BTreeMap<(SessionId, Seq), Lsn>,
    pub(crate) heads: BTreeMap<SessionId, Box<Head>>,
    pub(crate) inflight: BTreeMap<SessionId, Option<Box<Inflight>>>,
    pub(crate) kids: Vec<(SessionId, SessionId)>,
    pub(crate) outbox: BTreeMap<Row, Fate>,
    pub(crate) defs: BTreeMap<Hash, Text>,
    pub(crate) last: Lsn,
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

    fn change(&mut self, session: SessionId, lsn: Lsn, changes: Changes) {
        let Changes { head, inflight, kid_of, put, take, defs } = changes;
        if let Some(head) = head {
            self.heads.insert(session, head);
        }
        match inflight {
            InflightChange::Keep => {}
            InflightChange::Put(row) => {
                self.inflight.insert(session, Some(row));
            }
            InflightChange::Delete => {
                self.inflight.insert(session, None);
            }
        }
        self.kids.extend(kid_of.map(|parent| (parent, session)));
        for row in put {
            let fate = match self.outbox.get(&row) {
                None | Some(Fate::Put(_)) => Fate::Put(lsn),
                Some(Fate::Take | Fate::Replace(_)) => Fate::Replace(lsn),
            };
            self.outbox.insert(row, fate);
        }
        for row in take {
            match self.outbox.get(&row) {
                // Created and taken within the group.
                Some(Fate::Put(_)) => {
                    self.outbox.remove(&row);
                }
                None | Some(Fate::Take | Fate::Replace(_)) => {
                    self.outbox.insert(row, Fate::Take);
                }
            }
        }
        self.defs.extend(defs);
    }
}
