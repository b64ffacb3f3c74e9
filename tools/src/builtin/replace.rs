//! Replacing a file as a whole: whoever reads it sees the old content or the new, never a part.

use std::io::{self, Write as _};
use std::path::Path;

use cap_std::fs::{Dir, OpenOptions, Permissions};
use subtend_session::ids::Text;

use super::file_tool::Job;
use super::open;
use crate::path::join;
use crate::tool::ToolError;
use crate::workspace::{beneath, failure};

/// Where a write to `path` would land.
#[derive(Debug)]
pub(super) struct Target {
    /// The path once links are followed.
    pub(super) real: Text,
    /// The permissions of the file that is there.
    pub(super) present: Option<Permissions>,
}

impl Target {
    /// Finds the place, and whether writing there is permitted.
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
                Ok(Self { real, present: Some(found.permissions()) })
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
        let real = missing.iter().rev().fold(base.to_string(), |dir, name| join(&dir, name));
        // Above, links may have led elsewhere than the rules were asked about.
        job.leads(actions, path, &real)?;
        Ok(Self { real: real.into(), present: None })
    }

    /// Puts `content` there: a new file beside it, then a rename.
    pub(super) fn replace(&self, job: &Job, path: &str, content: &[u8]) -> Result<(), ToolError> {
        let (parent, name) = self.real.rsplit_once('/').unwrap_or((".", &self.real));
        self.replace_in(job, parent, name, content).map_err(|error| failure("write", path, &error))
    }

    fn replace_in(&self, job: &Job, parent: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let root = job.workspace.dir();
        let is_new = self.present.is_none() && parent != ".";
        let dir = if is_new { beneath::make_dir(root, parent)? } else { beneath::dir(root, Path::new(parent))? };
        // The call's own name: the same call, run again after a crash, replaces what it left.
        let temporary = format!(".subtend-{}-{}-{}.tmp", job.key.session, job.key.run, job.key.call);
        let written = self.fill(&dir, &temporary, content).and_then(|()| dir.rename(&temporary, &dir, name));
        if written.is_err() {
            // The first error is the one to tell.
            drop(dir.remove_file(&temporary));
        }
        written
    }

    fn fill(&self, dir: &Dir, temporary: &str, content: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        let mut file = match dir.open_with(temporary, &options) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                dir.remove_file(temporary)?;
                dir.open_with(temporary, &options)?
            }
            other => other?,
        };
        file.write_all(content)?;
        if let Some(permissions) = &self.present {
            file.set_permissions(permissions.clone())?;
        }
        // Before the rename: after a power cut the name must not stand for an empty file.
        file.sync_all()
    }
}
