//! Titles, summaries and metadata. Allowed in any phase: the model never sees them.

use serde_json::{Map, Value};

use super::draft::Draft;
use crate::command::Description;
use crate::effect::{Rejection, Reply};
use crate::ids::{SessionId, Text};
use crate::outcome::Initiator;
use crate::record::{MetadataSet, Record, SummarySet, TitleSet};
use crate::title;
use crate::values::{check_metadata, parse_recorded};

const MAX_SUMMARY_BYTES: usize = 32 << 10;
/// Maximum bytes of metadata in the records of a session. Each merge records all of it, and views read all records.
const MAX_RECORDED_METADATA: u64 = 16 << 20;

pub(super) fn describe(draft: &mut Draft<'_>, description: Description) -> Result<(), Rejection> {
    if draft.state.deleted {
        return Err(Rejection::Deleted);
    }
    match description {
        Description::Title(set) => set_title(draft, set)?,
        Description::Summary(set) => set_summary(draft, set)?,
        Description::Metadata { changes, by } => merge_metadata(draft, &changes, by)?,
    }
    draft.reply(Reply::Done(draft.state.last_run));
    Ok(())
}

fn set_title(draft: &mut Draft<'_>, set: TitleSet) -> Result<(), Rejection> {
    title::check(&set.title).map_err(|bad| Rejection::BadInput(bad.to_string()))?;
    let taken = is_taken(draft, set.of)?;
    // A title set by a person takes precedence: the host's title may arrive late or twice.
    let keeps_title = set.by != Initiator::Person && draft.state.is_titled();
    if !keeps_title && !taken && draft.state.title.as_ref() != Some(&set.title) {
        draft.emit(Record::TitleSet(Box::new(set)));
    }
    Ok(())
}

fn set_summary(draft: &mut Draft<'_>, set: SummarySet) -> Result<(), Rejection> {
    if set.text.trim().is_empty() || set.text.len() > MAX_SUMMARY_BYTES {
        return Err(Rejection::BadInput(format!(
            "the summary has {} bytes: it must have 1 to {MAX_SUMMARY_BYTES}",
            set.text.len()
        )));
    }
    if !is_taken(draft, Some(set.of))? {
        draft.emit(Record::SummarySet(Box::new(set)));
    }
    Ok(())
}

fn is_taken(draft: &Draft<'_>, of: Option<SessionId>) -> Result<bool, Rejection> {
    let Some(of) = of else { return Ok(false) };
    let unknown = || Rejection::BadInput(format!("session {of} is not a service session of this session"));
    draft.state.service(of).ok_or_else(unknown)
}

/// Merges `changes` key by key. A merge without a change does not write a record, so repeating one is harmless.
fn merge_metadata(draft: &mut Draft<'_>, changes: &str, by: Initiator) -> Result<(), Rejection> {
    let refused = |why: &str| Rejection::BadInput(format!("metadata not merged: {why}"));
    let object = |text: &str| parse_recorded::<Map<String, Value>>(text).ok();
    let changes = object(changes).ok_or_else(|| refused("the changes are not a JSON object"))?;
    let before = object(draft.state.metadata().map_or("{}", |text| &**text)).ok_or_else(|| {
        refused("the session was opened with metadata that is not a JSON object, so it has no keys to merge")
    })?;
    let mut merged = before.clone();
    for (key, value) in changes {
        if value.is_null() { drop(merged.remove(&key)) } else { drop(merged.insert(key, value)) }
    }
    if merged == before {
        return Ok(());
    }
    if draft.state.metadata_bytes >= MAX_RECORDED_METADATA {
        let most = MAX_RECORDED_METADATA >> 20;
        return Err(refused(&format!(
            "the session has recorded {most} MiB of metadata, which is the limit: branch off from it, or open another session"
        )));
    }
    let metadata = Text::from(Value::Object(merged).to_string());
    check_metadata("the result", &metadata).map_err(|why| refused(&why))?;
    draft.emit(Record::MetadataSet(Box::new(MetadataSet { metadata, by })));
    Ok(())
}
