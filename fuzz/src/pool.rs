//! The sessions of the fixtures, read once per process.

use std::io::{BufReader, Cursor};
use std::sync::OnceLock;

use subtend_journal::memory::Memory;
use subtend_journal::{ImportBounds, Journal};
use subtend_session::ids::SessionId;
use subtend_session::record::Record;
use tokio::runtime::Runtime;

pub(super) const EXPORTS: [(&str, &str); 2] = [
    ("kinds", include_str!("../../journal/fixtures/1/kinds.jsonl")),
    ("example", include_str!("../../journal/fixtures/1/example.jsonl")),
];

/// Returns all sessions with their records and bodies, ordered by id, so that an input always gives the same records.
pub(super) fn sessions() -> &'static [(SessionId, Vec<Record>)] {
    static SESSIONS: OnceLock<Vec<(SessionId, Vec<Record>)>> = OnceLock::new();
    SESSIONS.get_or_init(|| EXPORTS.iter().flat_map(|(_, export)| read(export)).collect())
}

fn read(export: &str) -> Vec<(SessionId, Vec<Record>)> {
    let Some(journal) = imported(export.as_bytes()).ok().map(|(journal, _)| journal) else { return Vec::new() };
    let heads = journal.heads().unwrap_or_default();
    let records =
        |session| journal.records(session).unwrap_or_default().into_iter().map(|stored| stored.record).collect();
    heads.into_iter().map(|(session, _)| (session, records(session))).collect()
}

pub(super) fn imported(bytes: &[u8]) -> Result<(Journal, u64), (String, Option<Journal>)> {
    let no_journal = |error: &dyn std::error::Error| (error.to_string(), None);
    let journal = Journal::open(Box::new(Memory::new()), Default::default()).map_err(|error| no_journal(&error))?;
    match import(&journal, bytes) {
        Ok(sessions) => Ok((journal, sessions)),
        Err(error) => Err((error, Some(journal))),
    }
}

pub(super) fn import(journal: &Journal, bytes: &[u8]) -> Result<u64, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    thread_local! {
        static RUNTIME: std::io::Result<Runtime> = tokio::runtime::Builder::new_current_thread().build();
    }
    RUNTIME.with(|runtime| {
        let runtime = runtime.as_ref().map_err(|error| text(error))?;
        let tally = runtime.block_on(journal.import(
            &mut BufReader::new(Cursor::new(bytes)),
            &ImportBounds::none(),
            &mut |_| {},
        ));
        tally.map(|tally| tally.sessions).map_err(|error| text(&error))
    })
}
