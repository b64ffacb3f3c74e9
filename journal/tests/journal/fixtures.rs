//! Compatibility: every later release reads the fixtures in `fixtures/N`. Fixtures of a released format never change.

use crate::scene::*;
use subtend_journal::{Tally, codec};
use subtend_session::record::AskVerdict;

/// An export; its frames as stored, in hexadecimal, one per session; the numbers of sessions and records.
type Fixture = (&'static str, &'static str, u64, u64);

/// Sessions written by the command line.
const EXAMPLE: Fixture =
    (include_str!("../../fixtures/1/example.jsonl"), include_str!("../../fixtures/1/frames.hex"), 11, 271);
/// The record kinds that the example lacks.
const KINDS: Fixture =
    (include_str!("../../fixtures/1/kinds.jsonl"), include_str!("../../fixtures/1/kinds.hex"), 3, 55);
/// A session with a title and summary by services of the host.
const DESCRIBED: Fixture =
    (include_str!("../../fixtures/1/described.jsonl"), include_str!("../../fixtures/1/described.hex"), 3, 30);
/// A tree with a deleted child.
const DELETED: &str = include_str!("../../fixtures/1/deleted.jsonl");
/// A run that failed and was rolled back.
const ROLLED_BACK: Fixture =
    (include_str!("../../fixtures/1/rolled_back.jsonl"), include_str!("../../fixtures/1/rolled_back.hex"), 1, 9);
/// A session whose old messages were compacted.
const COMPACTED: Fixture =
    (include_str!("../../fixtures/1/compacted.jsonl"), include_str!("../../fixtures/1/compacted.hex"), 2, 34);
/// A task of the host without a parent, with merged metadata.
const METADATA: Fixture =
    (include_str!("../../fixtures/1/metadata.jsonl"), include_str!("../../fixtures/1/metadata.hex"), 1, 9);

async fn import(export: &'static str) -> (Journal, Tally) {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let tally =
        journal.import(&mut BufReader::new(Cursor::new(export)), &ImportBounds::none(), &mut |_| {}).await.unwrap();
    (journal, tally)
}

/// Decodes hexadecimal digits.
pub(crate) fn bytes(line: &str) -> Vec<u8> {
    let digits: Vec<char> = line.chars().collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

#[tokio::test]
async fn export_of_format_1_is_imported_unchanged() {
    for (export, _, sessions, records) in [EXAMPLE, KINDS, DESCRIBED, ROLLED_BACK, COMPACTED, METADATA] {
        let (journal, tally) = import(export).await;
        assert_eq!((tally.sessions, tally.records), (sessions, records));
        let report = journal.verify(&mut |_| {}).unwrap();
        assert_eq!((report.problems, report.records), (Vec::new(), records));
        assert_eq!(
            frames_of_kept_sessions(&export_text(&journal)),
            frames_of_kept_sessions(&without_permanent_approvals(export)),
            "the export differs from the import"
        );
    }
    for export in [EXAMPLE.0, DESCRIBED.0, ROLLED_BACK.0, COMPACTED.0, DELETED] {
        assert!(export_text(&import(export).await.0) == export, "byte for byte");
    }
}

/// Replaces permanent approvals, which are imported as approvals of single calls.
fn without_permanent_approvals(export: &str) -> String {
    export.replace(r#""verdict":"always""#, r#""verdict":"allow""#)
}

fn export_text(journal: &Journal) -> String {
    let mut out = Vec::new();
    journal.export(Scope::Store, &mut out, &mut |_| {}).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the frames of an export, except those of its deleted sessions, which a current export omits.
fn frames_of_kept_sessions(export: &str) -> Vec<Value> {
    let lines = export.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let frames: Vec<Value> = lines.map(|mut line| line["frame"].take()).filter(|frame| !frame.is_null()).collect();
    let is_deletion = |record: &Value| !record["session_deleted"].is_null();
    let deletes = |frame: &&Value| frame["records"].as_array().unwrap().iter().any(is_deletion);
    let deleted: Vec<Value> = frames.iter().filter(deletes).map(|frame| frame["session"].clone()).collect();
    frames.into_iter().filter(|frame| !deleted.contains(&frame["session"])).collect()
}

#[tokio::test]
async fn j10_export_that_names_a_deleted_session_is_read() {
    let (journal, tally) = import(DELETED).await;
    assert_eq!((tally.sessions, journal.verify(&mut |_| {}).unwrap().problems), (2, Vec::new()));
    let heads = journal.heads().unwrap().into_iter();
    let listed: Vec<_> = heads.map(|(session, head)| (session, head.deleted, head.is_erased())).collect();
    assert_eq!(listed, [(id(10), false, false), (id(11), true, true), (id(20), false, false)]);
}

#[tokio::test]
async fn frames_of_format_1_are_decoded_unchanged() {
    for (export, frames, sessions, _) in [EXAMPLE, KINDS, DESCRIBED, ROLLED_BACK, COMPACTED, METADATA] {
        let (journal, _) = import(export).await;
        assert_eq!(frames.lines().count() as u64, sessions);
        for bytes in frames.lines().map(bytes) {
            let mut decoded = codec::decode(&bytes).unwrap();
            for record in &mut decoded.records {
                if let Record::AskAnswered { verdict: verdict @ AskVerdict::Always, .. } = record {
                    *verdict = AskVerdict::Allow;
                }
            }
            let records: Vec<_> =
                journal.records(decoded.session).unwrap().into_iter().map(|stored| stored.record).collect();
            assert_eq!(decoded.records, records, "{}", decoded.session);
            for at in (0..bytes.len()).step_by(97) {
                let mut spoilt = bytes.clone();
                spoilt[at] ^= 1;
                assert!(codec::decode(&spoilt).is_err(), "a bit flipped at {at} is not noticed");
            }
        }
    }
}
