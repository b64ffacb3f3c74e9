//! Implements engines that store rows as bytes in ordered tables. An engine provides the tables; this module interprets their rows.

use std::borrow::Cow;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::codec;
use crate::engine::{Engine, Group, IndexedFrame, Range, Result, ScanFlow, StoredFrame};
use crate::error::{EngineError, OpenError};
use crate::rows::{self, CHILD_KEY_LEN, EV_KEY_LEN, OUTBOX_KEY_LEN, SESSION_KEY_LEN};

const CONTINUE: ScanFlow = ControlFlow::Continue(());

/// The tables. The value is the first byte of their keys in engines with a single tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Table {
    /// LSN to frame.
    Log = b'l',
    /// Session and first record to LSN.
    Ev = b'e',
    /// Session to head.
    Head = b'h',
    /// Session to its run in flight, which a start reads.
    Inflight = b'i',
    /// Parent and child.
    Child = b'k',
    /// Obligation to LSN.
    Outbox = b'o',
    /// Hash to body.
    Def = b'd',
    /// Format and identity of the store.
    Meta = b'm',
}

impl Table {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Ev => "ev",
            Self::Head => "head",
            Self::Inflight => "inflight",
            Self::Child => "kid",
            Self::Outbox => "outbox",
            Self::Def => "def",
            Self::Meta => "meta",
        }
    }

    /// Returns whether its rows are never replaced.
    pub(crate) fn is_log(self) -> bool {
        matches!(self, Self::Log | Self::Ev)
    }

    /// Returns the error for a group that would replace the row at `key`.
    pub(crate) fn overwrite(self, key: &[u8]) -> EngineError {
        match key.try_into().map(rows::ev_of) {
            Ok((session, seq)) => EngineError::Overwrite { session, seq },
            Err(_) => rows::corrupt(self.name(), key, "it already has a frame"),
        }
    }
}

/// A row to write at a key, or to remove.
pub(crate) type Edit = (Vec<u8>, Option<Vec<u8>>);
pub(crate) type TableEdits = (Table, Vec<Edit>);

/// Receives key and value of each row.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ScanFlow> + 'a;
/// The first and the last key of a scan; all keys if absent.
pub(crate) type Keys<'a> = Option<(&'a [u8], &'a [u8])>;

/// A store of bytes. A read sees all of each completed write. A panic of the store on damaged bytes is returned as an error.
pub(crate) trait Tables: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// Larger frames are stored as files.
    const MAX_BODY: u64;

    fn write(&self, group: Group) -> Result<()>;
    fn syncs(&self) -> u64;
    /// Returns a number from the store's metadata.
    fn meta(&self, name: &'static str) -> Result<Option<u64>>;
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Visits rows in the order of their keys.
    fn scan(&self, table: Table, keys: Keys<'_>, visit: &mut Visit<'_>) -> Result<()>;
    fn last(&self, table: Table, keys: Keys<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>>;

    fn durability(&self) -> Cow<'static, str> {
        "fsync: what is acknowledged survives a crash of the process and of the machine".into()
    }

    /// Implements [`Engine::range`]. The default reads row by row, which is cheap without a network.
    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<RangeRows> {
        // Reads rows first: after a concurrent commit there can be more records than the rows name, but never fewer.
        let key = rows::session_key(session);
        let (head, inflight) = (self.get(Table::Head, &key)?, self.get(Table::Inflight, &key)?);
        let first = frame_before(self, session, from)?.map_or(from, |(seq, _)| seq);
        let last = from.max(Seq(until.0.saturating_sub(1)));
        let (mut frames, mut bytes) = (Vec::new(), 0_u64);
        for (seq, lsn) in frames_of(self, session, first, last)? {
            let frame = self.get(Table::Log, &lsn.0.to_be_bytes())?.map(StoredFrame::Bytes);
            bytes = bytes.saturating_add(frame.as_ref().map_or(0, StoredFrame::bytes));
            frames.push((seq, lsn, frame));
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(RangeRows { head, inflight, frames })
    }

    /// Implements [`Engine::bytes`]. The default reads row by row, and none of the files of large frames.
    fn bytes(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64> {
        let first = frame_before(self, session, from)?.map_or(from, |(seq, _)| seq);
        let mut bytes = 0_u64;
        for (_, lsn) in frames_of(self, session, first, Seq(u64::MAX))? {
            let row = self.get(Table::Log, &lsn.0.to_be_bytes())?;
            bytes = bytes.saturating_add(row.as_deref().map_or(0, codec::frame_bytes));
            if bytes >= max_bytes {
                break;
            }
        }
        Ok(bytes)
    }

    /// Checks the format. Returns whether no format has been written yet.
    fn is_new(&self) -> std::result::Result<bool, OpenError> {
        match self.meta(META_FORMAT)? {
            None => Ok(true),
            Some(FORMAT) => Ok(false),
            Some(found) if found > FORMAT => Err(OpenError::Newer { found, known: FORMAT }),
            Some(found) => {
                Err(rows::corrupt("meta", META_FORMAT.as_bytes(), &format!("{found} was never a format")).into())
            }
        }
    }
}

/// [`Range`] whose rows are still encoded, with their checksums.
pub(crate) struct RangeRows {
    pub(crate) head: Option<Vec<u8>>,
    pub(crate) inflight: Option<Vec<u8>>,
    pub(crate) frames: Vec<IndexedFrame>,
}

/// The written format, and the newest readable one.
pub(crate) const FORMAT: u64 = 1;
pub(crate) const META_FORMAT: &str = "format";
pub(crate) const META_LSN: &str = "lsn";

fn exact_size<const N: usize>(table: Table, key: &[u8]) -> Result<&[u8; N]> {
    key.try_into().map_err(|_| rows::corrupt(table.name(), key, "the key has the wrong length"))
}

pub(crate) fn number(table: &'static str, key: &[u8], value: &[u8]) -> Result<u64> {
    let bytes = value.try_into().map_err(|_| rows::corrupt(table, key, "the value is not a number"))?;
    Ok(u64::from_be_bytes(bytes))
}

pub(crate) fn place(key: &[u8], value: &[u8]) -> Result<(SessionId, Seq, Lsn)> {
    let (session, seq) = rows::ev_of(exact_size::<EV_KEY_LEN>(Table::Ev, key)?);
    Ok((session, seq, Lsn(number("ev", key, value)?)))
}

fn text(hash: Hash, bytes: &[u8]) -> Result<Text> {
    std::str::from_utf8(bytes).map(Text::from).map_err(|error| rows::corrupt("def", &hash.0, &error.to_string()))
}

fn row<T: DeserializeOwned>(tables: &impl Tables, table: Table, session: SessionId) -> Result<Option<T>> {
    let key = rows::session_key(session);
    tables.get(table, &key)?.map(|sealed| rows::unseal_json(table.name(), &key, &sealed)).transpose()
}

fn all<T: DeserializeOwned>(
    tables: &impl Tables,
    table: Table,
    visit: &mut dyn FnMut(SessionId, Result<T>) -> ScanFlow,
) -> Result<()> {
    tables.scan(table, None, &mut |key, sealed| {
        let session = rows::session_of(*exact_size::<SESSION_KEY_LEN>(table, key)?);
        Ok(visit(session, rows::unseal_json(table.name(), key, sealed)))
    })
}

/// Returns the frames of the session that start with a record from `from` to `last`.
fn frames_of(tables: &impl Tables, session: SessionId, from: Seq, last: Seq) -> Result<Vec<(Seq, Lsn)>> {
    let mut positions = Vec::new();
    let (from, to) = (rows::ev_key(session, from), rows::ev_key(session, last));
    tables.scan(Table::Ev, Some((&from, &to)), &mut |key, value| {
        let (_, seq, lsn) = place(key, value)?;
        positions.push((seq, lsn));
        Ok(CONTINUE)
    })?;
    Ok(positions)
}

/// Returns the last frame of the session that starts at or before `upto`.
fn frame_before(tables: &impl Tables, session: SessionId, upto: Seq) -> Result<Option<(Seq, Lsn)>> {
    let (from, to) = (rows::ev_key(session, Seq(0)), rows::ev_key(session, upto));
    let Some((key, value)) = tables.last(Table::Ev, Some((&from, &to)))? else { return Ok(None) };
    let (_, seq, lsn) = place(&key, &value)?;
    Ok(Some((seq, lsn)))
}

impl<T: Tables> Engine for T {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn durability(&self) -> Cow<'static, str> {
        Tables::durability(self)
    }

    fn write(&self, group: Group) -> Result<()> {
        Tables::write(self, group)
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn max_body(&self) -> u64 {
        Self::MAX_BODY
    }

    fn syncs(&self) -> u64 {
        Tables::syncs(self)
    }

    fn last_lsn(&self) -> Result<Lsn> {
        // Reads the log first: a concurrent commit between the two reads can then only make the noted LSN larger than that of the log.
        let in_log = self.last(Table::Log, None)?.map_or(Ok(0), |(key, _)| number("log", &key, &key))?;
        let noted = self.meta(META_LSN)?.unwrap_or(0);
        if in_log > noted {
            let why = format!("it is {noted}, but the log ends at {in_log}");
            return Err(rows::corrupt("meta", META_LSN.as_bytes(), &why));
        }
        Ok(Lsn(noted))
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        Ok(self.get(Table::Log, &lsn.0.to_be_bytes())?.map(StoredFrame::Bytes))
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> ScanFlow) -> Result<()> {
        let keys = (&from.0.to_be_bytes()[..], &u64::MAX.to_be_bytes()[..]);
        self.scan(Table::Log, Some(keys), &mut |key, frame| {
            Ok(visit(Lsn(number("log", key, key)?), StoredFrame::Bytes(frame.to_vec())))
        })
    }

    fn positions(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        frames_of(self, session, Seq(0), Seq(u64::MAX))
    }

    fn range(&self, session: SessionId, from: Seq, until: Seq, max_bytes: u64) -> Result<Range> {
        let RangeRows { head, inflight, frames } = Tables::range(self, session, from, until, max_bytes)?;
        let key = rows::session_key(session);
        Ok(Range {
            head: head.map(|sealed| rows::unseal_json(Table::Head.name(), &key, &sealed)).transpose(),
            inflight: inflight.map(|sealed| rows::unseal_json(Table::Inflight.name(), &key, &sealed)).transpose(),
            frames,
        })
    }

    fn bytes(&self, session: SessionId, from: Seq, max_bytes: u64) -> Result<u64> {
        Tables::bytes(self, session, from, max_bytes)
    }

    fn all_positions(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> ScanFlow) -> Result<()> {
        self.scan(Table::Ev, None, &mut |key, value| {
            let (session, seq, lsn) = place(key, value)?;
            Ok(visit(session, seq, lsn))
        })
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        row(self, Table::Head, session)
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> ScanFlow) -> Result<()> {
        all(self, Table::Head, visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        row(self, Table::Inflight, session)
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> ScanFlow) -> Result<()> {
        all(self, Table::Inflight, visit)
    }

    fn children(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        let min = rows::child_key(parent, rows::session_of([0; SESSION_KEY_LEN]));
        let max = rows::child_key(parent, rows::session_of([0xff; SESSION_KEY_LEN]));
        let mut children = Vec::new();
        self.scan(Table::Child, Some((&min, &max)), &mut |key, _| {
            children.push(rows::child_of(exact_size::<CHILD_KEY_LEN>(Table::Child, key)?).1);
            Ok(CONTINUE)
        })?;
        Ok(children)
    }

    fn all_children(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> ScanFlow) -> Result<()> {
        self.scan(Table::Child, None, &mut |key, _| {
            let (parent, child) = rows::child_of(exact_size::<CHILD_KEY_LEN>(Table::Child, key)?);
            Ok(visit(parent, child))
        })
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> ScanFlow) -> Result<()> {
        let (min, max) = rows::outbox_range(to);
        self.scan(Table::Outbox, Some((&min, &max)), &mut |key, value| {
            Ok(visit(rows::decode_outbox_row(exact_size::<OUTBOX_KEY_LEN>(Table::Outbox, key)?, value)))
        })
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.get(Table::Def, &hash.0)?.map(|body| text(hash, &body)).transpose()
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> ScanFlow) -> Result<()> {
        self.scan(Table::Def, None, &mut |key, body| {
            let hash = Hash(*exact_size::<SESSION_KEY_LEN>(Table::Def, key)?);
            Ok(visit(hash, text(hash, body)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A store that commits one group after each read of it.
    struct Busy(AtomicU64);

    impl Busy {
        fn end(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed)
        }
    }

    impl Tables for Busy {
        const NAME: &'static str = "busy";
        const MAX_BODY: u64 = 0;

        fn write(&self, _: Group) -> Result<()> {
            Ok(())
        }

        fn syncs(&self) -> u64 {
            0
        }

        fn meta(&self, _: &'static str) -> Result<Option<u64>> {
            Ok(Some(self.end()))
        }

        fn get(&self, _: Table, _: &[u8]) -> Result<Option<Vec<u8>>> {
            Ok(None)
        }

        fn scan(&self, _: Table, _: Keys<'_>, _: &mut Visit<'_>) -> Result<()> {
            Ok(())
        }

        fn last(&self, _: Table, _: Keys<'_>) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
            Ok(Some((self.end().to_be_bytes().to_vec(), Vec::new())))
        }
    }

    #[test]
    fn commit_between_two_reads_is_not_damage() {
        let busy = Busy(AtomicU64::new(7));
        assert_eq!(busy.last_lsn().expect("it is whole"), Lsn(8));
    }
}
