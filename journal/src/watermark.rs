//! The watermark: a small file beside the store that remembers how far it was acknowledged.
//!
//! A cleanly lost tail takes its index rows with it and cannot be seen from inside the store; this sees it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use subtend_session::ids::Lsn;

use crate::error::OpenError;

const MAGIC: u32 = 0x5375_576d;
const SLOT: usize = 24;
/// A sector a slot: a torn write cannot reach both.
const STRIDE: u64 = 512;
/// Time of the frames between two writes.
const INTERVAL_MS: u64 = 1000;
/// Commits between two writes where the frames' clock stands.
const INTERVAL_COMMITS: u32 = 256;

/// The watermark of an open store.
#[derive(Debug)]
pub(crate) struct Watermark {
    file: File,
    path: PathBuf,
    lsn: Lsn,
    at_ms: i64,
    seen_ms: i64,
    commits: u32,
    next_slot: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    lsn: Lsn,
    at_ms: i64,
}

impl Watermark {
    /// Opens the watermark of the store in `dir`, which ends at `found`; refuses a store that ends before it.
    pub(crate) fn open(dir: &Path, found: Lsn, accept_loss: bool) -> Result<Self, OpenError> {
        let path = dir.join("WATERMARK");
        let io = |what| {
            let path = path.clone();
            move |source| OpenError::Io { what, path, source }
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io("open the watermark"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        let slots = [slot_at(&bytes, 0), slot_at(&bytes, STRIDE)];
        let best = slots.iter().flatten().max_by_key(|slot| slot.lsn).copied();
        let newest_is_first = best.is_some() && slots.first().copied().flatten() == best;
        match best {
            Some(slot) if slot.lsn > found && !accept_loss => {
                return Err(OpenError::Behind { found, watermark: slot.lsn });
            }
            // An empty file is one that was never written: the store is younger than the interval.
            None if !bytes.is_empty() && !accept_loss => return Err(OpenError::Watermark { path }),
            _ => {}
        }
        let at_ms = best.map_or(0, |slot| slot.at_ms);
        let mut mark = Self {
            file,
            path: path.clone(),
            lsn: best.map_or(Lsn(0), |slot| slot.lsn),
            at_ms,
            seen_ms: at_ms,
            commits: 0,
            next_slot: if newest_is_first { STRIDE } else { 0 },
        };
        if mark.lsn > found || (best.is_none() && !bytes.is_empty()) {
            // The loss is accepted: both slots are written anew, or the old one would win again.
            mark.put(found).map_err(io("write"))?;
            mark.put(found).map_err(io("write"))?;
        }
        Ok(mark)
    }

    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Notes that everything up to `lsn` was acknowledged; writes it when the last writing is long enough ago.
    ///
    /// The frames' own clock tells the time, since none is read here. When it stands, commits are counted.
    pub(crate) fn passed(&mut self, lsn: Lsn, at_ms: i64) {
        self.seen_ms = at_ms;
        self.commits = self.commits.saturating_add(1);
        if at_ms.abs_diff(self.at_ms) >= INTERVAL_MS || self.commits >= INTERVAL_COMMITS {
            self.write(lsn);
        }
    }

    /// Writes `lsn` now. A failure leaves the old mark, which only sees less; it is told once in the log.
    pub(crate) fn write(&mut self, lsn: Lsn) {
        if lsn <= self.lsn {
            return;
        }
        if let Err(error) = self.put(lsn) {
            tracing::warn!(%error, path = %self.path.display(), "the watermark cannot be written");
        }
    }

    fn put(&mut self, lsn: Lsn) -> std::io::Result<()> {
        self.at_ms = self.seen_ms;
        self.commits = 0;
        self.file.seek(SeekFrom::Start(self.next_slot))?;
        self.file.write_all(&slot_bytes(Slot { lsn, at_ms: self.at_ms }))?;
        self.file.sync_data()?;
        self.next_slot = STRIDE - self.next_slot;
        self.lsn = lsn;
        Ok(())
    }
}

fn slot_bytes(slot: Slot) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SLOT);
    bytes.extend_from_slice(&MAGIC.to_be_bytes());
    bytes.extend_from_slice(&slot.lsn.0.to_be_bytes());
    bytes.extend_from_slice(&slot.at_ms.to_be_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

fn slot_at(bytes: &[u8], at: u64) -> Option<Slot> {
    let at = usize::try_from(at).ok()?;
    let slot = bytes.get(at..)?.first_chunk::<SLOT>()?;
    let (magic, rest) = slot.split_first_chunk::<4>()?;
    let (lsn, rest) = rest.split_first_chunk::<8>()?;
    let (at_ms, _) = rest.split_first_chunk::<8>()?;
    let (sealed, crc) = slot.split_last_chunk::<4>()?;
    (u32::from_be_bytes(*magic) == MAGIC && crc32c::crc32c(sealed) == u32::from_be_bytes(*crc))
        .then_some(Slot { lsn: Lsn(u64::from_be_bytes(*lsn)), at_ms: i64::from_be_bytes(*at_ms) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path, found: u64, accept: bool) -> Result<Lsn, String> {
        Watermark::open(dir, Lsn(found), accept).map(|mark| mark.lsn()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_store_behind_its_mark_is_refused_until_the_loss_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Watermark::open(dir.path(), Lsn(0), false).unwrap();
        mark.write(Lsn(7));
        mark.write(Lsn(9));
        drop(mark);
        assert_eq!(open(dir.path(), 9, false), Ok(Lsn(9)));
        let refused = open(dir.path(), 8, false).unwrap_err();
        assert!(refused.contains("ends at lsn 8, but 9 was acknowledged"), "{refused}");
        assert_eq!(open(dir.path(), 8, true), Ok(Lsn(8)));
        assert_eq!(open(dir.path(), 8, false), Ok(Lsn(8)));
    }

    #[test]
    fn one_torn_slot_leaves_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Watermark::open(dir.path(), Lsn(0), false).unwrap();
        mark.write(Lsn(7));
        mark.write(Lsn(9));
        drop(mark);
        let path = dir.path().join("WATERMARK");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[STRIDE as usize + 9] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(open(dir.path(), 7, false), Ok(Lsn(7)));
        bytes[9] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(open(dir.path(), 7, false).unwrap_err().contains("is damaged"));
        assert_eq!(open(dir.path(), 7, true), Ok(Lsn(7)));
        assert_eq!(open(dir.path(), 7, false), Ok(Lsn(7)));
    }

    #[test]
    fn the_frames_clock_spaces_the_writes() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Watermark::open(dir.path(), Lsn(0), false).unwrap();
        mark.passed(Lsn(1), 999);
        assert_eq!(mark.lsn(), Lsn(0));
        mark.passed(Lsn(2), 1000);
        assert_eq!(mark.lsn(), Lsn(2));
        mark.passed(Lsn(3), 1999);
        assert_eq!(mark.lsn(), Lsn(2));
        // The clock went back by an hour.
        mark.passed(Lsn(4), -3_600_000);
        assert_eq!(mark.lsn(), Lsn(4));
    }
}
