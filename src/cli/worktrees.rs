//! The worktrees of a store, and their descriptions in the output of commands.

use std::collections::HashSet;

use subtend_journal::Journal;
use subtend_session::ids::SessionId;
use subtend_tools::worktree::{Merged, WorktreeChanges, WorktreeError, Worktrees};

use super::data::{StoreArgs, StoreLocation};
use super::fail::Fail;
use super::guard;
use super::paint::{count, harmless, on_one_line};

/// Returns the worktrees of a store; `None` for a store in memory.
pub(crate) fn for_store(place: &StoreLocation) -> Result<Option<Worktrees>, Fail> {
    let Some(dir) = place.worktrees() else { return Ok(None) };
    let guard = guard::guard().map_err(|error| {
        Fail::Other(format!("cannot start guards of tool processes: the running program cannot be found: {error}"))
    })?;
    Ok(Some(Worktrees::new(dir, Some(guard))))
}

/// Returns a line for each worktree of `sessions` with changes that were not merged.
pub(crate) fn describe_unmerged(store: &StoreArgs, sessions: &HashSet<SessionId>) -> Result<Vec<String>, Fail> {
    let Some(worktrees) = for_store(&store.place()?)? else { return Ok(Vec::new()) };
    let entries = worktrees.list()?.entries.into_iter().filter(|entry| sessions.contains(&entry.session));
    let lines = entries.filter_map(|entry| {
        let changes = describe_changes(&worktrees.changes(entry.session))?;
        Some(format!("{}  {}", entry.session.short().0, harmless(&changes)))
    });
    Ok(lines.collect())
}

/// Describes the changes that are lost with a worktree. `None` if nothing is lost, as with an incomplete worktree.
pub(crate) fn describe_changes(changes: &Result<WorktreeChanges, WorktreeError>) -> Option<String> {
    match changes {
        Ok(changes) if changes.files.is_empty() && changes.left.is_empty() => None,
        Ok(changes) => Some(changes.summary()),
        Err(WorktreeError::Missing(_) | WorktreeError::Unfinished(_)) => None,
        Err(error) => Some(format!("its changes cannot be listed: {error}")),
    }
}

pub(crate) fn discard_deleted(store: &StoreArgs, journal: &Journal) -> Result<(), Fail> {
    let Some(worktrees) = for_store(&store.place()?)? else { return Ok(()) };
    for entry in worktrees.list()?.entries {
        if journal.head(entry.session)?.is_some_and(|head| head.deleted) {
            worktrees.discard(entry.session, None)?;
        }
    }
    Ok(())
}

/// Describes a merge that the start of a host completed.
pub(crate) fn describe_finished(session: SessionId, merged: &Merged) -> String {
    let what = harmless(&describe_merged(merged));
    format!("an interrupted merge of the worktree of session {} was completed: {what}", session.short().0)
}

pub(crate) fn describe_merged(merged: &Merged) -> String {
    let left = match merged.left.as_slice() {
        [] => String::new(),
        left => format!(
            "; not merged, since they were changed meanwhile: {}",
            left.iter().map(|path| on_one_line(path)).collect::<Vec<_>>().join(", ")
        ),
    };
    format!("merged {}{left}", count(u64::try_from(merged.files.len()).unwrap_or(u64::MAX), "file"))
}
