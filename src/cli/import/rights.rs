//! Reports permissions that sessions lost in an import.

use std::collections::{BTreeSet, HashMap};

use subtend_actors::transcript::ACTIONS;
use subtend_journal::Journal;
use subtend_session::authority::Authority;
use subtend_session::ids::{Hash, Seq, SessionId};
use subtend_session::record::Record;

use super::super::fail::Fail;
use super::super::paint::count;

#[derive(Debug, Default)]
pub(super) struct LostRights {
    sessions: u64,
    /// Lost permissions, such as `shell.run allow → ask`.
    actions: BTreeSet<String>,
}

/// Returns the sessions that are not deleted.
pub(super) fn sessions(journal: &Journal) -> Result<BTreeSet<SessionId>, Fail> {
    Ok(journal.heads()?.into_iter().filter(|(_, head)| !head.deleted).map(|(session, _)| session).collect())
}

/// Compares the recorded permissions of the sessions imported since `before` with their permissions here.
pub(super) fn find_lost(journal: &Journal, before: &BTreeSet<SessionId>) -> Result<LostRights, Fail> {
    let (mut lost, mut known) = (LostRights::default(), HashMap::new());
    for session in sessions(journal)?.difference(before) {
        for stored in journal.records_from(*session, Seq(1), 1)? {
            let Record::SessionCreated(created) = stored.record else { continue };
            let (Some(had), Some(bound)) = (&created.ceiling.body, &created.imported) else { continue };
            // Compare each pair of permissions once: sessions share them, and comparing can take long. The key is a
            // hash, because each session of an export may have a large bound of its own.
            let is_reduced = *known.entry((created.ceiling.hash, hash(bound)?)).or_insert_with(|| {
                let reductions = reductions(had, &had.meet(bound));
                let is_reduced = !reductions.is_empty();
                lost.actions.extend(reductions);
                is_reduced
            });
            lost.sessions = lost.sessions.saturating_add(u64::from(is_reduced));
        }
    }
    Ok(lost)
}

fn hash(permissions: &Authority) -> Result<Hash, Fail> {
    let json = serde_json::to_vec(permissions).map_err(|error| Fail::Other(error.to_string()))?;
    Ok(Hash::of(&json))
}

fn reductions(had: &Authority, has: &Authority) -> Vec<String> {
    let reduction = |action: &&str| {
        let (had, has) = (had.best(action), has.best(action));
        (has < had).then(|| format!("{action} {} → {}", had.as_str(), has.as_str()))
    };
    ACTIONS.iter().filter_map(reduction).collect()
}

pub(super) fn lost_actions(lost: &LostRights) -> &BTreeSet<String> {
    &lost.actions
}

pub(super) fn describe(lost: &LostRights) -> String {
    let most = "their permissions are limited to those of a new session here";
    if lost.actions.is_empty() {
        return format!("{most}; none had more");
    }
    let actions: Vec<&str> = lost.actions.iter().map(String::as_str).collect();
    format!(
        "{most}: {} had more ({}); to keep more, import into another store with --allow ACTION",
        count(lost.sessions, "session"),
        actions.join(", ")
    )
}
