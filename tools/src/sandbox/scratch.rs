//! A temporary directory for one command, removed when the command has ended.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Maximum number of names to try, because killed guards leave directories behind.
const MAX_TRIES: u32 = 10_000;

/// An empty directory that only this user can enter; removed with its contents on drop.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn create() -> io::Result<Self> {
        // A path without links: the sandbox refuses a path with a link, because a session may have created that link.
        let base = std::env::temp_dir().canonicalize()?;
        check_owners(&base)?;
        let id = std::process::id();
        for n in 0..MAX_TRIES {
            let path = base.join(format!("subtend-{id}-{n}"));
            match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// The owner of files of users who are not mapped into this user namespace, such as the superuser.
const UNMAPPED: u32 = 65_534;

/// Returns whether this user namespace lacks some users. Otherwise `UNMAPPED` is an ordinary user.
fn has_unmapped_users() -> bool {
    let Ok(map) = std::fs::read_to_string("/proc/self/uid_map") else { return false };
    let holds = |line: &str| {
        let mut fields = line.split_whitespace().filter_map(|field| field.parse::<u64>().ok());
        let (first, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((first..first.saturating_add(count)).contains(&u64::from(UNMAPPED)))
    };
    !map.lines().any(|line| holds(line).unwrap_or(true))
}

/// Refuses a directory whose entries another user could replace: that user would choose the `HOME` of the command, and with the files in
/// it what programs such as git start.
fn check_owners(base: &Path) -> io::Result<()> {
    let unmapped = has_unmapped_users().then_some(UNMAPPED);
    let own = rustix::process::geteuid().as_raw();
    for dir in base.ancestors() {
        let found = dir.metadata()?;
        let is_foreign = ![own, 0].contains(&found.uid()) && Some(found.uid()) != unmapped;
        // In a sticky directory users can replace only their own files. A group with the number of the user is private.
        let is_shared = found.mode() & 0o002 != 0 || (found.mode() & 0o020 != 0 && ![own, 0].contains(&found.gid()));
        if is_foreign || (is_shared && found.mode() & 0o1000 == 0) {
            let shown = dir.display();
            return Err(io::Error::other(format!(
                "other users can replace files in {shown}: name another directory by TMPDIR, or set its sticky bit (chmod +t)"
            )));
        }
    }
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = crate::removal::remove(&self.0) {
            // Write to the output of the command, which has a reader. An error means that the output is closed.
            let _ = writeln!(io::stderr(), "guard: files of the command remain: {error}");
        }
    }
}
