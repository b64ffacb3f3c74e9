use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use subtend_journal::owner_only::file_options;
use subtend_journal::{ExportError, Progress, ReadError, Scope, Skipped, Tally};

use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{clip, count, harmless};
use super::partial_file::PartialFile;
use super::progress::ProgressLine;
use super::store_reader::StoreReader;

/// Writes a tree or the whole store as JSON lines, which `subtend import` reads into any store.
///
/// The same sessions give the same bytes from every engine. A damaged session is an error. `--skip-damaged` leaves out
/// the whole tree of a damaged session, since its other sessions refer to the damaged one. `subtend show` still reads
/// them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session whose whole tree is written: an id, the start of one, a short name, or a path such as `root/a3f9c1` [default:
    /// everything]
    session: Option<String>,

    /// File to write, which must not exist [default: stdout]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Leave out each tree with a damaged session, and name it on stderr; the exit code is 1 if one is left out
    #[arg(long, conflicts_with = "session")]
    skip_damaged: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if args.out.is_none() && std::io::stdout().is_terminal() {
        return Err(Fail::Usage("an export cannot be shown at a terminal, which would obey control characters of the model: redirect the output, or use --out FILE".to_owned()));
    }
    let reader = StoreReader::open_existing(&args.store)?;
    let sessions = args.session.as_deref().map_or(Ok(Scope::Store), |name| reader.find(name).map(Scope::Tree))?;
    let scope = if args.skip_damaged { ExportScope::Sound } else { ExportScope::All(sessions) };
    let (tally, skipped) = match &args.out {
        None => write(&reader, scope, &mut BufWriter::new(std::io::stdout().lock()))?,
        Some(path) => to_file(&reader, scope, path)?,
    };
    let place = args.out.as_ref().map_or_else(String::new, |path| format!(" to {}", path.display()));
    // Report on stderr, because stdout may be the export.
    let mut err = anstream::stderr();
    skipped.iter().try_for_each(|skipped| writeln!(err, "{}", describe_skipped(skipped)))?;
    writeln!(err, "exported {}{place}", describe(tally))?;
    if skipped.is_empty() {
        return Ok(Code::Done);
    }
    let trees = skipped.iter().map(|skipped| skipped.root).collect::<BTreeSet<_>>().len();
    writeln!(err, "{} left out; all others are exported, and the store is unchanged", count(trees as u64, "tree"))?;
    Ok(Code::Failed)
}

#[derive(Clone, Copy)]
enum ExportScope {
    All(Scope),
    Sound,
}

fn describe_skipped(skipped: &Skipped) -> String {
    let Skipped { root, sessions, why, .. } = skipped;
    let tree = count(*sessions, "session");
    format!("left out: the tree of {root} ({tree}): {}", clip(&harmless(why), 1_000))
}

pub(crate) fn describe(tally: Tally) -> String {
    format!("{} with {}", count(tally.sessions, "session"), count(tally.records, "record"))
}

fn write(reader: &StoreReader, scope: ExportScope, out: &mut dyn Write) -> Result<(Tally, Vec<Skipped>), Fail> {
    let mut progress = ProgressLine::new();
    let mut report_progress = |at: Progress| {
        progress.report(|| format!("{} frames of {} sessions exported", at.frames, at.sessions));
    };
    let done = match scope {
        ExportScope::All(scope) => {
            reader.journal().export(scope, out, &mut report_progress).map(|tally| (tally, Vec::new()))
        }
        ExportScope::Sound => reader.journal().export_sound(out, &mut report_progress),
    };
    done.map_err(|error| match error {
        ExportError::Read(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. })) => Fail::Store(format!(
            "{error}; `--skip-damaged` leaves out damaged trees, `subtend verify` reports all damage"
        )),
        ExportError::Read(error) => error.into(),
        ExportError::Write(error) => error.into(),
    })
}

fn to_file(reader: &StoreReader, scope: ExportScope, path: &Path) -> Result<(Tally, Vec<Skipped>), Fail> {
    let describe = |error: std::io::Error| Fail::Other(format!("{} cannot be written: {error}", path.display()));
    if path.try_exists().map_err(describe)? {
        return Err(Fail::Usage(format!("{} exists: choose another name, or remove it", path.display())));
    }
    let (part, file) = PartialFile::of(path, "part", file_options()).map_err(describe)?;
    let mut out = BufWriter::new(file);
    let exported = write(reader, scope, &mut out)?;
    let file = out.into_inner().map_err(|error| describe(error.into_error()))?;
    file.sync_all().and_then(|()| part.persist()).and_then(|()| sync_entry(path)).map_err(describe)?;
    Ok(exported)
}

/// Syncs the directory, so that the file's name is durable.
fn sync_entry(path: &Path) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
