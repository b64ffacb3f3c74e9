//! Checkpoints at a start: completes interrupted restores, and erases the checkpoints of deleted sessions.

use std::collections::BTreeSet;

use subtend_journal::Journal;
use subtend_session::ids::SessionId;
use subtend_session::record::Record;
use subtend_tools::checkpoint::{AwaitedRecord, Checkpoints, Patches};
use subtend_tools::memory_threads::spawn_with_memory;

use crate::views::checkpoints::{UnrecordedWrite, unrecorded, unrecorded_checkpoints};

#[derive(Debug, Default)]
pub(crate) struct FoundCheckpoints {
    /// Number of files of completed interrupted restores.
    pub(crate) restored: usize,
    /// The reason why restores cannot be completed.
    pub(crate) failed: Option<String>,
}

/// Completes the restores that an earlier process left. If the record that a restore awaits exists, all its files are restored, otherwise none.
pub(crate) async fn settle(checkpoints: Option<&Checkpoints>, journal: &Journal) -> FoundCheckpoints {
    let Some(checkpoints) = checkpoints.cloned() else { return FoundCheckpoints::default() };
    let journal = journal.clone();
    let settled = spawn_with_memory(move || {
        checkpoints.recover(|session, awaited| match awaited {
            AwaitedRecord::RolledBack(run) => {
                let of = |record: &Record| matches!(record, Record::RolledBack { run: of, .. } if *of == run);
                let records = journal.records(session).map_err(std::io::Error::other)?;
                Ok(records.iter().any(|stored| of(&stored.record)))
            }
            AwaitedRecord::Branch(branch) => Ok(journal.head(branch).map_err(std::io::Error::other)?.is_some()),
        })
    });
    match settled.await {
        Ok(Ok(done)) => {
            let restored = done.iter().map(|(_, restored)| restored.files.len()).fold(0, usize::saturating_add);
            FoundCheckpoints { restored, failed: None }
        }
        Ok(Err(error)) => FoundCheckpoints { restored: 0, failed: Some(error.to_string()) },
        Err(error) => FoundCheckpoints { restored: 0, failed: Some(error.to_string()) },
    }
}

/// Removes the temporary files of writes that the end of an earlier process interrupted. Called before runs resume, which may write again.
pub(crate) async fn remove_temporary_files(
    checkpoints: Option<&Checkpoints>,
    journal: &Journal,
    sessions: BTreeSet<SessionId>,
) {
    let Some(checkpoints) = checkpoints.cloned().filter(|_| !sessions.is_empty()) else { return };
    let journal = journal.clone();
    let removed = spawn_with_memory(move || {
        for session in sessions {
            // A session that cannot be read is reported by the sweep.
            for (_, checkpoint) in unrecorded_checkpoints(&journal, &checkpoints, (session, true)).unwrap_or_default() {
                if let Err(error) = checkpoints.remove_temporary_files(&checkpoint) {
                    tracing::warn!(%session, %error, "the temporary file of an interrupted write cannot be removed");
                }
            }
        }
    });
    drop(removed.await);
}

/// Returns the writes of sessions that were in flight whose results are missing in the journal.
pub(crate) async fn unfinished_writes(
    checkpoints: Option<&Checkpoints>,
    journal: &Journal,
    sessions: BTreeSet<SessionId>,
) -> Vec<UnrecordedWrite> {
    let Some(checkpoints) = checkpoints.cloned().filter(|_| !sessions.is_empty()) else { return Vec::new() };
    let journal = journal.clone();
    let found = spawn_with_memory(move || {
        let mut patches = Patches::default();
        let of = |id: SessionId| unrecorded(&journal, &checkpoints, (id, true), &mut patches).unwrap_or_default();
        sessions.into_iter().flat_map(of).collect()
    });
    found.await.unwrap_or_default()
}

/// Erases the checkpoints of sessions. The next start retries those that cannot be removed.
pub(crate) async fn erase(checkpoints: Option<&Checkpoints>, of: Vec<SessionId>) {
    let Some(checkpoints) = checkpoints.cloned().filter(|_| !of.is_empty()) else { return };
    let erased = spawn_with_memory(move || {
        for session in of {
            if let Err(error) = checkpoints.erase(session) {
                tracing::warn!(%session, %error, "cannot remove the checkpoints of a deleted session; the next start retries");
            }
        }
    });
    drop(erased.await);
}

/// Erases checkpoints of deleted sessions that remained from an earlier process.
pub(crate) async fn erase_deleted(checkpoints: Option<&Checkpoints>, journal: &Journal) {
    let is_gone = |id: &SessionId| journal.head(*id).is_ok_and(|head| head.is_some_and(|head| head.deleted));
    let saved = checkpoints.and_then(|checkpoints| checkpoints.sessions().ok()).unwrap_or_default();
    erase(checkpoints, saved.into_iter().filter(is_gone).collect()).await;
}
