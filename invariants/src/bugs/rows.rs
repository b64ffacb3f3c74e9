//! Seeded bugs that drop outbox rows and notifications.

use std::collections::BTreeSet;

use subtend_session::effect::Effect;
use subtend_session::index::{Row, RowKey, RowKind};
use subtend_session::record::Record;

use super::Bug;

fn refused_keys(records: &[Record]) -> BTreeSet<RowKey> {
    let key = |record: &Record| {
        let Record::ContinueRefused { key, .. } = record else { return None };
        Some(RowKey::Call(*key))
    };
    records.iter().filter_map(key).collect()
}

fn forgets(bug: Bug, refused: &BTreeSet<RowKey>, key: Option<RowKey>) -> bool {
    let is_refusal = key.is_some_and(|key| refused.contains(&key));
    (bug == Bug::NoOutbox && !is_refusal) || (bug == Bug::ContinueRefusedSilently && is_refusal)
}

pub(super) fn drop_notice_rows(bug: Bug, records: &[Record], put: &mut Vec<Row>) {
    let refused = refused_keys(records);
    put.retain(|row| row.kind != RowKind::Notice || !forgets(bug, &refused, Some(row.key)));
}

pub(super) fn drop_notifications(bug: Bug, records: &[Record], effects: &mut Vec<Effect>) {
    let refused = refused_keys(records);
    effects.retain(|effect| {
        let Effect::DeliverCompletion { notice, .. } = effect else { return true };
        !forgets(bug, &refused, notice.row_key())
    });
}
