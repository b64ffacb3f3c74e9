//! `subtend export`: a tree or the whole store as lines of JSON.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use subtend_journal::owner_only::file_options;
use subtend_journal::{ExportError, Progress, ReadError, Scope, Skipped, Tally};

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{clip, count, harmless};
use super::part::Part;
use super::progress::Teller;
use super::shelf::Shelf;

/// Writes a tree or the whole store as lines of JSON that `subtend import` takes into any other store.
///
/// The same sessions give the same bytes whatever engine keeps them. Anything damaged is told, and nothing is left out, unless
/// `--skip-damaged` asks for that: then each tree goes in which a session is damaged. The whole tree, since its other sessions name
/// the damaged one, and no import takes what names a session that does not come with it; `subtend show` still reads them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session, whose whole tree is written: an id, the start of one, a short name, or a path such as `root/a3f9c1` [default: everything]
    session: Option<String>,

    /// File to write, which must not be there yet [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Leave out each tree in which a session is damaged, and name it on stderr; the exit code is 1 if one is left out
    #[arg(long, conflicts_with = "session")]
    skip_damaged: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let shelf = Shelf::must_open(&args.store)?;
    let scope = args.session.as_deref().map_or(Ok(Scope::Store), |name| shelf.find(name).map(Scope::Tree))?;
    let what = if args.skip_damaged { What::Sound } else { What::All(scope) };
    let (tally, skipped) = match &args.out {
        None => write(&shelf, what, &mut BufWriter::new(std::io::stdout().lock()))?,
        Some(path) => to_file(&shelf, what, path)?,
    };
    let place = args.out.as_ref().map_or_else(String::new, |path| format!(" to {}", path.display()));
    // On stderr: stdout may be the export.
    let mut err = anstream::stderr();
    skipped.iter().try_for_each(|skipped| writeln!(err, "{}", left_out(skipped)))?;
    writeln!(err, "exported {}{place}", words(tally))?;
    if skipped.is_empty() {
        return Ok(Code::Done);
    }
    let trees = skipped.iter().map(|skipped| skipped.root).collect::<BTreeSet<_>>().len();
    writeln!(
        err,
        "{} left out, and the export is whole without: the store itself still has all",
        count(trees as u64, "tree")
    )?;
    Ok(Code::Failed)
}

/// What is to be written.
#[derive(Clone, Copy)]
enum What {
    /// All of it, or nothing.
    All(Scope),
    /// The trees of the store that are sound.
    Sound,
}

fn left_out(skipped: &Skipped) -> String {
    let Skipped { session, root, sessions, why } = skipped;
    let tree = count(*sessions, "session");
    format!(
        "left out: the tree of {root} ({tree}), since session {session} is damaged: {}",
        clip(&harmless(why), 1_000)
    )
}

/// What was exported or imported, for people.
pub(crate) fn words(tally: Tally) -> String {
    format!("{} with {}", count(tally.sessions, "session"), count(tally.records, "record"))
}

fn write(shelf: &Shelf, what: What, out: &mut dyn Write) -> Result<(Tally, Vec<Skipped>), Fail> {
    let mut teller = Teller::new();
    let mut told = |at: Progress| {
        teller.tell(|| format!("{} frames of {} sessions exported", at.frames, at.sessions));
    };
    let done = match what {
        What::All(scope) => shelf.journal().export(scope, out, &mut told).map(|tally| (tally, Vec::new())),
        What::Sound => shelf.journal().export_sound(out, &mut told),
    };
    done.map_err(|error| match error {
        ExportError::Read(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. })) => Fail::Store(format!(
            "{error}; `--skip-damaged` leaves out the trees that are, `subtend verify` tells what is wrong"
        )),
        ExportError::Read(error) => error.into(),
        ExportError::Write(error) => error.into(),
    })
}

/// The file has its name when it is whole and on disk.
fn to_file(shelf: &Shelf, what: What, path: &Path) -> Result<(Tally, Vec<Skipped>), Fail> {
    let said = |error: std::io::Error| Fail::Other(format!("{} cannot be written: {error}", path.display()));
    if path.try_exists().map_err(said)? {
        return Err(Fail::Usage(format!("{} is there already: choose another name, or remove it", path.display())));
    }
    let (part, file) = Part::of(path, "part", file_options()).map_err(said)?;
    let mut out = BufWriter::new(file);
    let told = write(shelf, what, &mut out)?;
    let file = out.into_inner().map_err(|error| said(error.into_error()))?;
    file.sync_all().and_then(|()| part.put()).and_then(|()| sync_entry(path)).map_err(said)?;
    Ok(told)
}

/// Makes the file's name durable.
fn sync_entry(path: &Path) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
