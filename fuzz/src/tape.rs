//! Derives the records of a session from an input. The input is a tape: a sequence of three-byte steps, each of which
//! copies, skips, repeats or alters a record of the fixtures. So errors also occur after many valid records.

use serde_json::Value;
use subtend_session::ids::SessionId;
use subtend_session::record::Record;
use uuid::Uuid;

use super::pool;

/// The first byte of an input that contains the records as JSON rather than a tape.
pub const JSON_START: u8 = b'[';
const MAX_RECORDS: usize = 400;

/// Returns a session and its records, read from JSON or from a tape.
pub fn records(bytes: &[u8]) -> (SessionId, Vec<Record>) {
    if bytes.first() == Some(&JSON_START) {
        return (SessionId(Uuid::from_u128(1)), serde_json::from_slice(bytes).unwrap_or_default());
    }
    let sessions = pool::sessions();
    let mut at = FixtureCursor { session: 0, record: 0 };
    let mut out: Vec<Record> = Vec::new();
    for step in bytes.chunks_exact(3).take(MAX_RECORDS) {
        let &[action, first, second] = step else { continue };
        match action {
            0..160 => out.extend(at.next(sessions).cloned()),
            160..176 => drop(at.next(sessions)),
            176..192 => out.extend(out.last().cloned()),
            192..208 => drop(out.pop()),
            208..224 => {
                let mut other = FixtureCursor { session: usize::from(first), record: usize::from(second) };
                out.extend(other.next(sessions).cloned());
            }
            224..240 => at = FixtureCursor { session: usize::from(first), record: usize::from(second) },
            240..=255 => out.extend(at.next(sessions).and_then(|record| alter_field(record, first, second))),
        }
    }
    (sessions.get(at.session % sessions.len().max(1)).map_or(SessionId(Uuid::nil()), |(id, _)| *id), out)
}

/// Returns the tape that reproduces a session of the pool.
pub fn session_tape(session: u8, records: usize) -> Vec<u8> {
    let mut tape = vec![224, session, 0];
    tape.extend(std::iter::repeat_n([0, 0, 0], records).flatten());
    tape
}

/// The next record to read from the fixtures.
struct FixtureCursor {
    session: usize,
    record: usize,
}

impl FixtureCursor {
    fn next<'a>(&mut self, sessions: &'a [(SessionId, Vec<Record>)]) -> Option<&'a Record> {
        let (_, records) = sessions.get(self.session % sessions.len().max(1))?;
        let record = records.get(self.record % records.len().max(1))?;
        self.record = self.record.saturating_add(1);
        Some(record)
    }
}

/// Sets the number or flag at `position` to a value derived from `value`. `None` if the result is not a record.
fn alter_field(record: &Record, position: u8, value: u8) -> Option<Record> {
    let mut json = serde_json::to_value(record).ok()?;
    let mut left = usize::from(position);
    set_field(&mut json, &mut left, value);
    serde_json::from_value(json).ok()
}

fn set_field(json: &mut Value, left: &mut usize, value: u8) -> bool {
    match json {
        Value::Array(all) => all.iter_mut().any(|one| set_field(one, left, value)),
        Value::Object(all) => all.values_mut().any(|one| set_field(one, left, value)),
        Value::Null | Value::String(_) => false,
        Value::Bool(_) | Value::Number(_) => match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                false
            }
            None => {
                *json = if json.is_boolean() { Value::Bool(value > 127) } else { Value::from(number(value)) };
                true
            }
        },
    }
}

fn number(value: u8) -> u64 {
    match value {
        0..240 => u64::from(value % 24),
        240..248 => u64::from(u32::MAX) - u64::from(value - 240),
        248..=255 => u64::MAX - u64::from(value - 248),
    }
}
