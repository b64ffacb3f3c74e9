use std::path::Path;

use serde_json::{Value, json};
use subtend_journal::{Compacted, CompactionStep};

use super::checkpoints;
use super::control;
use super::data::{StoreArgs, StoreLocation};
use super::fail::{Code, Fail};
use super::paint::{count, size};
use super::progress::ProgressLine;
use crate::cli::json;

/// Erases the text of deleted sessions from the files of the store, and removes unreferenced blobs.
///
/// It writes a new store next to the old one and then replaces the old one: both must fit on the disk, and no other
/// process may have the store open. If it is killed, the old store or the new one remains. It cannot erase copies of the
/// store, or remains of removed files on the disk. In a database it removes the rows in one transaction and frees their
/// space; the administrator must erase the write-ahead log, backups, and freed space that was not overwritten.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    if !place.exists()? {
        return Err(place.missing_store());
    }
    let before = size_of(place.path());
    let mut progress = ProgressLine::new();
    let done = place.compact(&mut |step| {
        if let CompactionStep::Copied(frames) = step {
            progress.report(|| format!("{} copied", count(frames, "frame")));
        }
    })?;
    drop(progress);
    erase_checkpoints(&place)?;
    let sizes = place.path().map(|path| (before, size_of(Some(path))));
    let code = if done.deferred.is_empty() { Code::Done } else { Code::Failed };
    if args.json {
        control::say(&json::text(&result(&done, sizes))?)?;
        return Ok(code);
    }
    control::say(&summary(&done, sizes))?;
    for deferred in &done.deferred {
        let (session, why) = (deferred.session, &deferred.why);
        control::say(&format!(
            "session {session} is not erased yet: {why}; run `subtend recover`, then `subtend compact` again"
        ))?;
    }
    Ok(code)
}

/// Returns the report as JSON; sizes are null for a database.
fn result(done: &Compacted, sizes: Option<(u64, u64)>) -> Value {
    let deferred = done.deferred.iter().map(|one| json!({"session": one.session, "why": one.why.to_string()}));
    json!({
        "erased": done.erased, "frames": done.frames, "blobs": done.blobs,
        "bytes_before": sizes.map(|sizes| sizes.0), "bytes_after": sizes.map(|sizes| sizes.1),
        "held": deferred.collect::<Vec<_>>(),
    })
}

/// Erases the checkpoints of deleted sessions that remained after an interrupted deletion.
fn erase_checkpoints(place: &StoreLocation) -> Result<(), Fail> {
    let Some(checkpoints) = checkpoints::for_store(place) else { return Ok(()) };
    let saved = checkpoints.sessions()?;
    if saved.is_empty() {
        return Ok(());
    }
    let journal = place.read()?;
    for session in saved {
        if journal.head(session)?.is_some_and(|head| head.deleted) {
            checkpoints.erase(session)?;
        }
    }
    Ok(())
}

/// Returns a report of the erased content, with the sizes of the store before and after; sizes are unknown for a database.
fn summary(done: &Compacted, sizes: Option<(u64, u64)>) -> String {
    let (sessions, frames) = (count(done.erased, "session"), count(done.frames, "frame"));
    match sizes {
        Some((before, after)) => format!(
            "erased {sessions} ({frames} and {}); the store takes {}, before: {}",
            count(done.blobs, "blob"),
            size(after),
            size(before)
        ),
        None => format!("erased {sessions} ({frames}); the database uses the freed space for new rows"),
    }
}

/// Returns the total size of the files below a directory, without those that cannot be read.
fn size_of(dir: Option<&Path>) -> u64 {
    let entries = dir.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size_of(Some(&entry.path())),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .fold(0, u64::saturating_add)
}
