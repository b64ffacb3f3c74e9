//! Restores of files by a rollback or a branch, after the user confirmed the changes.

use std::io::{self, BufRead as _, BufWriter, IsTerminal as _, Write as _};

use hyper::Method;
use serde::Deserialize;
use subtend_session::ids::Hash;
use subtend_tools::checkpoint::Checkpoints;

use super::checkpoints;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::paint::{count, exact_pieces, harmless_pieces, on_one_line};

/// Maximum number of files that a message names. `--json` names all.
const MAX_NAMED: usize = 100;

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

    /// Only print the content that FILE would get, in full, with characters that a terminal does not show as `<U+202E>`
    #[arg(long, value_name = "FILE", requires = "files", conflicts_with = "yes")]
    pub(crate) print: Option<String>,
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
    #[serde(default)]
    removed: bool,
    /// Hash of the content that is restored.
    content: Option<Hash>,
    /// Why the patch does not show the lines of the file.
    hidden: Option<String>,
}

impl RestorePreview {
    /// Reads a preview of the restore; `of` names the run or the message.
    pub(crate) fn read(hosted: &Hosted, of: &str) -> Result<Self, Fail> {
        hosted.call(Method::GET, &format!("/restore{of}"), None)
    }

    /// As [`RestorePreview::read`], without the patch.
    fn read_files(hosted: &Hosted, of: &str) -> Result<Self, Fail> {
        let join = if of.is_empty() { '?' } else { '&' };
        Self::read(hosted, &format!("{of}{join}patch=false"))
    }

    /// Returns the number of files that could be restored; `None` if it is zero or unknown.
    pub(crate) fn count(hosted: &Hosted, of: &str) -> Option<u64> {
        // Errors are ignored, because the command also works without checkpoints.
        let preview = Self::read_files(hosted, of).ok()?;
        let files = preview.files.len().saturating_add(preview.conflicts.len());
        u64::try_from(files).ok().filter(|files| *files > 0)
    }

    /// Prints the content that the file `path` would get.
    ///
    /// # Errors
    /// If the file would not be restored, or its content cannot be read.
    pub(crate) fn print_content(hosted: &Hosted, of: &str, (path, store): (&str, &StoreArgs)) -> Result<Code, Fail> {
        let preview = Self::read_files(hosted, of)?;
        // The name as the patch shows it is accepted too.
        let is_named = |file: &&FileName| file.path == path || on_one_line(&file.path) == path;
        let mut found = preview.files.iter().filter(is_named).peekable();
        if found.peek().is_none() {
            return Err(Fail::Usage(format!("`{}` is not a file that would be restored", on_one_line(path))));
        }
        let saved = checkpoints::for_store(&store.place()?);
        let mut out = BufWriter::new(std::io::stdout().lock());
        for file in found {
            file.print_content(saved.as_ref(), &mut out)?;
        }
        out.flush()?;
        Ok(Code::Done)
    }

    /// Returns the lines that name the files that the patch does not show. `command` shows the patch.
    fn describe_hidden(&self, command: &str) -> String {
        let hidden: Vec<_> = self.files.iter().filter_map(|file| file.hidden.as_ref().map(|why| (file, why))).collect();
        if hidden.is_empty() {
            return String::new();
        }
        let name = |(file, why): &(&FileName, &String)| format!("  {}: {why}\n", on_one_line(&file.path));
        let (names, files) = (name_first(&hidden, name).concat(), count(hidden.len() as u64, "file"));
        let print = format!("`{command} --print FILE` prints in full what FILE would contain");
        format!("{files} not shown above:\n{}\n{print}\n", names.trim_end())
    }

    /// Shows the diff and asks for confirmation. `name` and `what` are parts of the messages, such as `rolled back`;
    /// `command` restores without `--yes`.
    ///
    /// # Errors
    /// If a file cannot be restored, no terminal can answer, or the answer is no.
    pub(crate) fn confirm(&self, args: &FilesArgs, (name, what, command): (&str, &str, &str)) -> Result<(), Fail> {
        if !self.conflicts.is_empty() {
            let why = |file: &FileName| format!("`{}` {}", on_one_line(&file.path), on_one_line(&file.why));
            return Err(Fail::Other(format!(
                "nothing is {what}, and no file is restored: {}; omit --files to leave all files as they are",
                name_first(&self.conflicts, why).join("; ")
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
        let files = count(u64::try_from(self.files.len()).unwrap_or(u64::MAX), "file");
        writeln!(err, "{}", harmless_pieces(self.patch.trim_end_matches('\n')))?;
        write!(err, "{}", self.describe_hidden(command))?;
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

impl FileName {
    fn print_content(&self, saved: Option<&Checkpoints>, out: &mut impl io::Write) -> Result<(), Fail> {
        let path = on_one_line(&self.path);
        if self.removed {
            writeln!(anstream::stderr(), "`{path}` would be removed")?;
            return Ok(());
        }
        let Some((hash, saved)) = self.content.zip(saved) else {
            return Err(Fail::Other(format!(
                "cannot print what `{path}` would contain: this store has no saved content of it. Omit --print to see \
                 the changes"
            )));
        };
        for chunk in saved.find_content(hash)?.utf8_chunks() {
            write!(out, "{}", exact_pieces(chunk.valid()))?;
            chunk.invalid().iter().try_for_each(|byte| write!(out, "<0x{byte:02X}>"))?;
        }
        Ok(())
    }
}

/// Returns the texts of the first files, and of the number of the others.
fn name_first<T>(files: &[T], name: impl Fn(&T) -> String) -> Vec<String> {
    let rest = files.len().checked_sub(MAX_NAMED).filter(|rest| *rest > 0);
    files.iter().take(MAX_NAMED).map(name).chain(rest.map(|rest| format!("and {rest} more"))).collect()
}

pub(crate) fn describe_restored(files: &[String]) -> String {
    match files {
        [] => "no file had to be restored".to_owned(),
        files => {
            let names = name_first(files, |file| on_one_line(file));
            let restored = count(u64::try_from(files.len()).unwrap_or(u64::MAX), "file");
            format!("{restored} restored: {}; files that commands changed stay", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a file that did not exist is removed: not a link, and none whose content another store has. The control: a saved file.
    #[test]
    fn content_that_is_not_saved_is_not_called_removed() {
        let file =
            |removed, content| FileName { path: "a".to_owned(), why: String::new(), removed, content, hidden: None };
        let dir = tempfile::tempdir().expect("a directory");
        let (session, hash) = (dir.path().join("0192f0c1-2d3e-7abc-8def-0123456789ab"), Hash::of(b"x\n"));
        std::fs::create_dir(&session).expect("created");
        std::fs::write(session.join(hash.to_string()), "x\n").expect("written");
        let saved = Checkpoints::new(dir.path());
        let print = |file: FileName, saved: Option<&Checkpoints>| {
            let mut out = Vec::new();
            let printed = file.print_content(saved, &mut out).map_err(|error| error.to_string());
            printed.map(|()| String::from_utf8(out).expect("text"))
        };
        let why = "cannot print what `a` would contain: this store has no saved content of it. Omit --print to see the changes";
        assert_eq!(print(file(false, None), Some(&saved)), Err(why.to_owned()));
        assert_eq!(print(file(false, Some(hash)), None), Err(why.to_owned()));
        assert_eq!(print(file(true, None), None), Ok(String::new()));
        assert_eq!(print(file(false, Some(hash)), Some(&saved)), Ok("x\n".to_owned()));
    }

    /// A name with a line break forges a line of the report. The control: a plain name.
    #[test]
    fn restored_file_is_named_on_one_line() {
        let shown = |files: &[&str]| describe_restored(&files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>());
        assert_eq!(
            shown(&["a\nsession x: run 1 is rolled back", "b"]),
            "2 files restored: a<U+000A>session x: run 1 is rolled back, b; files that commands changed stay"
        );
        let many = shown(&["a"; 5_000]);
        assert!(many.len() < 500 && many.contains(", a, and 4900 more; files"), "{many}");
    }
}
