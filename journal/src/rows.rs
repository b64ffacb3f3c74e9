//! Keys and values of the tables, for engines that store bytes. Integers are big-endian, so that keys sort like their values.

use serde::Serialize;
use serde::de::DeserializeOwned;
use subtend_session::ids::{CallId, Lsn, RunNo, Seq, SessionId, TurnNo};
use subtend_session::index::{Row, RowKey, RowKind};
use uuid::Uuid;

use crate::error::EngineError;
use crate::json;

// Lengths in bytes.
pub(crate) const SESSION_KEY_LEN: usize = 16;
pub(crate) const EV_KEY_LEN: usize = 24;
pub(crate) const CHILD_KEY_LEN: usize = 32;
pub(crate) const OUTBOX_KEY_LEN: usize = 42;

pub(crate) fn session_key(session: SessionId) -> [u8; SESSION_KEY_LEN] {
    session.0.into_bytes()
}

pub(crate) fn session_of(key: [u8; SESSION_KEY_LEN]) -> SessionId {
    SessionId(Uuid::from_bytes(key))
}

pub(crate) fn ev_key(session: SessionId, seq: Seq) -> [u8; EV_KEY_LEN] {
    join(session_key(session), seq.0.to_be_bytes())
}

pub(crate) fn ev_of(key: &[u8; EV_KEY_LEN]) -> (SessionId, Seq) {
    let (session, seq) = split(key);
    (session_of(session), Seq(u64::from_be_bytes(seq)))
}

pub(crate) fn child_key(parent: SessionId, child: SessionId) -> [u8; CHILD_KEY_LEN] {
    join(session_key(parent), session_key(child))
}

pub(crate) fn child_of(key: &[u8; CHILD_KEY_LEN]) -> (SessionId, SessionId) {
    let (parent, child) = split(key);
    (session_of(parent), session_of(child))
}

fn join<const A: usize, const B: usize, const N: usize>(first: [u8; A], second: [u8; B]) -> [u8; N] {
    let mut key = [0; N];
    key.iter_mut().zip(first.into_iter().chain(second)).for_each(|(slot, byte)| *slot = byte);
    key
}

fn split<const A: usize, const B: usize, const N: usize>(key: &[u8; N]) -> ([u8; A], [u8; B]) {
    let (mut first, mut second) = ([0; A], [0; B]);
    first.iter_mut().chain(&mut second).zip(key).for_each(|(slot, byte)| *slot = *byte);
    (first, second)
}

pub(crate) fn outbox_key(row: &Row) -> [u8; OUTBOX_KEY_LEN] {
    let kind = match row.kind {
        RowKind::Notice => 0,
        RowKind::Continue => 1,
        RowKind::Cancel => 2,
        RowKind::Ask => 3,
        RowKind::Answer => 4,
    };
    let (tag, a, b) = match row.key {
        RowKey::Call(call) => (0, call.turn.0, call.ix),
        RowKey::Run(run) => (1, run.0, 0),
    };
    let numbers = [a.to_be_bytes(), b.to_be_bytes()];
    let bytes = session_key(row.to)
        .into_iter()
        .chain(session_key(row.from))
        .chain([kind, tag])
        .chain(numbers.into_iter().flatten());
    let mut key = [0; OUTBOX_KEY_LEN];
    key.iter_mut().zip(bytes).for_each(|(slot, byte)| *slot = byte);
    key
}

pub(crate) fn outbox_of(key: &[u8; OUTBOX_KEY_LEN]) -> Option<Row> {
    let (to, rest) = key.split_first_chunk::<SESSION_KEY_LEN>()?;
    let (from, rest) = rest.split_first_chunk::<SESSION_KEY_LEN>()?;
    let ([kind, tag], rest) = rest.split_first_chunk::<2>()?;
    let (a, b) = rest.split_first_chunk::<4>()?;
    let (a, b) = (u32::from_be_bytes(*a), u32::from_be_bytes(*b.first_chunk()?));
    let kind = match kind {
        0 => RowKind::Notice,
        1 => RowKind::Continue,
        2 => RowKind::Cancel,
        3 => RowKind::Ask,
        4 => RowKind::Answer,
        _ => return None,
    };
    let key = match (tag, b) {
        (0, ix) => RowKey::Call(CallId { turn: TurnNo(a), ix }),
        (1, 0) => RowKey::Run(RunNo(a)),
        _ => return None,
    };
    Some(Row { to: session_of(*to), from: session_of(*from), kind, key })
}

/// Returns the inclusive key range of all obligations, or of those to one session.
pub(crate) fn outbox_range(to: Option<SessionId>) -> ([u8; OUTBOX_KEY_LEN], [u8; OUTBOX_KEY_LEN]) {
    let (mut min, mut max) = ([0; OUTBOX_KEY_LEN], [0xff; OUTBOX_KEY_LEN]);
    if let Some(to) = to {
        let key = session_key(to);
        min.iter_mut().zip(key).for_each(|(slot, byte)| *slot = byte);
        max.iter_mut().zip(key).for_each(|(slot, byte)| *slot = byte);
    }
    (min, max)
}

/// Checks the checksum of a row of `outbox`, and decodes it.
pub(crate) fn decode_outbox_row(key: &[u8; OUTBOX_KEY_LEN], value: &[u8]) -> Result<(Row, Lsn), EngineError> {
    let lsn = unseal("outbox", key, value)?;
    let row = outbox_of(key).ok_or_else(|| corrupt("outbox", key, "the key is invalid"))?;
    let lsn = lsn.first_chunk().ok_or_else(|| corrupt("outbox", key, "the value is not an lsn"))?;
    Ok((row, Lsn(u64::from_be_bytes(*lsn))))
}

/// Prepends a checksum of table, key and value, because stores do not detect every flipped bit.
pub(crate) fn seal(table: &'static str, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut sealed = crc(table, key, value).to_be_bytes().to_vec();
    sealed.extend_from_slice(value);
    sealed
}

pub(crate) fn unseal<'a>(table: &'static str, key: &[u8], sealed: &'a [u8]) -> Result<&'a [u8], EngineError> {
    sealed
        .split_first_chunk::<4>()
        .filter(|(sum, value)| u32::from_be_bytes(**sum) == crc(table, key, value))
        .map(|(_, value)| value)
        .ok_or_else(|| corrupt(table, key, "the checksum does not match"))
}

fn crc(table: &str, key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(table.as_bytes()), key), value)
}

pub(crate) fn seal_json(table: &'static str, key: &[u8], value: &impl Serialize) -> Result<Vec<u8>, EngineError> {
    let mut sealed = vec![0; 4];
    json::write(&mut sealed, value)
        .map_err(|error| EngineError::Store { what: "encode a row", why: error.to_string() })?;
    if let Some((sum, value)) = sealed.split_first_chunk_mut::<4>() {
        *sum = crc(table, key, value).to_be_bytes();
    }
    Ok(sealed)
}

pub(crate) fn unseal_json<T: DeserializeOwned>(
    table: &'static str,
    key: &[u8],
    sealed: &[u8],
) -> Result<T, EngineError> {
    serde_json::from_slice(unseal(table, key, sealed)?).map_err(|error| corrupt(table, key, &error.to_string()))
}

pub(crate) fn corrupt(table: &'static str, key: &[u8], why: &str) -> EngineError {
    let at = key.iter().map(|byte| format!("{byte:02x}")).collect();
    EngineError::Corrupt { table, at, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_like_their_values_and_decode() {
        let row = |turn, ix| Row {
            to: SessionId(Uuid::from_u128(1)),
            from: SessionId(Uuid::from_u128(2)),
            kind: RowKind::Cancel,
            key: RowKey::Call(CallId { turn: TurnNo(turn), ix }),
        };
        assert!(outbox_key(&row(1, 300)) < outbox_key(&row(2, 0)));
        assert_eq!(outbox_of(&outbox_key(&row(7, 9))), Some(row(7, 9)));
        let run = Row { key: RowKey::Run(RunNo(3)), ..row(0, 0) };
        assert_eq!(outbox_of(&outbox_key(&run)), Some(run));
        let id = SessionId(Uuid::from_u128(0x0123_4567_89ab_cdef));
        assert_eq!(ev_of(&ev_key(id, Seq(70_000))), (id, Seq(70_000)));
        assert!(ev_key(id, Seq(255)) < ev_key(id, Seq(256)));
    }

    #[test]
    fn sealed_value_is_bound_to_its_table_and_key() {
        let sealed = seal("head", b"one", b"value");
        assert_eq!(unseal("head", b"one", &sealed).unwrap(), b"value");
        assert!(unseal("head", b"two", &sealed).is_err());
        assert!(unseal("inflight", b"one", &sealed).is_err());
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal("head", b"one", &flipped).is_err(), "bit {bit}");
        }
    }
}
