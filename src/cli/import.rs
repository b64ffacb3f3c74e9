use std::fs::File;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use subtend_host::open_regular;
use subtend_journal::{ImportBounds, ImportError, Journal, Progress, Tally};

use super::client::{self, Attached, Connection, Store};
use super::control;
use super::data::{StoreArgs, StoreLocation};
use super::export::describe;
use super::fail::{Code, Fail};
use super::paint::count;
use super::progress::ProgressLine;
use super::trust::level::Trust;
use super::work::{self, policy, setup};
use super::{settings, workspace};
use crate::cli::json;

pub(crate) mod rights;

const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Imports the sessions of an export into the store: all of them or none.
///
/// A file that is damaged, truncated or of a newer version is refused, and so is a session that already exists in the
/// store. An import that was killed can be repeated with the same file; until then `verify` and `doctor` report it. Runs
/// that were in flight in the export end when the store is next opened, or at once if a process hosts the store.
///
/// The file is not trusted: names with paths or control characters are refused, and so are records that name sessions
/// outside the file. An approval for a whole session is reduced to a single call. The sessions get at most the
/// permissions of a session that `subtend run` opens here with the same options, and at most the limits of your own
/// configuration. A scripted model answers only if --model names it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// File that `subtend export` wrote
    file: PathBuf,

    /// Let the sessions keep a permission beyond reading the workspace, such as `fs.write=src/**`, if they have it;
    /// repeatable
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    allow: Vec<String>,

    /// Ask before an action that would be allowed, such as `fs.read=private/**`; repeatable
    #[arg(long, value_name = "ACTION[=PATTERN]")]
    ask: Vec<String>,

    /// Maximum memory for what is kept of all lines of the file. The default is enough for some 100,000 sessions
    #[arg(long, value_name = "MIB", default_value_t = 176)]
    max_memory: u32,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let cannot_read = |error| Fail::Usage(format!("{} cannot be read: {error}", args.file.display()));
    let Some(file) = open_regular(&args.file).map_err(cannot_read)? else {
        return Err(Fail::Usage(format!(
            "`{}` is not a regular file: an export is read more than once. Name a file",
            args.file.display()
        )));
    };
    // The workspace's own file is left out: remote tools are defined only in the user's file.
    let config = settings::load(&*workspace::open(Path::new("."))?, Trust::LeftOut)?.config;
    let rights = policy::for_imports(&args.allow, &args.ask, &config)?;
    let within = ImportBounds { rights, limits: Some(config.limits), memory: (args.max_memory as usize) << 20 };
    let place = args.store.place()?;
    let made = place.missing_dirs();
    let imported = match client::connect_or_open(&place)? {
        Store::Hosted(reader) => import_by_host(reader, place, &args.file, &within),
        Store::Own(journal) => {
            let done = work::async_runtime()?.block_on(import_here(journal, file, &within));
            if done.is_err() && !made.is_empty() {
                // After a refused import, remove the directories that were created for it.
                place.discard(&made);
            }
            done
        }
    };
    let (tally, lost) = imported?;
    if args.json {
        let reduced = rights::lost_actions(&lost);
        let value = json!({
            "sessions": tally.sessions, "records": tally.records, "deleted": tally.deleted, "reduced_permissions": reduced,
        });
        control::say(&json::text(&value)?)?;
        return Ok(Code::Done);
    }
    let deleted = match tally.deleted {
        0 => String::new(),
        deleted => format!(", which name {}", count(deleted, "deleted session")),
    };
    writeln!(anstream::stderr(), "imported {}{deleted}\n{}", describe(tally), rights::describe(&lost))?;
    Ok(Code::Done)
}

async fn import_here(journal: Journal, file: File, within: &ImportBounds) -> Result<(Tally, rights::LostRights), Fail> {
    let mut progress = ProgressLine::new();
    let mut file = BufReader::with_capacity(1 << 18, file);
    let mut tick = |at: Progress| progress.report(|| progress_text(at));
    let before = rights::sessions(&journal)?;
    let done = journal.import(&mut file, within, &mut tick).await;
    drop(progress);
    let done = match done {
        Ok(tally) => Ok((tally, rights::find_lost(&journal, &before)?)),
        Err(error) => Err(error),
    };
    let full = setup::full_disk(&journal);
    let closed = journal.close().await;
    match (done, full) {
        (Err(_), Some(full)) => Err(Fail::Store(full)),
        (Err(error), None) => Err(error.into()),
        (Ok(done), _) => closed.map(|()| done).map_err(|error| Fail::Store(error.to_string())),
    }
}

fn progress_text(at: Progress) -> String {
    format!("{} frames of {} sessions read", at.frames, at.sessions)
}

#[derive(Deserialize)]
struct ImportInProgress {
    file: PathBuf,
    frames: u64,
    sessions: u64,
}

/// Asks the process that hosts the store to import the file.
fn import_by_host(
    reader: Attached,
    place: StoreLocation,
    file: &Path,
    within: &ImportBounds,
) -> Result<(Tally, rights::LostRights), Fail> {
    let host = Attached::to(&place)?.ok_or_else(client::host_ended_error)?;
    let socket = client::socket(&place);
    let (journal, _) = Store::Hosted(reader).into_journal(place)?;
    let before = rights::sessions(&journal)?;
    let at = file.canonicalize().map_err(|error| Fail::Usage(format!("{} cannot be read: {error}", file.display())))?;
    let body = json!({
        "file": at, "within": within.rights, "limits": within.limits, "max_memory_mib": within.memory >> 20,
    });
    let mut progress = ProgressLine::new();
    let tally: Tally = host.block_on(async {
        let importing = host.ask(Method::POST, "/v1/store/imports", Some(&body));
        tokio::pin!(importing);
        // A second connection reads the progress. Without it, this only waits for the import.
        let mut watching = match &socket {
            Some(path) => Connection::open(path).await.ok().flatten().map(|(connection, _)| connection),
            None => None,
        };
        loop {
            tokio::select! {
                done = &mut importing => return done,
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {}
            }
            let reached = async {
                let all: Vec<ImportInProgress> = watching.as_mut()?.get("/v1/store/imports").await.ok()?;
                all.into_iter().find(|import| import.file == at)
            };
            tokio::select! {
                done = &mut importing => return done,
                found = reached => progress.report(|| match found {
                    Some(at) => progress_text(Progress { frames: at.frames, sessions: at.sessions }),
                    None => "the host of the store is importing the file".to_owned(),
                }),
            }
        }
    })?;
    drop(progress);
    Ok((tally, rights::find_lost(&journal, &before)?))
}

impl From<ImportError> for Fail {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Read(error) => error.into(),
            ImportError::Append(_) | ImportError::Poisoned(_) => Self::Store(error.to_string()),
            ImportError::Io(_)
            | ImportError::Damaged { .. }
            | ImportError::Truncated { .. }
            | ImportError::Newer { .. }
            | ImportError::Exists(_)
            | ImportError::Deleted(_)
            | ImportError::Leftover { .. }
            | ImportError::TooLarge { .. }
            | ImportError::TooMany { .. }
            | ImportError::Changed { .. } => Self::Other(error.to_string()),
        }
    }
}
