use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::Subcommand;
use serde::Serialize;
use subtend_session::ids::SessionId;
use subtend_tools::worktree::{WorktreeChanges, WorktreeEntry, WorktreeError, WorktreeList, Worktrees};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::json;
use super::paint::{harmless, harmless_pieces};
use super::store_reader::StoreReader;
use super::work::frame::MAX_SHOWN;
use super::worktrees::{describe_changes, describe_merged, for_store};

/// Shows, merges and removes the worktrees of sessions (`isolation: worktree`).
///
/// Such a session changes files on its own branch. A merge applies all its changes to the files of its workspace, or
/// none, and does not commit them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: WorktreeCommand,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Subcommand)]
enum WorktreeCommand {
    /// List worktrees and their changes
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print the changes of a worktree as a patch
    Diff {
        #[command(flatten)]
        for_store: SessionArgs,

        /// Print one JSON object with the changed files instead
        #[arg(long)]
        json: bool,

        /// Print the unchanged patch for `git apply`, with control and invisible characters; refused at a terminal
        #[arg(long, conflicts_with = "json")]
        raw: bool,
    },
    /// Merge the changes into the files of the workspace; shows them and asks first
    Merge {
        #[command(flatten)]
        for_store: SessionArgs,

        /// Merge without asking; required if stdin or stderr is not a terminal
        #[arg(long, short)]
        yes: bool,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Remove a worktree and its branch with all changes; asks first
    Discard {
        #[command(flatten)]
        for_store: SessionArgs,

        /// Discard without asking; required if stdin or stderr is not a terminal
        #[arg(long, short)]
        yes: bool,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Commit the changes on the branch, and remove the worktree but not the branch
    Keep {
        #[command(flatten)]
        for_store: SessionArgs,

        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(clap::Args, Debug)]
struct SessionArgs {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,
}

#[derive(Serialize)]
struct ListedWorktree<'a> {
    #[serde(flatten)]
    entry: &'a WorktreeEntry,
    path: std::path::PathBuf,
    session_exists: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a WorktreeChanges>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    let worktrees = for_store(&place)?.ok_or_else(|| place.missing_store())?;
    match &args.command {
        WorktreeCommand::List { json } => list(args, &worktrees, *json),
        WorktreeCommand::Diff { raw: true, .. } if std::io::stdout().is_terminal() => {
            Err(Fail::Usage("`--raw` cannot be used at a terminal, which would obey control characters of the model: redirect the output".to_owned()))
        }
        WorktreeCommand::Diff { for_store, json, raw } => diff(&worktrees, find_session(args, &worktrees, for_store)?, (*json, *raw)),
        WorktreeCommand::Merge { for_store, yes, json } => {
            let session = find_idle_session(args, &worktrees, for_store)?;
            merge(&worktrees, session, *yes, *json)
        }
        WorktreeCommand::Discard { for_store, yes, json } => {
            let session = find_idle_session(args, &worktrees, for_store)?;
            let changes = worktrees.changes(session);
            // Ignore errors here: an incomplete worktree, or one whose repository is missing, can still be removed.
            let ignored = changes.as_ref().ok().filter(|changes| !changes.ignored.is_empty()).map(WorktreeChanges::summary);
            if let Some(shown) = describe_changes(&changes).or(ignored)
                && !is_confirmed(*yes, "discarded", &format!("{}\nDiscard? [y/N] ", harmless(&shown)))?
            {
                return Err(Fail::Other("nothing is discarded".into()));
            }
            worktrees.discard(session, changes.ok().as_ref().map(|changes| &*changes.tip))?;
            let value = serde_json::json!({"session": session, "discarded": true});
            control::report(*json, &value, &format!("discarded the worktree of session {}", session.short().0))
        }
        WorktreeCommand::Keep { for_store, json } => {
            let session = find_idle_session(args, &worktrees, for_store)?;
            let kept = worktrees.keep(session, None)?;
            let text =
                format!("kept branch {} with the changes; its worktree is removed. {}", kept.name, kept.to_use());
            let value = serde_json::json!({"session": session, "branch": kept.name, "repository": kept.repository});
            control::report(*json, &value, &text)
        }
    }
}

fn print(text: &str) -> Result<Code, Fail> {
    control::say(text)?;
    Ok(Code::Done)
}

fn list(args: &Args, worktrees: &Worktrees, as_json: bool) -> Result<Code, Fail> {
    let WorktreeList { entries, damaged } = worktrees.list()?;
    for (session, error) in &damaged {
        let place = worktrees.path(*session);
        writeln!(
            anstream::stderr(),
            "the worktree of session {session} is not listed: {error}. `subtend doctor` names the files of {} to remove",
            place.display()
        )?;
    }
    let known: BTreeSet<SessionId> = match StoreReader::open(&args.store)? {
        Some(reader) => reader.heads().keys().copied().collect(),
        None => BTreeSet::new(),
    };
    let mut out = anstream::stdout().lock();
    let mut rows = Vec::new();
    let changes: Vec<_> = entries.iter().map(|entry| worktrees.changes(entry.session)).collect();
    for (entry, changes) in entries.iter().zip(&changes) {
        let exists = known.contains(&entry.session);
        if as_json {
            rows.push(ListedWorktree {
                entry,
                path: worktrees.path(entry.session),
                session_exists: exists,
                changes: changes.as_ref().ok(),
                error: changes.as_ref().err().map(ToString::to_string),
            });
            continue;
        }
        let text = match changes {
            Ok(changes) => changes.summary(),
            Err(error) => error.to_string(),
        };
        let deleted = if exists { "" } else { " (its session is deleted)" };
        writeln!(out, "{}  {}{deleted}  {}", entry.session.short().0, entry.branch, harmless(&text))?;
    }
    if as_json {
        json::write_line(&mut out, &rows)?;
    } else if entries.is_empty() {
        writeln!(anstream::stderr(), "no worktrees: sessions of agents with `isolation: worktree` have one")?;
    }
    Ok(Code::Done)
}

fn diff(worktrees: &Worktrees, session: SessionId, (as_json, is_raw): (bool, bool)) -> Result<Code, Fail> {
    if as_json {
        // Without the patch, which may be longer than one that is printed.
        let (changes, _) = worktrees.diff_start(session, 0)?;
        json::write_line(&mut std::io::stdout().lock(), &changes)?;
        return Ok(Code::Done);
    }
    let (_, patch) = worktrees.diff(session)?;
    // Not through `anstream`, which would remove parts that look like control sequences.
    let mut out = std::io::stdout().lock();
    if is_raw {
        out.write_all(&patch)?;
    } else {
        let mut out = std::io::BufWriter::new(out);
        write_escaped(&patch, |piece| out.write_fmt(piece))?;
        out.flush()?;
    }
    Ok(Code::Done)
}

/// Writes the patch with control and invisible characters escaped, piece by piece: all of it can take gigabytes.
fn write_escaped<E>(patch: &[u8], mut write: impl FnMut(fmt::Arguments<'_>) -> Result<(), E>) -> Result<(), E> {
    for chunk in patch.utf8_chunks() {
        write(format_args!("{}", harmless_pieces(chunk.valid())))?;
        if !chunk.invalid().is_empty() {
            write(format_args!("{}", char::REPLACEMENT_CHARACTER))?;
        }
    }
    Ok(())
}

/// Text of at most [`MAX_SHOWN`] bytes: writing more fails, so that the rest is not escaped.
struct ShownPart(String);

impl fmt::Write for ShownPart {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let left = MAX_SHOWN.saturating_sub(self.0.len());
        self.0.push_str(piece.get(..piece.floor_char_boundary(left)).unwrap_or_default());
        if piece.len() > left { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Returns the question whether to merge, with as much of the patch as a person can read.
fn merge_question(session: SessionId, patch: &[u8], changes: &WorktreeChanges) -> String {
    let mut shown = ShownPart(String::new());
    let is_whole = write_escaped(patch, |piece| fmt::Write::write_fmt(&mut shown, piece)).is_ok();
    let rest = match is_whole && patch.len() <= MAX_SHOWN {
        true => String::new(),
        false => format!(
            "\n[the rest is too long to show: `subtend worktree diff {}` prints the whole patch]\n",
            session.short().0
        ),
    };
    format!("{}{rest}{}\nMerge? [y/N] ", shown.0, harmless(&changes.summary()))
}

fn merge(worktrees: &Worktrees, session: SessionId, yes: bool, as_json: bool) -> Result<Code, Fail> {
    if let Some(merged) = worktrees.recover(session)? {
        drop(writeln!(
            anstream::stderr(),
            "an interrupted merge was completed: {}",
            harmless(&describe_merged(&merged))
        ));
    }
    let (changes, patch) = worktrees.diff_start(session, MAX_SHOWN as u64 + 1)?;
    if !changes.files.is_empty() && !is_confirmed(yes, "merged", &merge_question(session, &patch, &changes))? {
        return Err(Fail::Other("nothing is merged".into()));
    }
    let merged = worktrees.merge(session, &changes.tip)?;
    if as_json {
        let mut out = anstream::stdout().lock();
        json::write_line(&mut out, &merged)?;
        return Ok(Code::Done);
    }
    // A child's worktree starts from its parent's and is merged into it. The merge remains without this list.
    let entries = worktrees.list().map(|list| list.entries).unwrap_or_default();
    let target = entries.iter().find(|entry| entry.session == session).map(|entry| &entry.target);
    let parent = entries.iter().find(|entry| target.is_some_and(|at| at.starts_with(worktrees.path(entry.session))));
    let parent = parent.map(|entry| format!(" into the worktree of session {}", entry.session.short().0));
    print(&format!("{}{}", describe_merged(&merged), parent.unwrap_or_default()))
}

fn is_confirmed(yes: bool, what: &str, question: &str) -> Result<bool, Fail> {
    if yes {
        return Ok(true);
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Fail::Usage(format!(
            "nothing is {what}: there is no terminal to confirm it. Use --yes to do it without asking"
        )));
    }
    let mut err = anstream::stderr();
    write!(err, "{question}")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Returns the session that the argument names: if it is deleted, only by its full id.
fn find_session(args: &Args, worktrees: &Worktrees, for_store: &SessionArgs) -> Result<SessionId, Fail> {
    if let Ok(id) = for_store.session.parse()
        && worktrees.list()?.entries.iter().any(|entry| entry.session == id)
    {
        return Ok(id);
    }
    StoreReader::open_existing(&args.store)?.find(&for_store.session)
}

/// As [`find_session`], but fails if a run uses the worktree.
fn find_idle_session(args: &Args, worktrees: &Worktrees, for_store: &SessionArgs) -> Result<SessionId, Fail> {
    let session = find_session(args, worktrees, for_store)?;
    let Some(reader) = StoreReader::open(&args.store)?.filter(StoreReader::is_hosted) else { return Ok(session) };
    for (id, _) in reader.journal().inflight()? {
        let uses_it = reader.creation(id)?.and_then(|created| created.worktree).is_some_and(|it| it.of == session);
        if uses_it {
            return Err(Fail::Other(format!(
                "session {} uses that worktree: wait for its end, or cancel it with `subtend cancel {}`",
                id.short().0,
                id.short().0
            )));
        }
    }
    Ok(session)
}

impl From<WorktreeError> for Fail {
    fn from(error: WorktreeError) -> Self {
        Self::Other(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The patch has 62 MiB of one control character. The control: a short patch is shown whole.
    #[test]
    fn merge_question_is_bounded() {
        let id: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().expect("an id");
        let changes = WorktreeChanges {
            branch: "subtend/a3f9c1".to_owned(),
            tip: String::new(),
            files: Vec::new(),
            ignored: Vec::new(),
            more_ignored: 0,
            left: Vec::new(),
        };
        let rest = format!(
            "\n[the rest is too long to show: `subtend worktree diff {}` prints the whole patch]\nno changes\nMerge? [y/N] ",
            id.short().0
        );
        let attacks: [&[u8]; 3] = [b"\x7f", b"\xff", b"\n"];
        for unit in attacks {
            let long = merge_question(id, &unit.repeat(MAX_SHOWN + 1), &changes);
            assert!(long.len() <= MAX_SHOWN + rest.len() && long.ends_with(&rest), "{}", long.len());
        }
        assert_eq!(merge_question(id, b"+\x7f\n", &changes), "+<U+007F>\nno changes\nMerge? [y/N] ");
        let mut printed = String::new();
        write_escaped(b"+\x7f\xff\r\n", |piece| fmt::Write::write_fmt(&mut printed, piece)).expect("written");
        assert_eq!(printed, "+<U+007F>\u{fffd}\r\n");
    }
}
