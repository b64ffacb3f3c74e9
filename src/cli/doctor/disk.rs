//! Checks of the disk below the store: file system, time of a sync, and free space.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::data::StoreLocation;
use super::{DoctorArea, Finding};

/// Number of syncs that are timed.
const SYNCS: usize = 9;
/// Sync time below which the disk cannot have written the data.
const SYNC_TOO_FAST: Duration = Duration::from_micros(25);
/// Sync time above which users notice the delay of each acknowledgement.
const SLOW_SYNC: Duration = Duration::from_millis(50);
const MIB: u64 = 1 << 20;
/// Free space below which the next run may fail.
const MIN_FREE: u64 = 64 * MIB;
/// Free space below which the user should free some soon.
const LOW_FREE: u64 = 1024 * MIB;

pub(super) fn check(place: &StoreLocation) -> Vec<Finding> {
    let Some(store) = place.path() else {
        let kept = if place.is_in_memory() { "in memory" } else { "in a database" };
        let found = format!("not checked: the store is {kept}");
        return vec![Finding { advice: None, ..Finding::note(DoctorArea::Disk, "sync", found, "") }];
    };
    let dir = nearest_dir(store);
    let kind = kind_of(&dir);
    let sync = match sync_time(&dir) {
        Ok(took) => sync_finding(took, kind.as_ref().is_none_or(|kind| kind.medium == DiskKind::Disk)),
        Err(error) => Finding::bad(
            DoctorArea::Disk,
            "sync",
            format!("a file in {} cannot be written and synced: {error}", dir.display()),
            "check the permissions, the free space and the health of that disk, or choose another with --data DIR",
        ),
    };
    [Some(file_system(&dir, kind)), Some(sync), free(&dir).map(free_space)].into_iter().flatten().collect()
}

fn nearest_dir(store: &Path) -> PathBuf {
    let absolute = std::path::absolute(store).unwrap_or_else(|_| store.to_owned());
    absolute.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new(".")).to_owned()
}

struct ProbeFile {
    file: File,
    path: PathBuf,
}

impl ProbeFile {
    fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!(".subtend-doctor-{}", std::process::id()));
        // Never open an existing file, which may be a link in a shared directory. Remove a leftover of a killed process
        // with the same id.
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

impl Drop for ProbeFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            drop(writeln!(anstream::stderr(), "{} cannot be removed: {error}", self.path.display()));
        }
    }
}

/// Returns the median time of a sync of 4 KiB.
#[expect(clippy::disallowed_methods, reason = "the disk is timed by the real clock; no decision depends on it")]
fn sync_time(dir: &Path) -> io::Result<Duration> {
    let mut probe = ProbeFile::create(dir)?;
    File::open(dir)?.sync_all()?;
    let mut times = Vec::with_capacity(SYNCS);
    for n in 0..SYNCS {
        probe.file.rewind()?;
        probe.file.write_all(&[u8::try_from(n).unwrap_or_default(); 4096])?;
        let before = Instant::now();
        probe.file.sync_data()?;
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Ok(times.get(SYNCS / 2).copied().unwrap_or_default())
}

fn sync_finding(took: Duration, disk: bool) -> Finding {
    let found = format!("a sync of 4 KiB takes {} µs (median of {SYNCS})", took.as_micros());
    if disk && took < SYNC_TOO_FAST {
        let advice = "no disk is so fast: a cache acknowledges the sync. Make sure that it is protected against loss of power, or that \
        the virtual machine's disk does not ignore flushes; a killed process loses nothing either way";
        return Finding::note(DoctorArea::Disk, "sync", found, advice);
    }
    if took > SLOW_SYNC {
        let advice = "every acknowledgement waits for a sync: put the store on a faster disk with --data DIR";
        return Finding::note(DoctorArea::Disk, "sync", found, advice);
    }
    Finding::good(DoctorArea::Disk, "sync", found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiskKind {
    Disk,
    Memory,
    Container,
    Network,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Filesystem {
    name: String,
    medium: DiskKind,
}

fn filesystem_of(magic: u64) -> Filesystem {
    let (name, medium) = match magic {
        0xef53 => ("ext4", DiskKind::Disk),
        0x5846_5342 => ("xfs", DiskKind::Disk),
        0x9123_683e => ("btrfs", DiskKind::Disk),
        0x2fc1_2fc1 => ("zfs", DiskKind::Disk),
        0xf2f5_2010 => ("f2fs", DiskKind::Disk),
        0xca45_1a4e => ("bcachefs", DiskKind::Disk),
        0x0102_1994 => ("tmpfs", DiskKind::Memory),
        0x8584_58f6 => ("ramfs", DiskKind::Memory),
        0x794c_7630 => ("overlay", DiskKind::Container),
        0x6175_6673 => ("aufs", DiskKind::Container),
        0x6969 => ("nfs", DiskKind::Network),
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => ("smb", DiskKind::Network),
        0x0102_1997 => ("9p", DiskKind::Network),
        0x6573_5546 => ("fuse", DiskKind::Network),
        0x6a65_6a63 => ("virtiofs", DiskKind::Network),
        0x00c3_6400 => ("ceph", DiskKind::Network),
        0x5346_414f => ("afs", DiskKind::Network),
        other => return Filesystem { name: format!("{other:#x}"), medium: DiskKind::Unknown },
    };
    Filesystem { name: name.to_owned(), medium }
}

#[cfg(target_os = "linux")]
fn kind_of(dir: &Path) -> Option<Filesystem> {
    let magic = rustix::fs::statfs(dir).ok()?.f_type;
    // On some systems the field is a signed 32-bit number; mask the sign extension.
    u64::try_from(magic & 0xffff_ffff).ok().map(filesystem_of)
}

#[cfg(not(target_os = "linux"))]
fn kind_of(_: &Path) -> Option<Filesystem> {
    None
}

fn file_system(dir: &Path, kind: Option<Filesystem>) -> Finding {
    let place = dir.display();
    let Some(Filesystem { name, medium }) = kind else {
        let found = format!("the file system of {place} cannot be determined on this system");
        return Finding::note(
            DoctorArea::Disk,
            "file system",
            found,
            "make sure that it is a local disk: others may lose data, or acknowledge writes that they did not make",
        );
    };
    let check = "file system";
    match medium {
        DiskKind::Disk => Finding::good(DoctorArea::Disk, check, format!("{name} at {place}")),
        DiskKind::Memory => Finding::bad(
            DoctorArea::Disk,
            check,
            format!("{name} at {place} is in memory: all sessions are lost when the machine stops"),
            "choose a directory on a disk with --data DIR",
        ),
        DiskKind::Container => Finding::note(
            DoctorArea::Disk,
            check,
            format!(
                "{name} at {place} is a container's own layer: all sessions are lost when the container is removed"
            ),
            "to keep them, mount a volume and choose it with --data DIR",
        ),
        DiskKind::Network => Finding::bad(
            DoctorArea::Disk,
            check,
            format!("{name} at {place} is not a local disk: locks and syncs may not hold there"),
            "choose a directory on a local disk with --data DIR",
        ),
        DiskKind::Unknown => Finding::note(
            DoctorArea::Disk,
            check,
            format!("{place} is on a file system of unknown kind {name}"),
            "make sure that it is a local disk: others may lose data, or acknowledge writes that they did not make",
        ),
    }
}

fn free(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn free_space(bytes: u64) -> Finding {
    let found = format!("{} MiB", bytes / MIB);
    if bytes < MIN_FREE {
        let advice = "free some space: after a failed write, the store accepts nothing until it is opened again";
        return Finding::bad(DoctorArea::Disk, "free space", found, advice);
    }
    if bytes < LOW_FREE {
        return Finding::note(DoctorArea::Disk, "free space", found, "free some space soon");
    }
    Finding::good(DoctorArea::Disk, "free space", found)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;

    #[test]
    fn filesystems_that_lose_data_are_bad() {
        let grade = |magic| file_system(Path::new("/data"), Some(filesystem_of(magic))).grade;
        let grades = [0xef53, 0x0102_1994, 0x794c_7630, 0x6969, 0x1234].map(grade);
        assert_eq!(grades, [Severity::Good, Severity::Bad, Severity::Note, Severity::Bad, Severity::Note]);
    }

    #[test]
    fn implausibly_fast_sync_is_reported() {
        let grade = |micros, disk| sync_finding(Duration::from_micros(micros), disk).grade;
        assert_eq!(
            [grade(3, true), grade(3, false), grade(900, true)],
            [Severity::Note, Severity::Good, Severity::Good]
        );
        assert_eq!(grade(80_000, true), Severity::Note);
    }

    #[test]
    fn low_free_space_is_reported() {
        assert_eq!(
            [1, 100, 5_000].map(|mib| free_space(mib * MIB).grade),
            [Severity::Bad, Severity::Note, Severity::Good]
        );
    }

    #[test]
    fn probe_file_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let left = dir.path().join(format!(".subtend-doctor-{}", std::process::id()));
        std::fs::write(left, "of a killed process").expect("a file");
        sync_time(dir.path()).expect("it is timed");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
        assert_eq!(nearest_dir(&dir.path().join("not/there")), dir.path());
        assert!(sync_time(&dir.path().join("not")).is_err());
    }
}
