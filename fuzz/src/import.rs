//! Fuzzes the import of exported files.

use serde_json::{Map, Value};
use subtend_journal::{Journal, Scope};
use subtend_session::ids::SessionId;

use super::{InputResult, pool};

/// Imports the bytes into an empty store, both unchanged and with corrected numbers and checksums. Also imports the
/// corrected bytes into a store with sessions.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let forged = with_valid_checksums(bytes);
    let result = import_into_empty(bytes).max(import_into_empty(&forged));
    import_into_existing(&forged);
    result
}

/// Imports a file into a store with sessions. A refused file changes nothing; after an accepted one the store is valid.
fn import_into_existing(bytes: &[u8]) {
    let Some((journal, before)) = pool::EXPORTS.last().and_then(|(_, export)| {
        let (journal, _) = pool::imported(export.as_bytes()).ok()?;
        let before = exported(&journal);
        Some((journal, before))
    }) else {
        return;
    };
    match pool::import(&journal, bytes) {
        Ok(_) => {
            let problems = journal.verify(&mut |_| {}).map(|report| report.problems);
            assert!(problems.as_ref().is_ok_and(Vec::is_empty), "an accepted import has problems: {problems:?}");
        }
        Err(error) => assert!(exported(&journal) == before, "a refused import changed the store: {error}"),
    }
}

/// If the file is accepted, an import of its export has the same living sessions, and another export, import and export
/// give the same bytes: the first one may have deletions that no session needs. If not, the store stays empty.
fn import_into_empty(bytes: &[u8]) -> InputResult {
    match pool::imported(bytes) {
        Ok((journal, sessions)) => {
            let problems = journal.verify(&mut |_| {}).map(|report| report.problems);
            assert!(problems.as_ref().is_ok_and(Vec::is_empty), "an accepted import has problems: {problems:?}");
            assert_eq!(
                journal.heads().map_or(0, |heads| heads.len() as u64),
                sessions,
                "the number of sessions differs from the reported one"
            );
            let again = pool::imported(&exported(&journal)).ok().map(|(journal, _)| journal);
            assert_eq!(again.as_ref().map(living), Some(living(&journal)), "an export loses sessions");
            let out = again.as_ref().map(exported).unwrap_or_default();
            let third = pool::imported(&out).map(|(journal, _)| exported(&journal));
            assert!(
                third.as_ref().is_ok_and(|third| *third == out),
                "an export changes when it is imported and exported again"
            );
            InputResult::Accepted
        }
        Err((error, journal)) => {
            assert!(!error.is_empty(), "an error without a message");
            let empty = |journal: &Journal| journal.last_appended().0 == 0;
            assert!(journal.as_ref().is_none_or(empty), "a refused import left records: {error}");
            InputResult::Refused
        }
    }
}

/// Returns the sessions that are not deleted, in order.
fn living(journal: &Journal) -> Vec<SessionId> {
    let heads = journal.heads().unwrap_or_default();
    heads.into_iter().filter(|(_, head)| !head.deleted).map(|(session, _)| session).collect()
}

fn exported(journal: &Journal) -> Vec<u8> {
    let mut out = Vec::new();
    let done = journal.export(Scope::Store, &mut out, &mut |_| {});
    assert!(done.is_ok(), "an imported store cannot be exported: {done:?}");
    out
}

/// Returns the lines that are JSON objects, with corrected numbers, checksums, counts and sum.
pub fn with_valid_checksums(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines: Vec<Map<String, Value>> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let count = |kind: &str| lines.iter().filter(|line| line.get(kind).is_some_and(Value::is_object)).count();
    let (frames, defs) = (count("frame"), count("def"));
    let (mut out, mut sum) = (Vec::new(), blake3::Hasher::new());
    for (n, mut line) in (1..).zip(lines) {
        line.remove("crc");
        line.insert("n".into(), Value::from(n));
        if let Some(end) = line.get_mut("end").and_then(Value::as_object_mut) {
            end.insert("sum".into(), sum.finalize().to_hex().as_str().into());
            if let Some(tally) = end.get_mut("tally").and_then(Value::as_object_mut) {
                tally.insert("frames".into(), frames.into());
                tally.insert("defs".into(), defs.into());
            }
        }
        let Ok(mut sealed) = serde_json::to_vec(&line) else { continue };
        sealed.pop();
        let crc = crc32c::crc32c(&sealed);
        sealed.extend_from_slice(format!(",\"crc\":\"{crc:08x}\"}}\n").as_bytes());
        sum.update(&sealed);
        out.extend(sealed);
    }
    out
}
