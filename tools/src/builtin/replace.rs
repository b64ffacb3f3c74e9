//! Atomic replacement of a file: a reader sees the old or the new content.

use std::io::{self, Write as _};
use std::path::Path;

use cap_std::fs::{Dir, Permissions};
use subtend_session::ids::Text;

use super::file_tool::Job;
use super::open;
use crate::checkpoint::{CheckpointError, PlannedWrite};
use crate::path::join;
use crate::tool::ToolError;
use crate::workspace::{beneath, failure};

#[derive(Debug)]
pub(super) struct WriteTarget {
    pub(super) real: Text,
    pub(super) present: Option<Permissions>,
    /// The first directory that has to be made for it.
    made: Option<String>,
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
                let found = open::metadata(job, Path::new(&*real)).map_err(|error| failure("write", path, &error))?;
                if !found.is_file() {
                    return Err(ToolError::refused(format!("`{path}` is not a regular file: it cannot be replaced")));
                }
                Ok(Self { real, present: Some(found.permissions()), made: None })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::new_file(job, actions, path),
            Err(error) => Err(failure("write", path, &error)),
        }
    }

    fn new_file(job: &Job, actions: &[&str], path: &str) -> Result<Self, ToolError> {
        let mut there = path;
        let mut missing = Vec::new();
        let base = loop {
            let (parent, name) = there.rsplit_once('/').unwrap_or((".", there));
            missing.push(name);
            match job.workspace.real(parent) {
                Ok(real) => break real,
                Err(error) if parent == "." || error.kind != subtend_session::call::ToolErrorKind::NotFound => {
                    return Err(error);
                }
                Err(_) => there = parent,
            }
        };
        let made = missing.last().filter(|_| missing.len() > 1).map(|first| join(&base, first));
        let real = missing.iter().rev().fold(base.to_string(), |dir, name| join(&dir, name));
        // A link on the way may lead elsewhere than the checked path.
        job.leads(actions, path, &real)?;
        Ok(Self { real: real.into(), present: None, made })
    }

    /// Saves what is replaced, writes a temporary file, then renames it. `based_on` is what the new content was made from.
    pub(super) fn replace(
        &self,
        job: &Job,
        path: &str,
        (content, based_on): (&[u8], Option<&[u8]>),
    ) -> Result<(), ToolError> {
        let (parent, name) = self.real.rsplit_once('/').unwrap_or((".", &self.real));
        let write = PlannedWrite { path: &self.real, made: self.made.clone(), content, based_on };
        let saved = match &job.checkpoints {
            Some(checkpoints) => {
                checkpoints.save(job.key, &job.workspace, &write).map_err(|error| unsaved(path, &error))?
            }
            None => None,
        };
        let written = self.replace_in(job, parent, name, content).map_err(|error| failure("write", path, &error));
        if let (Err(_), Some(saved)) = (&written, saved) {
            saved.undo();
        }
        written
    }

    fn replace_in(&self, job: &Job, parent: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let root = job.workspace.dir();
        let is_new = self.present.is_none() && parent != ".";
        let dir = if is_new { beneath::make_dir(root, parent)? } else { beneath::dir(root, Path::new(parent))? };
        // Named by the call, so that a repeat after a crash replaces the leftover.
        let temporary = format!(".subtend-{}-{}-{}.tmp", job.key.session, job.key.run, job.key.call);
        let written = self.fill(&dir, &temporary, content).and_then(|()| dir.rename(&temporary, &dir, name));
        if written.is_err() {
            // Report the first error.
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
        if let Some(permissions) = &self.present {
            file.set_permissions(permissions.clone())?;
        }
        // Before the rename, so that a power failure never leaves an empty file under the name.
        file.sync_all()
    }
}

/// Nothing is written that could not be taken back.
fn unsaved(path: &str, error: &CheckpointError) -> ToolError {
    if let CheckpointError::Changed(_) = error {
        return ToolError { retryable: true, ..ToolError::refused(format!("{error}: read it again, then edit")) };
    }
    ToolError::failed(format!("cannot write `{path}`: {error}; nothing is written without a checkpoint"))
}
