//! `subtend compact`: rewrites the store without the records of deleted sessions.

use std::path::Path;

use subtend_journal::{Compacted, Compacting};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::{count, size};
use super::progress::ProgressLine;

/// Erases the text of deleted sessions from the files of the store, and removes unreferenced blobs.
///
/// It writes a new store next to the old one and then replaces the old one: both must fit on the disk, and no other process may
/// have the store open. If it is killed, the old store or the new one remains. It cannot erase copies of the store, or what the
/// disk keeps of removed files.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let place = args.store.place()?;
    if !place.exists()? {
        return Err(place.none());
    }
    let before = below(place.path());
    let mut progress = ProgressLine::new();
    let done = place.compact(&mut |step| {
        if let Compacting::Copied(frames) = step {
            progress.report(|| format!("{} copied", count(frames, "frame")));
        }
    })?;
    drop(progress);
    control::say(&told(&done, before, below(place.path())))?;
    for held in &done.held {
        let (session, why) = (held.session, &held.why);
        control::say(&format!(
            "session {session} is not erased yet: {why}; run `subtend recover`, then `subtend compact` again"
        ))?;
    }
    Ok(if done.held.is_empty() { Code::Done } else { Code::Failed })
}

fn told(done: &Compacted, before: u64, after: u64) -> String {
    let Compacted { erased, frames, blobs, .. } = done;
    format!(
        "erased {} ({} and {}); the store takes {}, before {}",
        count(*erased, "session"),
        count(*frames, "frame"),
        count(*blobs, "blob"),
        size(after),
        size(before)
    )
}

/// Bytes of the files below a directory; what cannot be read counts for nothing.
fn below(dir: Option<&Path>) -> u64 {
    let entries = dir.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => below(Some(&entry.path())),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .fold(0, u64::saturating_add)
}
