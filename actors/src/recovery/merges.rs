//! Merges of worktrees that the end of a process interrupted.

use std::sync::Arc;

use subtend_session::ids::SessionId;
use subtend_tools::memory_threads::spawn_with_memory;
use subtend_tools::worktree::{Merged, Worktrees};

use crate::recovery::boot::BootFailure;

/// Finishes merges that an earlier process began, because a workspace must not stay partly merged. Returns the finished
/// merges, and the failures, which the next command on such a worktree retries.
pub(crate) async fn finish_merges(worktrees: Option<Arc<Worktrees>>) -> (Vec<(SessionId, Merged)>, Vec<BootFailure>) {
    let Some(worktrees) = worktrees else { return (Vec::new(), Vec::new()) };
    let failure = |session, error: &dyn std::fmt::Display| BootFailure {
        session,
        why: format!(
            "an interrupted merge of a worktree cannot be completed: {error}. `subtend worktree merge ID` retries it, `subtend worktree \
             discard ID` gives it up"
        ),
    };
    let finished = spawn_with_memory(move || {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let listed = worktrees.list().unwrap_or_else(|error| {
            failed.push(failure(None, &error));
            Default::default()
        });
        for session in listed.entries.into_iter().map(|entry| entry.session) {
            match worktrees.recover(session) {
                Ok(None) => {}
                Ok(Some(merged)) => {
                    tracing::warn!(%session, files = merged.files.len(), left = ?merged.left, "an interrupted merge was completed");
                    done.push((session, merged));
                }
                Err(error) => {
                    tracing::warn!(%session, %error, "an interrupted merge cannot be completed");
                    failed.push(failure(Some(session), &error));
                }
            }
        }
        (done, failed)
    });
    finished.await.unwrap_or_else(|error| (Vec::new(), vec![failure(None, &error)]))
}
