//! Restores of files by a rollback or a branch, after the user confirmed the changes.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use hyper::Method;
use serde::Deserialize;

use super::fail::Fail;
use super::hosted::Hosted;
use super::paint::{count, harmless};

/// Options of a command that can restore files.
#[derive(clap::Args, Debug)]
pub(crate) struct FilesArgs {
    /// Also restore the files that its file tools changed, after showing the diff and asking. Changes by shell commands
    /// stay
    #[arg(long)]
    pub(crate) files: bool,

    /// Restore files without asking; required if stdin or stderr is not a terminal
    #[arg(long, short, requires = "files")]
    yes: bool,
}

#[derive(Deserialize)]
pub(crate) struct RestorePreview {
    pub(crate) digest: String,
    pub(crate) files: Vec<FileName>,
    conflicts: Vec<FileName>,
    patch: String,
}

#[derive(Deserialize)]
pub(crate) struct FileName {
    path: String,
    #[serde(default)]
    why: String,
}

impl RestorePreview {
    /// Reads a preview of the restore; `of` names the run or the message.
    pub(crate) fn read(hosted: &Hosted, of: &str) -> Result<Self, Fail> {
        hosted.call(Method::GET, &format!("/restore{of}"), None)
    }

    /// Returns the number of files that could be restored; `None` if it is zero or unknown.
    pub(crate) fn count(hosted: &Hosted, of: &str) -> Option<u64> {
        // Errors are ignored, because the command also works without checkpoints.
        let preview = Self::read(hosted, of).ok()?;
        let files = preview.files.len().saturating_add(preview.conflicts.len());
        u64::try_from(files).ok().filter(|files| *files > 0)
    }

    /// Shows the diff and asks for confirmation. `name` and `what` are parts of the messages, such as `rolled back`.
    ///
    /// # Errors
    /// If a file cannot be restored, no terminal can answer, or the answer is no.
    pub(crate) fn confirm(&self, args: &FilesArgs, (name, what): (&str, &str)) -> Result<(), Fail> {
        if !self.conflicts.is_empty() {
            let why = |file: &FileName| format!("`{}` {}", harmless(&file.path), file.why);
            let all: Vec<String> = self.conflicts.iter().map(why).collect();
            return Err(Fail::Other(format!(
                "nothing is {what}, and no file is restored: {}; omit --files to leave all files as they are",
                all.join("; ")
            )));
        }
        if args.yes || self.files.is_empty() {
            return Ok(());
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Err(Fail::Usage(format!(
                "nothing is {what}: there is no terminal to confirm the restore. Use --yes to restore without asking"
            )));
        }
        let mut err = anstream::stderr();
        let diff: Vec<String> = self.patch.lines().map(harmless).collect();
        let files = count(u64::try_from(self.files.len()).unwrap_or(u64::MAX), "file");
        writeln!(err, "{}", diff.join("\n"))?;
        write!(err, "{name}: {files} would be restored as above; files that commands changed stay. Restore? [y/N] ")?;
        err.flush()?;
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Fail::Other(format!("nothing is {what}, and no file is restored"))),
        }
    }
}

pub(crate) fn describe_restored(files: &[String]) -> String {
    match files {
        [] => "no file had to be restored".to_owned(),
        files => {
            let names: Vec<String> = files.iter().map(|file| harmless(file)).collect();
            let restored = count(u64::try_from(files.len()).unwrap_or(u64::MAX), "file");
            format!("{restored} restored: {}; files that commands changed stay", names.join(", "))
        }
    }
}
