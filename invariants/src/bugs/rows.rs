//! Obligations that are forgotten: rows that are not put, and words that are not sent.

use std::collections::BTreeSet;

use subtend_session::effect::Effect;
use subtend_session::index::{Row, RowKey, RowKind};
use subtend_session::record::Record;

use super::Bug;

/// The keys that `records` refuse to continue.
fn refused(records: &[Record]) -> BTreeSet<RowKey> {
    let key = |record: &Record| {
        let Record::ContinueRefused { key, .. } = record else { return None };
        Some(RowKey::Call(*key))
    };
    records.iter().filter_map(key).collect()
}

/// Returns whether the notice of `key` is one that `bug` forgets.
fn forgets(bug: Bug, refused: &BTreeSet<RowKey>, key: Option<RowKey>) -> bool {
    let is_refusal = key.is_some_and(|key| refused.contains(&key));
    (bug == Bug::NoOutbox && !is_refusal) || (bug == Bug::ContinueRefusedSilently && is_refusal)
}

/// Forgets rows of notices.
pub(super) fn forget(bug: Bug, records: &[Record], put: &mut Vec<Row>) {
    let refused = refused(records);
    put.retain(|row| row.kind != RowKind::Notice || !forgets(bug, &refused, Some(row.key)));
}

/// Forgets to tell owners.
pub(super) fn mute(bug: Bug, records: &[Record], effects: &mut Vec<Effect>) {
    let refused = refused(records);
    effects.retain(|effect| {
        let Effect::DeliverCompletion { notice, .. } = effect else { return true };
        !forgets(bug, &refused, notice.row_key())
    });
}
