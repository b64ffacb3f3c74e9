//! `subtend import`: takes in what `subtend export` wrote.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::PathBuf;

use subtend_journal::{ImportError, Progress};

use super::data::StoreArgs;
use super::export::words;
use super::fail::{Code, Fail};
use super::progress::Teller;
use super::work::{self, policy, setup};

pub(crate) mod rights;

/// Imports the sessions of an export into the store: all of them or none.
///
/// A file that is damaged, truncated or of a newer version is refused, and so is a session that the store has. An import that was
/// killed can be repeated with the same file; until then `verify` and `doctor` report it. Runs that were in flight in the export
/// end when the store is next opened.
///
/// The file is not trusted: names with paths or control characters are refused, and an approval for a whole session counts only
/// once. The sessions have at most the permissions of a session that `subtend run` opens here with the same options. A script
/// answers in them only if --model names it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// File that `subtend export` wrote
    file: PathBuf,

    /// Let the sessions keep an action beyond reading the workspace where they have it, such as `fs.write=src/**`; repeatable
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    allow: Vec<String>,

    /// Ask before an action that is allowed otherwise, such as `fs.read=private/**`; repeatable
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    ask: Vec<String>,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let said = |error| Fail::Usage(format!("{} cannot be read: {error}", args.file.display()));
    let file = File::open(&args.file).map_err(said)?;
    if !file.metadata().map_err(said)?.is_file() {
        return Err(Fail::Usage(format!(
            "`{}` is not a regular file: an export is read more than once. Name a file",
            args.file.display()
        )));
    }
    let within = policy::of_imports(&args.allow, &args.ask)?;
    let threads = work::threads()?;
    let place = args.store.place()?;
    let made = place.missing();
    let done = threads.block_on(async {
        let journal = place.open()?;
        let mut teller = Teller::new();
        let mut file = BufReader::with_capacity(1 << 18, file);
        let mut told = |at: Progress| {
            teller.tell(|| format!("{} frames of {} sessions read", at.frames, at.sessions));
        };
        let before = rights::sessions(&journal)?;
        let done = journal.import(&mut file, &within, &mut told).await;
        drop(teller);
        let done = match done {
            Ok(tally) => Ok((tally, rights::lost(&journal, &before)?)),
            Err(error) => Err(error),
        };
        let full = setup::full(&journal);
        let closed = journal.close().await;
        match (done, full) {
            (Err(_), Some(full)) => Err(Fail::Store(full)),
            (Err(error), None) => Err(error.into()),
            (Ok(done), _) => closed.map(|()| done).map_err(|error| Fail::Store(error.to_string())),
        }
    });
    if done.is_err() && !made.is_empty() {
        // A refusal leaves nothing that was not there.
        place.discard(&made);
    }
    let (tally, lost) = done?;
    writeln!(anstream::stderr(), "imported {}\n{}", words(tally), rights::told(&lost))?;
    Ok(Code::Done)
}

impl From<ImportError> for Fail {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Read(error) => error.into(),
            ImportError::Append(_) | ImportError::Poisoned(_) => Self::Store(error.to_string()),
            ImportError::Io(_)
            | ImportError::Damaged { .. }
            | ImportError::Cut { .. }
            | ImportError::Newer { .. }
            | ImportError::Exists(_)
            | ImportError::Deleted(_)
            | ImportError::Leftover { .. }
            | ImportError::TooLarge { .. }
            | ImportError::Changed { .. } => Self::Other(error.to_string()),
        }
    }
}
