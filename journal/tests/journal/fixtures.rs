//! What a release wrote is read by every later one. `fixtures/N` holds what format N wrote and is never written anew: a later format
//! reads it as it is.

use std::io::{BufReader, Cursor};

use subtend_journal::memory::Memory;
use subtend_journal::{Journal, Options, Scope, Tally, codec};

const EXPORT: &str = include_str!("../../fixtures/1/example.jsonl");
/// The bytes of frames as an engine keeps them, in hexadecimal digits: of each session of the export its records as one frame.
const FRAMES: &str = include_str!("../../fixtures/1/frames.hex");

async fn imported() -> (Journal, Tally) {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let tally = journal.import(&mut BufReader::new(Cursor::new(EXPORT)), &mut |_| {}).await.unwrap();
    (journal, tally)
}

#[tokio::test]
async fn an_export_of_format_1_is_read_holds_and_is_what_it_was() {
    let (journal, tally) = imported().await;
    assert_eq!((tally.sessions, tally.records), (11, 271));
    let report = journal.verify(&mut |_| {}).unwrap();
    assert_eq!((report.problems, report.records), (Vec::new(), 271));
    let mut out = Vec::new();
    journal.export(Scope::Store, &mut out, &mut |_| {}).unwrap();
    assert!(out == EXPORT.as_bytes(), "it comes out as it came in");
}

#[tokio::test]
async fn frames_of_format_1_are_read_as_what_they_were() {
    let (journal, _) = imported().await;
    let mut sessions = 0;
    for line in FRAMES.lines() {
        let digits: Vec<char> = line.chars().collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        let decoded = codec::decode(&bytes).unwrap();
        let records: Vec<_> =
            journal.records(decoded.session).unwrap().into_iter().map(|stored| stored.record).collect();
        assert_eq!(decoded.records, records, "{}", decoded.session);
        sessions += 1;
        for at in (0..bytes.len()).step_by(97) {
            let mut spoilt = bytes.clone();
            spoilt[at] ^= 1;
            assert!(codec::decode(&spoilt).is_err(), "a bit flipped at {at} is noticed");
        }
    }
    assert_eq!(sessions, 11);
}
