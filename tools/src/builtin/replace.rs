//! Atomic replacement of a file: a reader sees either the old or the new content.

use std::io::{self, Write as _};
use std::path::Path;

use cap_std::fs::{Dir, Metadata};
use subtend_session::ids::Text;

use super::file_tool::Job;
use super::open;
use crate::checkpoint::{CheckpointError, PlannedWrite};
use crate::path::join;
use crate::policy;
use crate::tool::ToolError;
use crate::workspace::{beneath, failure, mode};

/// Number of copies of a file's content that a call takes: the old and the new one, one that is compared, and those of growing buffers.
const COPIES: usize = 5;
/// Maximum bytes of a file that a call reads before it replaces it.
const MAX_READ: u64 = 16 << 20;

/// Returns the bytes of the file at `real` that a call reads before it replaces it. Searches other names of the file now: a call that has its
/// memory and waits for a search would keep others waiting. The call itself reports an error.
pub(super) fn present_bytes(job: &Job, real: &str) -> usize {
    let Some(found) = open::metadata(job, Path::new(real)).ok().filter(Metadata::is_file) else { return 0 };
    drop(open::regular(job, Path::new(real)));
    let present = found.len().min(MAX_READ);
    usize::try_from(present).unwrap_or(usize::MAX)
}

/// Returns the bytes that a call takes that replaces a file with `present` bytes with one that has up to `more` of them.
pub(super) fn memory_of(present: usize, more: usize) -> usize {
    present.saturating_add(more).saturating_mul(COPIES)
}

#[derive(Debug)]
pub(super) struct WriteTarget {
    pub(super) real: Text,
    pub(super) present: Option<mode::KeptMode>,
    /// The first missing directory on the path to a new file.
    missing_dir: Option<String>,
}

impl WriteTarget {
    /// Resolves the target and checks that writing there is permitted.
    pub(super) fn find(job: &Job, actions: &[&str], path: &str) -> Result<Self, ToolError> {
        if path == "." {
            return Err(ToolError::bad_args("the path names the workspace itself: name a file in it"));
        }
        let dir = job.workspace.dir();
        match dir.symlink_metadata(path) {
            Ok(found) if found.is_dir() => {
                Err(ToolError::bad_args(format!("`{path}` is a directory: name a file in it")))
            }
            Ok(_) => {
                let real = job.real(actions, path)?;
                check_spelling(path, &real)?;
                let found = open::metadata(job, Path::new(&*real)).map_err(|error| failure("write", path, &error))?;
                if !found.is_file() {
                    return Err(ToolError::refused(format!("`{path}` is not a regular file: it cannot be replaced")));
                }
                let kept =
                    beneath::parent(dir, Path::new(&*real)).map(|(dir, name)| mode::kept_mode(&dir, name, &found));
                let kept = kept.map_err(|error| failure("write", path, &error))?;
                Ok(Self { real, present: Some(kept), missing_dir: None })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::new_file(job, actions, path),
            Err(error) => Err(failure("write", path, &error)),
        }
    }

    fn new_file(job: &Job, actions: &[&str], path: &str) -> Result<Self, ToolError> {
        let mut rest = path;
        let mut missing = Vec::new();
        let base = loop {
            let (parent, name) = rest.rsplit_once('/').unwrap_or((".", rest));
            missing.push(name);
            match job.workspace.real(parent) {
                Ok(real) => break real,
                Err(error) if parent == "." || error.kind != subtend_session::call::ToolErrorKind::NotFound => {
                    return Err(error);
                }
                Err(_) => rest = parent,
            }
        };
        let missing_dir = missing.last().filter(|_| missing.len() > 1).map(|first| join(&base, first));
        let real = missing.iter().rev().fold(base.to_string(), |dir, name| join(&dir, name));
        check_spelling(path, &real)?;
        // A link on the path may lead to another place than the checked path.
        job.check_link_target(actions, path, &real)?;
        Ok(Self { real: real.into(), present: None, missing_dir })
    }

    /// Saves the old content in a checkpoint, writes a temporary file, then renames it. `based_on` is the content that an edit started from.
    pub(super) fn replace(
        &self,
        job: &Job,
        path: &str,
        (content, based_on): (&[u8], Option<&[u8]>),
    ) -> Result<(), ToolError> {
        let (parent, name) = self.real.rsplit_once('/').unwrap_or((".", &self.real));
        let write = PlannedWrite { path: &self.real, missing_dir: self.missing_dir.clone(), content, based_on };
        let saved = match &job.checkpoints {
            Some(checkpoints) => {
                let saved = checkpoints.save(job.key, &job.workspace, &write);
                Some(saved.map_err(|error| checkpoint_error(path, &error))?)
            }
            None => None,
        };
        // `saved` keeps the file locked until the write ends.
        let written = self.replace_in(job, parent, name, content).map_err(|error| failure("write", path, &error));
        if let (Err(_), Some(saved)) = (&written, &saved) {
            saved.undo();
        }
        written
    }

    /// Replaces the file. Retries if its directory disappears meanwhile: a restore removes directories that become empty.
    fn replace_in(&self, job: &Job, parent: &str, name: &str, content: &[u8]) -> io::Result<()> {
        const MAX_ATTEMPTS: usize = 10;
        let attempt = || self.replace_once(job, parent, name, content);
        let is_removed = |error: &io::Error| self.present.is_none() && error.kind() == io::ErrorKind::NotFound;
        let mut written = attempt();
        for _ in 1..MAX_ATTEMPTS {
            if !written.as_ref().is_err_and(is_removed) {
                break;
            }
            written = attempt();
        }
        written
    }

    fn replace_once(&self, job: &Job, parent: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let root = job.workspace.dir();
        let is_new = self.present.is_none() && parent != ".";
        let dir = if is_new { beneath::make_dir(root, parent)? } else { beneath::dir(root, Path::new(parent))? };
        let temporary = job.key.temporary_name();
        let written = self.fill(&dir, &temporary, content).and_then(|()| dir.rename(&temporary, &dir, name));
        if written.is_err() {
            // Report the first error, not an error of the removal.
            drop(dir.remove_file(&temporary));
        }
        written
    }

    fn fill(&self, dir: &Dir, temporary: &str, content: &[u8]) -> io::Result<()> {
        let create = || beneath::create(dir, temporary, self.present.is_some());
        let mut file = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                dir.remove_file(temporary)?;
                create()?
            }
            other => other?,
        };
        file.write_all(content)?;
        if let Some(kept) = &self.present {
            kept.apply(&file, |bits| bits)?;
        }
        // Without this sync, the file could be empty after a power failure.
        file.sync_all()
    }
}

fn check_spelling(path: &str, real: &str) -> Result<(), ToolError> {
    if policy::imitates_protected(real) {
        return Err(ToolError::refused(format!(
            "`{path}` is another spelling of a file that configures agents: use another name, or that of the file"
        )));
    }
    Ok(())
}

fn checkpoint_error(path: &str, error: &CheckpointError) -> ToolError {
    if let CheckpointError::Busy(_) = error {
        return ToolError { retryable: true, ..ToolError::refused(format!("{error}: repeat the call later")) };
    }
    if let CheckpointError::Changed(_) = error {
        return ToolError { retryable: true, ..ToolError::refused(format!("{error}: read it again, then edit")) };
    }
    ToolError::failed(format!("cannot write `{path}`: {error}; files are not written without a checkpoint"))
}
