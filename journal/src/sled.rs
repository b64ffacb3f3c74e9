//! Journal in sled 0.34.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;
use subtend_session::ids::{Hash, Lsn, Seq, SessionId, Text};
use subtend_session::index::{Head, Inflight, Row};

use crate::directory;
use crate::engine::{Engine, Go, Group, Result, StoredFrame};
use crate::engines::Copied;
use crate::error::{EngineError, OpenError};
use crate::guarded::guarded;
use crate::rows::{self, EV, KID, OUTBOX, SESSION};
use crate::sorted::{Fate, Sorted};

mod table;

use self::table::{Edit, Rows, Table};

/// The written format, and the newest readable one.
const FORMAT: u64 = 1;
const META_FORMAT: &[u8] = b"format";
const META_LSN: &[u8] = b"lsn";
const GO: Go = ControlFlow::Continue(());
/// Beyond every key of a table.
const END: [u8; 64] = [0xff; 64];

/// A journal in a directory of sled.
#[derive(Debug)]
pub struct Sled {
    rows: Rows,
    /// LSN of the last written frame.
    last: AtomicU64,
}

/// Opens or creates the store in `dir`; a new one is durable with its directory entry.
/// # Errors
/// [`OpenError::Newer`] for a newer format; [`OpenError::Engine`] for a store that is damaged or makes sled panic; and file errors.
pub fn open(dir: &Path, cache_bytes: usize) -> std::result::Result<Sled, OpenError> {
    open_with(dir, cache_bytes, true)
}

/// Opens a copy of the store in `dir` read-only: sled overwrites the end of the file that it opens.
/// # Errors
/// As for [`open`], and when there is no room for the copy.
pub fn open_to_read(
    dir: &Path,
    cache_bytes: usize,
    progress: &mut dyn FnMut(Copied),
) -> std::result::Result<Sled, OpenError> {
    Sled::over(Rows::of_copy(dir, cache_bytes, progress)?)
}

/// Opens a store without the sync that sled omits: the negative control of durability tests. Frames survive a crash of the process, not
/// of the machine.
/// # Errors
/// As for [`open`].
#[cfg(feature = "fault-points")]
pub fn open_unsynced(dir: &Path, cache_bytes: usize) -> std::result::Result<Sled, OpenError> {
    open_with(dir, cache_bytes, false)
}

fn open_with(dir: &Path, cache_bytes: usize, synced: bool) -> std::result::Result<Sled, OpenError> {
    directory::whole(dir, |making| Sled::over(Rows::at(making, cache_bytes, true)?).map(drop))?;
    Sled::over(Rows::at(dir, cache_bytes, synced)?)
}

impl Sled {
    /// Reads the store's own rows, and writes them to a new store.
    fn over(rows: Rows) -> std::result::Result<Self, OpenError> {
        let engine = Self { rows, last: AtomicU64::new(0) };
        match engine.meta(META_FORMAT)? {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => return Err(OpenError::Newer { found, known: FORMAT }),
            Some(found) => {
                return Err(rows::corrupt("meta", META_FORMAT, &format!("{found} was never a format")).into());
            }
            None => guarded("write the format", || engine.rows.write(vec![meta(META_FORMAT, FORMAT)]))?,
        }
        let last = engine.last_lsn()?;
        engine.last.store(last.0, Ordering::Relaxed);
        Ok(engine)
    }

    fn meta(&self, name: &[u8]) -> Result<Option<u64>> {
        let Some(sealed) = self.get(Table::Meta, name)? else { return Ok(None) };
        number("meta", name, rows::unseal("meta", name, &sealed)?).map(Some)
    }

    /// A panic of the store on damaged bytes is an error.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        guarded("read", || self.rows.get(table, key))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<Go>,
    ) -> Result<()> {
        guarded("scan", || self.rows.scan(table, from, to, &mut visit))
    }

    fn row<T: DeserializeOwned>(&self, table: Table, session: SessionId) -> Result<Option<T>> {
        let key = rows::session_key(session);
        self.get(table, &key)?.map(|sealed| rows::unseal_json(table.name(), &key, &sealed)).transpose()
    }

    fn all<T: DeserializeOwned>(&self, table: Table, visit: &mut dyn FnMut(SessionId, Result<T>) -> Go) -> Result<()> {
        self.scan(table, &[], &END, |key, sealed| {
            let session = rows::session_of(*sized::<SESSION>(table, key)?);
            Ok(visit(session, rows::unseal_json(table.name(), key, sealed)))
        })
    }

    fn places_until(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<(Seq, Lsn)>> {
        let mut places = Vec::new();
        self.scan(Table::Ev, &rows::ev_key(session, from), &rows::ev_key(session, Seq(u64::MAX)), |key, value| {
            let (_, seq, lsn) = place(key, value)?;
            places.push((seq, lsn));
            Ok(if places.len() < most { GO } else { Go::Break(()) })
        })?;
        Ok(places)
    }

    /// Returns the last frame of the session that starts at `upto` or before.
    fn place_before(&self, session: SessionId, upto: Seq) -> Result<Option<(Seq, Lsn)>> {
        let (from, to) = (rows::ev_key(session, Seq(0)), rows::ev_key(session, upto));
        let Some((key, value)) = guarded("read", || self.rows.last(Table::Ev, &from, &to))? else { return Ok(None) };
        let (_, seq, lsn) = place(&key, &value)?;
        Ok(Some((seq, lsn)))
    }
}

fn sized<const N: usize>(table: Table, key: &[u8]) -> Result<&[u8; N]> {
    key.try_into().map_err(|_| rows::corrupt(table.name(), key, "the key has another length"))
}

fn number(table: &'static str, key: &[u8], value: &[u8]) -> Result<u64> {
    let bytes = value.try_into().map_err(|_| rows::corrupt(table, key, "the value is not a number"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn place(key: &[u8], value: &[u8]) -> Result<(SessionId, Seq, Lsn)> {
    let named = rows::ev_of(sized::<EV>(Table::Ev, key)?);
    let (session, seq) = named.ok_or_else(|| rows::corrupt("ev", key, "no key"))?;
    Ok((session, seq, Lsn(number("ev", key, value)?)))
}

fn meta(name: &[u8], value: u64) -> Edit {
    Edit::Put(Table::Meta, name.to_vec(), rows::seal("meta", name, &value.to_be_bytes()))
}

fn text(hash: Hash, bytes: &[u8]) -> Result<Text> {
    std::str::from_utf8(bytes).map(Text::from).map_err(|error| rows::corrupt("def", &hash.0, &error.to_string()))
}

fn json<T: serde::Serialize>(table: Table, session: SessionId, row: &T) -> Result<Edit> {
    let key = rows::session_key(session);
    Ok(Edit::Put(table, key.to_vec(), rows::seal_json(table.name(), &key, row)?))
}

/// Returns the edits of a group, except the log.
fn edits(sorted: &Sorted) -> Result<Vec<Edit>> {
    let mut edits = Vec::with_capacity(2 * sorted.log.len() + sorted.heads.len() + sorted.inflight.len() + 8);
    for ((session, seq), lsn) in &sorted.ev {
        edits.push(Edit::Put(Table::Ev, rows::ev_key(*session, *seq).to_vec(), lsn.0.to_be_bytes().to_vec()));
    }
    for (session, head) in &sorted.heads {
        edits.push(json(Table::Head, *session, head)?);
    }
    for (session, row) in &sorted.inflight {
        edits.push(match row {
            Some(row) => json(Table::Inflight, *session, row)?,
            None => Edit::Take(Table::Inflight, rows::session_key(*session).to_vec()),
        });
    }
    for (parent, kid) in &sorted.kids {
        edits.push(Edit::Put(Table::Kid, rows::kid_key(*parent, *kid).to_vec(), Vec::new()));
    }
    for (row, fate) in &sorted.outbox {
        let key = rows::outbox_key(row);
        edits.push(match fate {
            Fate::Put(lsn) | Fate::Replace(lsn) => {
                Edit::Put(Table::Outbox, key.to_vec(), rows::seal("outbox", &key, &lsn.0.to_be_bytes()))
            }
            Fate::Take => Edit::Take(Table::Outbox, key.to_vec()),
        });
    }
    for (hash, text) in &sorted.defs {
        edits.push(Edit::Put(Table::Def, hash.0.to_vec(), text.as_bytes().to_vec()));
    }
    edits.push(meta(META_LSN, sorted.last.0));
    Ok(edits)
}

impl Engine for Sled {
    fn name(&self) -> &'static str {
        "sled"
    }

    fn durability(&self) -> &'static str {
        "fsync: what is acknowledged survives a crash of the process and of the machine"
    }

    fn write(&self, group: Group) -> Result<()> {
        let mut sorted = Sorted::of(group)?;
        // Edits do not check for existing rows, and records of a session are never replaced.
        let before = Lsn(self.last.load(Ordering::Relaxed));
        if let Some((lsn, _)) = sorted.log.first().filter(|(lsn, _)| *lsn <= before) {
            let why = format!("a frame comes after {before}");
            return Err(EngineError::Corrupt { table: "log", at: lsn.to_string(), why });
        }
        for (session, seq) in sorted.ev.keys() {
            if self.rows.get(Table::Ev, &rows::ev_key(*session, *seq))?.is_some() {
                return Err(EngineError::Overwrite { session: *session, seq: *seq });
            }
        }
        let mut edits = edits(&sorted)?;
        let log = std::mem::take(&mut sorted.log);
        edits.extend(log.into_iter().map(|(lsn, frame)| Edit::Put(Table::Log, lsn.0.to_be_bytes().to_vec(), frame)));
        self.rows.write(edits)?;
        self.last.store(sorted.last.0, Ordering::Relaxed);
        Ok(())
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn max_body(&self) -> u64 {
        table::MAX_VALUE
    }

    fn syncs(&self) -> u64 {
        self.rows.syncs()
    }

    fn last_lsn(&self) -> Result<Lsn> {
        let noted = self.meta(META_LSN)?.unwrap_or(0);
        let in_log = match guarded("read", || self.rows.last(Table::Log, &[], &END))? {
            None => 0,
            Some((key, _)) => number("log", &key, &key)?,
        };
        if in_log > noted {
            return Err(rows::corrupt("meta", META_LSN, &format!("it says {noted}, but the log ends at {in_log}")));
        }
        Ok(Lsn(noted))
    }

    fn frame(&self, lsn: Lsn) -> Result<Option<StoredFrame>> {
        Ok(self.get(Table::Log, &lsn.0.to_be_bytes())?.map(StoredFrame::Bytes))
    }

    fn frames(&self, from: Lsn, visit: &mut dyn FnMut(Lsn, StoredFrame) -> Go) -> Result<()> {
        self.scan(Table::Log, &from.0.to_be_bytes(), &END, |key, frame| {
            Ok(visit(Lsn(number("log", key, key)?), StoredFrame::Bytes(frame.to_vec())))
        })
    }

    fn places(&self, session: SessionId) -> Result<Vec<(Seq, Lsn)>> {
        self.places_until(session, Seq(0), usize::MAX)
    }

    fn places_from(&self, session: SessionId, from: Seq, most: usize) -> Result<Vec<(Seq, Lsn)>> {
        let first = self.place_before(session, from)?.map_or(from, |(seq, _)| seq);
        self.places_until(session, first, most)
    }

    fn last_place(&self, session: SessionId) -> Result<Option<(Seq, Lsn)>> {
        self.place_before(session, Seq(u64::MAX))
    }

    fn all_places(&self, visit: &mut dyn FnMut(SessionId, Seq, Lsn) -> Go) -> Result<()> {
        self.scan(Table::Ev, &[], &END, |key, value| {
            let (session, seq, lsn) = place(key, value)?;
            Ok(visit(session, seq, lsn))
        })
    }

    fn head(&self, session: SessionId) -> Result<Option<Head>> {
        self.row(Table::Head, session)
    }

    fn heads(&self, visit: &mut dyn FnMut(SessionId, Result<Head>) -> Go) -> Result<()> {
        self.all(Table::Head, visit)
    }

    fn inflight(&self, session: SessionId) -> Result<Option<Inflight>> {
        self.row(Table::Inflight, session)
    }

    fn inflights(&self, visit: &mut dyn FnMut(SessionId, Result<Inflight>) -> Go) -> Result<()> {
        self.all(Table::Inflight, visit)
    }

    fn kids(&self, parent: SessionId) -> Result<Vec<SessionId>> {
        let min = rows::kid_key(parent, rows::session_of([0; SESSION]));
        let max = rows::kid_key(parent, rows::session_of([0xff; SESSION]));
        let mut kids = Vec::new();
        self.scan(Table::Kid, &min, &max, |key, _| {
            kids.extend(rows::kid_of(sized::<KID>(Table::Kid, key)?).map(|(_, kid)| kid));
            Ok(GO)
        })?;
        Ok(kids)
    }

    fn all_kids(&self, visit: &mut dyn FnMut(SessionId, SessionId) -> Go) -> Result<()> {
        self.scan(Table::Kid, &[], &END, |key, _| {
            let named = rows::kid_of(sized::<KID>(Table::Kid, key)?);
            Ok(named.map_or(GO, |(parent, kid)| visit(parent, kid)))
        })
    }

    fn outbox(&self, to: Option<SessionId>, visit: &mut dyn FnMut(Result<(Row, Lsn)>) -> Go) -> Result<()> {
        let (min, max) = rows::outbox_range(to);
        self.scan(Table::Outbox, &min, &max, |key, value| {
            Ok(visit(rows::obligation(sized::<OUTBOX>(Table::Outbox, key)?, value)))
        })
    }

    fn def(&self, hash: Hash) -> Result<Option<Text>> {
        self.get(Table::Def, &hash.0)?.map(|body| text(hash, &body)).transpose()
    }

    fn defs(&self, visit: &mut dyn FnMut(Hash, Result<Text>) -> Go) -> Result<()> {
        self.scan(Table::Def, &[], &END, |key, body| {
            let hash = Hash(*sized::<SESSION>(Table::Def, key)?);
            Ok(visit(hash, text(hash, body)))
        })
    }
}
