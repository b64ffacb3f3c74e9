//! Whether the disk below the store keeps what it is given: a file is really written and synced.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::data::StoreLocation;
use super::{DoctorArea, Finding};

/// Syncs that are timed.
const SYNCS: usize = 9;
/// Below, a disk can hardly have answered.
const TOO_FAST: Duration = Duration::from_micros(25);
/// Above, each acknowledgement is felt.
const SLOW: Duration = Duration::from_millis(50);
const MIB: u64 = 1 << 20;
/// Below, the store may fail with the next run.
const FULL: u64 = 64 * MIB;
/// Below, it is time to make room.
const TIGHT: u64 = 1024 * MIB;

pub(super) fn look(place: &StoreLocation) -> Vec<Finding> {
    let Some(store) = place.path() else {
        let kept = if place.is_in_memory() { "in memory" } else { "in a database" };
        let found = format!("not checked: the store is {kept}");
        return vec![Finding { advice: None, ..Finding::note(DoctorArea::Disk, "sync", found, "") }];
    };
    let dir = nearest(store);
    let kind = kind_of(&dir);
    let sync = match timed(&dir) {
        Ok(took) => speed(took, kind.as_ref().is_none_or(|kind| kind.keeps == Keeps::Disk)),
        Err(error) => Finding::bad(
            DoctorArea::Disk,
            "sync",
            format!("a file in {} cannot be written and synced: {error}", dir.display()),
            "check the permissions, the free space and the health of that disk, or choose another with --data DIR",
        ),
    };
    [Some(file_system(&dir, kind)), Some(sync), free(&dir).map(room)].into_iter().flatten().collect()
}

fn nearest(store: &Path) -> PathBuf {
    let absolute = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
    absolute.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new(".")).to_owned()
}

struct Trial {
    file: File,
    path: PathBuf,
}

impl Trial {
    fn make(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".subtend-doctor-{}", std::process::id()));
        // Never an existing file, which may be a link in a shared directory. One of a killed process with the same id
        // is removed.
        let made = || OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match made() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&path).and_then(|()| made())
            }
            made => made,
        }?;
        Ok(Self { file, path })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            drop(writeln!(anstream::stderr(), "{} cannot be removed: {error}", self.path.display()));
        }
    }
}

/// Returns the median time of a sync of 4 KiB, after one of the directory.
#[expect(clippy::disallowed_methods, reason = "a disk is timed by the real clock; nothing is decided by it")]
fn timed(dir: &Path) -> io::Result<Duration> {
    let mut trial = Trial::make(dir)?;
    File::open(dir)?.sync_all()?;
    let mut times = Vec::with_capacity(SYNCS);
    for n in 0..SYNCS {
        trial.file.rewind()?;
        trial.file.write_all(&[u8::try_from(n).unwrap_or_default(); 4096])?;
        let before = Instant::now();
        trial.file.sync_data()?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(SYNCS / 2).copied().unwrap_or_default())
}

fn speed(took: Duration, disk: bool) -> Finding {
    let found = format!("one of 4 KiB takes {} µs (median of {SYNCS})", took.as_micros());
    if disk && took < TOO_FAST {
        let advice = "no disk is so fast: a cache answers for it. See that it is protected against loss of power, or that \
                      the virtual machine's disk does not ignore flushes; a killed process loses nothing either way";
        return Finding::note(DoctorArea::Disk, "sync", found, advice);
    }
    if took > SLOW {
        let advice = "every acknowledgement waits for one: put the store on a faster disk with --data DIR";
        return Finding::note(DoctorArea::Disk, "sync", found, advice);
    }
    Finding::good(DoctorArea::Disk, "sync", found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keeps {
    Disk,
    Memory,
    Container,
    Network,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Filesystem {
    name: String,
    keeps: Keeps,
}

fn named(magic: u64) -> Filesystem {
    let (name, keeps) = match magic {
        0xef53 => ("ext4", Keeps::Disk),
        0x5846_5342 => ("xfs", Keeps::Disk),
        0x9123_683e => ("btrfs", Keeps::Disk),
        0x2fc1_2fc1 => ("zfs", Keeps::Disk),
        0xf2f5_2010 => ("f2fs", Keeps::Disk),
        0xca45_1a4e => ("bcachefs", Keeps::Disk),
        0x0102_1994 => ("tmpfs", Keeps::Memory),
        0x8584_58f6 => ("ramfs", Keeps::Memory),
        0x794c_7630 => ("overlay", Keeps::Container),
        0x6175_6673 => ("aufs", Keeps::Container),
        0x6969 => ("nfs", Keeps::Network),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("smb", Keeps::Network),
        0x0102_1997 => ("9p", Keeps::Network),
        0x6573_5546 => ("fuse", Keeps::Network),
        0x6a65_6a63 => ("virtiofs", Keeps::Network),
        0x00c3_6400 => ("ceph", Keeps::Network),
        0x5346_414f => ("afs", Keeps::Network),
        other => return Filesystem { name: format!("{other:#x}"), keeps: Keeps::Unknown },
    };
    Filesystem { name: name.to_owned(), keeps }
}

#[cfg(target_os = "linux")]
fn kind_of(dir: &Path) -> Option<Filesystem> {
    let magic = rustix::fs::statfs(dir).ok()?.f_type;
    // Some systems have it signed and of 32 bits: only these are meant.
    u64::try_from(magic & 0xffff_ffff).ok().map(named)
}

#[cfg(not(target_os = "linux"))]
fn kind_of(_: &Path) -> Option<Filesystem> {
    None
}

fn file_system(dir: &Path, kind: Option<Filesystem>) -> Finding {
    let place = dir.display();
    let Some(Filesystem { name, keeps }) = kind else {
        let found = format!("the file system of {place} cannot be determined on this system");
        return Finding::note(
            DoctorArea::Disk,
            "file system",
            found,
            "make sure that it is a local disk: others lose data, or acknowledge what they did not write",
        );
    };
    let check = "file system";
    match keeps {
        Keeps::Disk => Finding::good(DoctorArea::Disk, check, format!("{name} at {place}")),
        Keeps::Memory => Finding::bad(
            DoctorArea::Disk,
            check,
            format!("{name} at {place} is memory: all sessions are gone when the machine stops"),
            "choose a directory on a disk with --data DIR",
        ),
        Keeps::Container => Finding::note(
            DoctorArea::Disk,
            check,
            format!(
                "{name} at {place} is a container's own layer: all sessions are gone when the container is removed"
            ),
            "mount a volume, and choose it with --data DIR, if they are to stay",
        ),
        Keeps::Network => Finding::bad(
            DoctorArea::Disk,
            check,
            format!("{name} at {place} is not a local disk: locks and syncs may not hold there"),
            "choose a directory on a local disk with --data DIR",
        ),
        Keeps::Unknown => Finding::note(
            DoctorArea::Disk,
            check,
            format!("{place} is on a file system of unknown kind {name}"),
            "make sure that it is a local disk: others lose data, or acknowledge what they did not write",
        ),
    }
}

fn free(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn room(bytes: u64) -> Finding {
    let found = format!("{} MiB", bytes / MIB);
    if bytes < FULL {
        let advice = "make room: a store that cannot write acknowledges nothing more until it is opened again";
        return Finding::bad(DoctorArea::Disk, "free space", found, advice);
    }
    if bytes < TIGHT {
        return Finding::note(DoctorArea::Disk, "free space", found, "make room before it is needed");
    }
    Finding::good(DoctorArea::Disk, "free space", found)
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn filesystems_that_lose_data_are_bad() {
        let grade = |magic| file_system(Path::new("/data"), Some(named(magic))).grade;
        let grades = [0xef53, 0x0102_1994, 0x794c_7630, 0x6969, 0x1234].map(grade);
        assert_eq!(grades, [Grade::Good, Grade::Bad, Grade::Note, Grade::Bad, Grade::Note]);
    }

    #[test]
    fn implausibly_fast_sync_is_reported() {
        let grade = |micros, disk| speed(Duration::from_micros(micros), disk).grade;
        assert_eq!([grade(3, true), grade(3, false), grade(900, true)], [Grade::Note, Grade::Good, Grade::Good]);
        assert_eq!(grade(80_000, true), Grade::Note);
    }

    #[test]
    fn a_full_disk_must_be_seen_to() {
        assert_eq!([1, 100, 5_000].map(|mib| room(mib * MIB).grade), [Grade::Bad, Grade::Note, Grade::Good]);
    }

    #[test]
    fn a_trial_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let left = dir.path().join(format!(".subtend-doctor-{}", std::process::id()));
        std::fs::write(left, "of a killed process").expect("a file");
        timed(dir.path()).expect("it is timed");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
        assert_eq!(nearest(&dir.path().join("not/there")), dir.path());
        assert!(timed(&dir.path().join("not")).is_err());
    }
}
