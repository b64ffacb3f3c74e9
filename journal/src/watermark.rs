//! Watermark: a small file next to the store with the last acknowledged LSN.
//! If the end of the log is lost together with its index rows, the store itself cannot detect it. The file exists from the store's
//! creation, so a store with frames but without the file has lost it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use subtend_session::ids::Lsn;

use crate::error::{self, OpenError};
use crate::owner_only;

const NAME: &str = "WATERMARK";
const MAGIC: u32 = 0x5375_576d;
const SLOT: usize = 24;
/// One sector per slot, so that a torn write cannot damage both.
const STRIDE: u64 = 512;
/// Maximum delay of the mark. It is half of the promised second, because writing a group and the mark takes time.
pub(crate) const INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of commits between two writes of the mark.
const INTERVAL_COMMITS: u32 = 256;

#[derive(Debug)]
pub(crate) struct Watermark {
    file: File,
    path: PathBuf,
    lsn: Lsn,
    at_ms: i64,
    /// Time at which the first frame beyond the mark was acknowledged.
    since: Option<Instant>,
    commits: u32,
    next_slot: u64,
    /// True if the last write failed. Only changes are logged.
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkSlot {
    lsn: Lsn,
    at_ms: i64,
}

struct MarkState {
    path: PathBuf,
    slots: [Option<MarkSlot>; 2],
    state: &'static str,
}

impl MarkState {
    fn read(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        owner_only::check_entry(&path)?;
        let mut bytes = Vec::new();
        // A file of any size would fill the memory.
        let read = File::open(&path).and_then(|file| file.take(2 * STRIDE).read_to_end(&mut bytes));
        let missing = match read {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error::io("read", &path)(error)),
        };
        let state = match (missing, bytes.is_empty()) {
            (true, _) => "is missing",
            (false, true) => "is empty",
            (false, false) => "is damaged",
        };
        Ok(Self { path, slots: [slot_at(&bytes, 0), slot_at(&bytes, STRIDE)], state })
    }

    fn latest_slot(&self) -> Option<MarkSlot> {
        self.slots.iter().flatten().max_by_key(|slot| slot.lsn).copied()
    }

    /// Refuses a store that ends before the mark, and a store with frames but without a mark.
    fn check(&self, found: Lsn) -> Result<(), OpenError> {
        match self.latest_slot() {
            Some(slot) if slot.lsn > found => Err(OpenError::Behind { found, watermark: slot.lsn }),
            None if found > Lsn(0) || self.state == "is damaged" => {
                Err(OpenError::Watermark { path: self.path.clone(), state: self.state })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Watermark {
    /// Opens the watermark of the store in `dir`, which ends at `found`. Refuses a store that ends before the mark.
    pub(crate) fn open(dir: &Path, found: Lsn, accept_loss: bool) -> Result<Self, OpenError> {
        let state = MarkState::read(dir)?;
        if !accept_loss {
            state.check(found)?;
        }
        let io = |what| error::io(what, &state.path);
        // The file is not truncated, so that a crash cannot leave it without a mark.
        let file = owner_only::open_own(&state.path).map_err(io("open the watermark"))?;
        let best = state.latest_slot();
        let newest_is_first = best.is_some() && state.slots.first().copied().flatten() == best;
        let mut mark = Self {
            file,
            path: state.path.clone(),
            lsn: best.map_or(Lsn(0), |slot| slot.lsn),
            at_ms: best.map_or(0, |slot| slot.at_ms),
            since: None,
            commits: 0,
            next_slot: if newest_is_first { STRIDE } else { 0 },
            failed: false,
        };
        if best.is_none_or(|slot| slot.lsn != found) {
            // Rewrites both slots after a creation, a crash or an accepted loss, because the old mark would win.
            mark.put(found).map_err(io("write"))?;
            mark.put(found).map_err(io("write"))?;
        }
        Ok(mark)
    }

    /// Opens this machine's watermark, in `dir`, of a store that other machines write too; it may be missing.
    #[cfg(feature = "postgres")]
    pub(crate) fn open_shared(dir: &Path, found: Lsn, accept_loss: bool) -> Result<Self, OpenError> {
        owner_only::create_dir_all(dir).map_err(error::io("create", dir))?;
        let unknown = MarkState::read(dir)?.state == "is missing";
        Self::open(dir, found, accept_loss || unknown)
    }

    /// Checks like [`Watermark::open_shared`], without writing.
    #[cfg(feature = "postgres")]
    pub(crate) fn check_shared(dir: &Path, found: Lsn, accept_loss: bool) -> Result<(), OpenError> {
        let unknown = MarkState::read(dir)?.state == "is missing";
        Self::check(dir, found, accept_loss || unknown)
    }

    /// Checks like [`Watermark::open`], without writing.
    pub(crate) fn check(dir: &Path, found: Lsn, accept_loss: bool) -> Result<(), OpenError> {
        let state = MarkState::read(dir)?;
        if accept_loss { Ok(()) } else { state.check(found) }
    }

    /// Returns whether the mark of the store in `dir` shows that nothing was ever acknowledged.
    pub(crate) fn is_at_the_start(dir: &Path) -> Result<bool, OpenError> {
        Ok(MarkState::read(dir)?.latest_slot().is_some_and(|slot| slot.lsn == Lsn(0)))
    }

    #[cfg(test)]
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the time at which the mark must be written, or `None` if it is current.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.since.and_then(|since| since.checked_add(INTERVAL))
    }

    /// Records that everything up to `lsn`, whose last frame has the time `at_ms`, was acknowledged `now`. Writes the mark if it is due.
    pub(crate) fn record_acknowledged(&mut self, lsn: Lsn, at_ms: i64, now: Instant) {
        self.at_ms = at_ms;
        self.since.get_or_insert(now);
        self.commits = self.commits.saturating_add(1);
        if self.due_at().is_some_and(|due| due <= now) || self.commits >= INTERVAL_COMMITS {
            self.write(lsn);
        }
    }

    /// Writes `lsn` now. If that fails, the old mark detects less; logs the first failure and the next success.
    pub(crate) fn write(&mut self, lsn: Lsn) {
        // Set also on failure, to delay the next attempt.
        self.since = None;
        self.commits = 0;
        if lsn <= self.lsn {
            return;
        }
        let written = self.put(lsn);
        let failed_before = std::mem::replace(&mut self.failed, written.is_err());
        match written {
            Err(error) if !failed_before => {
                tracing::warn!(%error, path = %self.path.display(), "the watermark cannot be written");
            }
            Ok(()) if failed_before => tracing::info!(path = %self.path.display(), "the watermark is written again"),
            Ok(()) | Err(_) => {}
        }
    }

    fn put(&mut self, lsn: Lsn) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.next_slot))?;
        self.file.write_all(&slot_bytes(MarkSlot { lsn, at_ms: self.at_ms }))?;
        self.file.sync_data()?;
        self.next_slot = STRIDE - self.next_slot;
        self.lsn = lsn;
        Ok(())
    }
}

fn slot_bytes(slot: MarkSlot) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SLOT);
    bytes.extend_from_slice(&MAGIC.to_be_bytes());
    bytes.extend_from_slice(&slot.lsn.0.to_be_bytes());
    bytes.extend_from_slice(&slot.at_ms.to_be_bytes());
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc.to_be_bytes());
    bytes
}

fn slot_at(bytes: &[u8], at: u64) -> Option<MarkSlot> {
    let at = usize::try_from(at).ok()?;
    let slot = bytes.get(at..)?.first_chunk::<SLOT>()?;
    let (magic, rest) = slot.split_first_chunk::<4>()?;
    let (lsn, rest) = rest.split_first_chunk::<8>()?;
    let (at_ms, _) = rest.split_first_chunk::<8>()?;
    let (sealed, crc) = slot.split_last_chunk::<4>()?;
    (u32::from_be_bytes(*magic) == MAGIC && crc32c::crc32c(sealed) == u32::from_be_bytes(*crc))
        .then_some(MarkSlot { lsn: Lsn(u64::from_be_bytes(*lsn)), at_ms: i64::from_be_bytes(*at_ms) })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;

    #[derive(Clone, Default)]
    struct Logged(Arc<Mutex<Vec<String>>>);

    impl tracing::Subscriber for Logged {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut MessageVisitor(&mut self.0.lock().unwrap()));
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    struct MessageVisitor<'a>(&'a mut Vec<String>);

    impl Visit for MessageVisitor<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push(format!("{value:?}"));
            }
        }
    }

    fn open(dir: &Path, found: u64, accept: bool) -> Result<Lsn, String> {
        Watermark::open(dir, Lsn(found), accept).map(|mark| mark.lsn()).map_err(|error| error.to_string())
    }

    fn check(dir: &Path, found: u64, accept: bool) -> Result<(), String> {
        let before = std::fs::read(dir.join(NAME)).ok();
        let report = Watermark::check(dir, Lsn(found), accept).map_err(|error| error.to_string());
        assert_eq!(std::fs::read(dir.join(NAME)).ok(), before, "a check writes nothing");
        report
    }

    #[test]
    fn store_behind_its_mark_is_refused_until_loss_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Watermark::open(dir.path(), Lsn(0), false).unwrap();
        mark.write(Lsn(7));
        mark.write(Lsn(9));
        drop(mark);
        assert_eq!(open(dir.path(), 9, false), Ok(Lsn(9)));
        let refused = open(dir.path(), 8, false).unwrap_err();
        assert!(refused.contains("ends at lsn 8, but 9 was acknowledged"), "{refused}");
        assert_eq!((check(dir.path(), 8, false), check(dir.path(), 8, true)), (Err(refused), Ok(())));
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
        let path = dir.path().join(NAME);
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
    fn missing_mark_is_reported_when_the_store_holds_frames() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        assert_eq!(open(dir.path(), 0, false), Ok(Lsn(0)), "a new store has no mark");
        assert_ne!(std::fs::read(&path).unwrap(), b"", "a new store got no mark");
        assert_eq!(
            open(dir.path(), 7, false),
            Ok(Lsn(7)),
            "a killed process had not written the mark for these frames"
        );
        std::fs::write(&path, b"").unwrap();
        for (state, again) in [("is empty", true), ("is missing", false)] {
            let refused = open(dir.path(), 7, false).unwrap_err();
            assert!(refused.contains(state) && refused.contains("--accept-loss"), "{refused}");
            assert_eq!(check(dir.path(), 7, false), Err(refused));
            if again {
                std::fs::remove_file(&path).unwrap();
            }
        }
        assert!(!path.exists(), "a refusal creates no file");
        assert_eq!(open(dir.path(), 7, true), Ok(Lsn(7)));
        assert_eq!(open(dir.path(), 7, false), Ok(Lsn(7)));
    }

    #[test]
    fn mark_is_written_within_the_interval_after_acknowledgement() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Watermark::open(dir.path(), Lsn(0), false).unwrap();
        #[expect(clippy::disallowed_methods, reason = "any moment; the others are relative to it")]
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        // The frames' clock may stop or jump.
        mark.record_acknowledged(Lsn(1), 5_000, at(0));
        mark.record_acknowledged(Lsn(2), 5_000, at(499));
        assert_eq!((mark.lsn(), mark.due_at()), (Lsn(0), Some(at(500))), "an idle writer writes the mark then");
        mark.record_acknowledged(Lsn(3), -3_600_000, at(501));
        assert_eq!((mark.lsn(), mark.due_at()), (Lsn(3), None));
        mark.record_acknowledged(Lsn(4), 9_000, at(900));
        assert_eq!((mark.lsn(), mark.due_at()), (Lsn(3), Some(at(1_400))));
        mark.write(Lsn(4));
        assert_eq!((mark.lsn(), mark.due_at()), (Lsn(4), None));
        (5..5 + u64::from(INTERVAL_COMMITS)).for_each(|lsn| mark.record_acknowledged(Lsn(lsn), 9_000, at(901)));
        assert_eq!(mark.lsn(), Lsn(4 + u64::from(INTERVAL_COMMITS)), "many commits cause a write too");
    }

    #[test]
    fn failing_mark_is_logged_once_and_when_it_works_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut mark = Watermark::open(dir.path(), Lsn(0), false).unwrap();
        let (logged, read_only) = (Logged::default(), || File::open(dir.path().join(NAME)).unwrap());
        tracing::subscriber::with_default(logged.clone(), || {
            mark.write(Lsn(1));
            let writable = std::mem::replace(&mut mark.file, read_only());
            (2..5).for_each(|lsn| mark.write(Lsn(lsn)));
            mark.file = writable;
            (5..8).for_each(|lsn| mark.write(Lsn(lsn)));
            mark.file = read_only();
            mark.write(Lsn(8));
        });
        let (fails, works) = ("the watermark cannot be written", "the watermark is written again");
        assert_eq!(
            (logged.0.lock().unwrap().clone(), mark.lsn()),
            ([fails, works, fails].map(str::to_owned).to_vec(), Lsn(7))
        );
    }
}
