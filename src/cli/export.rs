//! `subtend export`: a tree or the whole store as lines of JSON.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use subtend_journal::{ExportError, Scope, Tally};

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::count;
use super::progress::Teller;
use super::shelf::Shelf;

/// Writes a tree or the whole store as lines of JSON that `subtend import` takes into any other store.
///
/// The same sessions give the same bytes whatever engine keeps them. Anything damaged is told, and nothing is left out.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session, whose whole tree is written: an id, a unique part of one, or a path such as `root/a3f9c1` [default: everything]
    session: Option<String>,

    /// File to write, which must not be there yet [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::must_open(&args.store)?;
    let scope = args.session.as_deref().map_or(Ok(Scope::Store), |name| shelf.find(name).map(Scope::Tree))?;
    let tally = match &args.out {
        None => write(&shelf, scope, &mut BufWriter::new(std::io::stdout().lock()))?,
        Some(path) => to_file(&shelf, scope, path)?,
    };
    let place = args.out.as_ref().map_or_else(String::new, |path| format!(" to {}", path.display()));
    // On stderr: stdout may be the export.
    writeln!(anstream::stderr(), "exported {}{place}", words(tally))?;
    Ok(Code::Done)
}

/// What was exported or imported, for people.
pub(crate) fn words(tally: Tally) -> String {
    format!("{} with {}", count(tally.sessions, "session"), count(tally.records, "record"))
}

fn write(shelf: &Shelf, scope: Scope, out: &mut dyn Write) -> Result<Tally, Fail> {
    let mut teller = Teller::new();
    let done = shelf.journal().export(scope, out, &mut |at| {
        teller.tell(|| format!("{} frames of {} sessions exported", at.frames, at.sessions));
    });
    done.map_err(|error| match error {
        ExportError::Read(error) => error.into(),
        ExportError::Write(error) => error.into(),
    })
}

/// The file has its name when it is whole and on disk.
fn to_file(shelf: &Shelf, scope: Scope, path: &Path) -> Result<Tally, Fail> {
    let said = |error: std::io::Error| Fail::Other(format!("{} cannot be written: {error}", path.display()));
    if path.try_exists().map_err(said)? {
        return Err(Fail::Usage(format!("{} is there already: choose another name, or remove it", path.display())));
    }
    let part = part_of(path);
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&part).map_err(said)?;
    let mut out = BufWriter::new(file);
    let done = write(shelf, scope, &mut out).and_then(|tally| {
        let file = out.into_inner().map_err(|error| said(error.into_error()))?;
        file.sync_all().and_then(|()| std::fs::rename(&part, path)).and_then(|()| sync_entry(path)).map_err(said)?;
        Ok(tally)
    });
    if done.is_err() {
        // The error to tell is the first one.
        drop(std::fs::remove_file(&part));
    }
    done
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Makes the file's name durable.
fn sync_entry(path: &Path) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
