use std::sync::Arc;

use proptest::prelude::*;
use subtend_session::authority::{Authority, RuleSet, Verdict};
use subtend_session::ids::{InputId, RunNo, TurnNo};
use subtend_session::index::Changes;
use subtend_session::limits::Limits;
use subtend_session::outcome::Initiator;
use subtend_session::place::Owner;
use subtend_session::record::{From, InputAccepted, Lane};

use super::*;
use crate::bodies::Bodies;

/// Built from JSON, so that a new field with a default changes no test.
fn created(system: &str) -> Record {
    let ceiling: Authority = serde_json::from_str("[]").unwrap();
    let creation = serde_json::json!({
        "place": "root",
        "short": "abc123",
        "agent": "explore",
        "agent_hash": "07070707070707070707070707070707",
        "model": "scripted",
        "system": Interned::<str>::new(Arc::from(system)).unwrap(),
        "ceiling": Interned::new(Arc::new(ceiling)).unwrap(),
        "limits": Interned::new(Arc::new(Limits::default())).unwrap(),
        "workspace": ".",
    });
    Record::SessionCreated(serde_json::from_value(creation).unwrap())
}

fn input(text: String, key: Option<String>, id: u128) -> Record {
    let input = InputAccepted::new(InputId(Uuid::from_u128(id)), From::Person, Lane::Steer, text, Owner::Person);
    Record::InputAccepted(Box::new(InputAccepted { key: key.map(Text::from), ..input }))
}

fn frame(records: Vec<Record>, changes: Changes) -> Frame {
    Frame { session: SessionId(Uuid::from_u128(42)), first_seq: Seq(3), epoch: Epoch(2), at_ms: -5, records, changes }
}

/// Returns whether the first record carries its bodies: system, ceiling, limits.
fn bodies(decoded: &Decoded) -> [bool; 3] {
    let Some(Record::SessionCreated(created)) = decoded.records.first() else { panic!("no creation") };
    [created.system.body.is_some(), created.ceiling.body.is_some(), created.limits.body.is_some()]
}

#[test]
fn creation_carries_only_the_bodies_that_its_frame_defines() {
    let record = created("be brief");
    let Record::SessionCreated(creation) = &record else { panic!("no creation") };
    let def = (creation.system.hash, Text::from("\"be brief\""));
    let first = frame(vec![record.clone()], Changes { defs: vec![def.clone()], ..Changes::default() });
    assert_eq!(bodies(&decode(&encode(&first).unwrap()).unwrap()), [true, false, false]);
    let later = frame(vec![record.clone()], Changes::default());
    let mut decoded = decode(&encode(&later).unwrap()).unwrap();
    assert_eq!(bodies(&decoded), [false, false, false]);

    let defs = [
        def,
        (creation.ceiling.hash, serde_json::to_string(&creation.ceiling.body).unwrap().into()),
        (creation.limits.hash, serde_json::to_string(&creation.limits.body).unwrap().into()),
    ];
    let mut look = |hash| Ok(defs.iter().find(|(name, _)| *name == hash).map(|(_, text)| Text::clone(text)));
    Bodies::default().fill(&mut decoded.records[0], &mut look, &|why| why).unwrap();
    let Record::SessionCreated(filled) = &decoded.records[0] else { panic!("no creation") };
    assert_eq!(filled.system.body.as_deref(), Some("be brief"));
    assert_eq!(filled.ceiling.body, creation.ceiling.body);
    assert_eq!(filled.limits.body, creation.limits.body);
}

#[test]
fn missing_body_error_names_its_hash() {
    let mut decoded = decode(&encode(&frame(vec![created("be brief")], Changes::default())).unwrap()).unwrap();
    let text = Bodies::default().fill(&mut decoded.records[0], &mut |_| Ok(None), &|why| why).unwrap_err();
    assert_eq!(text, format!("the body {} is not in the store", Hash::of(b"\"be brief\"")));
}

/// The error is reported even if the changed text is valid JSON.
#[test]
fn body_that_does_not_match_its_hash_is_damage() {
    let mut decoded = decode(&encode(&frame(vec![created("be brief")], Changes::default())).unwrap()).unwrap();
    let text = Bodies::default()
        .fill(&mut decoded.records[0], &mut |_| Ok(Some("\"be grief\"".into())), &|why| why)
        .unwrap_err();
    assert_eq!(text, format!("the body {} does not match its hash", Hash::of(b"\"be brief\"")));
}

#[test]
fn equal_rule_sets_have_one_body() {
    let set = RuleSet { default: Verdict::Ask, rules: vec![] };
    let one: Authority = serde_json::from_value(serde_json::json!([set])).unwrap();
    assert_eq!(Interned::new(Arc::new(one.clone())).unwrap().hash, Interned::new(Arc::new(one)).unwrap().hash);
}

/// Returns a frame around `body` with a correct checksum.
fn seal_frame(version: u8, flags: u8, count: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = encode(&frame(vec![], Changes::default())).unwrap();
    bytes.truncate(HEADER);
    bytes[2] = version;
    bytes[3] = flags;
    put(&mut bytes, 28, count);
    put(&mut bytes, LEN_AT, body.len() as u32);
    bytes.extend_from_slice(body);
    let sum = crc(&bytes);
    put(&mut bytes, CRC_AT, sum);
    bytes
}

#[test]
fn bytes_of_a_newer_version_are_not_damage() {
    let newer = |bytes: &[u8]| matches!(decode(bytes), Err(FrameError::Newer(_)));
    assert!(newer(&seal_frame(2, 0, 0, b"whatever")));
    assert!(newer(&seal_frame(1, 2, 0, b"compressed")));
    assert!(newer(&seal_frame(1, 3, 0, b"compressed, in a blob")));
    assert!(newer(&seal_frame(1, 0, 1, br#"[{"session_moved":{}}]"#)));
    assert!(newer(&seal_frame(1, 0, 1, br#"[{"run_parked":{"run":1,"why":"tide","worked_ms":0}}]"#)));
    assert_eq!(decode(&seal_frame(1, 0, 0, b"[]")).map(|frame| frame.records), Ok(vec![]));
}

#[test]
fn split_frame_joins_with_its_blob() {
    let whole = encode(&frame(vec![created("be brief")], Changes::default())).unwrap();
    let (named, reference, body) = split(&whole);
    assert_eq!((reference.hash, reference.len), (Hash::of(&whole[HEADER..]), (whole.len() - HEADER) as u64));
    assert_eq!((named.len(), Reference::in_frame(&named), body), (HEADER + 24, Some(reference), &whole[HEADER..]));
    assert_eq!(join([&named[..HEADER], body].concat()), whole);
    assert_eq!([&named, &whole].map(|row| frame_bytes(row)), [whole.len() as u64; 2]);
    assert_eq!(Reference::in_frame(&whole), None);
    let alone = decode(&named).unwrap_err().to_string();
    assert_eq!(alone, format!("corrupt frame: its body is in the blob {}, which was not fetched", reference.hash));
    for bit in 0..named.len() * 8 {
        let mut flipped = named.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Reference::in_frame(&flipped), None, "bit {bit}");
        assert!(matches!(decode(&flipped), Err(FrameError::Corrupt(_))), "bit {bit}");
    }
}

#[test]
fn invalid_content_with_a_valid_checksum_is_damage() {
    let error_of = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
    assert_eq!(error_of(b"short"), "corrupt frame: 5 bytes are shorter than a header");
    assert_eq!(error_of(&[0; HEADER]), "corrupt frame: it starts with 0x0000, not 0x5b7d");
    assert_eq!(error_of(&seal_frame(1, 0, 3, b"[]")), "corrupt frame: it holds 0 records, the header says 3");
    let mut long = seal_frame(1, 0, 0, b"[]");
    long.push(b' ');
    assert_eq!(error_of(&long), "corrupt frame: the body has 3 bytes, the header says 2");
    assert!(matches!(decode(&seal_frame(1, 0, 1, b"[{]")), Err(FrameError::Corrupt(_))));
}

fn any_record() -> impl Strategy<Value = Record> {
    prop_oneof![
        (any::<String>(), any::<Option<String>>(), any::<u128>()).prop_map(|(text, key, id)| input(text, key, id)),
        (any::<u32>(), any::<bool>()).prop_map(|(run, slot)| Record::RunStarted { run: RunNo(run), slot }),
        (proptest::collection::vec(any::<u128>(), 0..4), any::<u32>(), any::<u32>()).prop_map(|(ids, run, turn)| {
            let ids = ids.into_iter().map(|id| InputId(Uuid::from_u128(id))).collect();
            Record::InputsTaken { ids, run: RunNo(run), turn: TurnNo(turn) }
        }),
        Just(Record::SessionClosed { by: Initiator::Host }),
    ]
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let numbers = (any::<u128>(), any::<u64>(), any::<u32>(), any::<i64>());
    (numbers, proptest::collection::vec(any_record(), 0..6)).prop_map(|((session, seq, epoch, at_ms), records)| Frame {
        session: SessionId(Uuid::from_u128(session)),
        first_seq: Seq(seq),
        epoch: Epoch(epoch),
        at_ms,
        records,
        changes: Changes::default(),
    })
}

proptest! {
    #[test]
    fn decode_reverses_encode(frame in any_frame()) {
        let decoded = decode(&encode(&frame).unwrap()).unwrap();
        let Frame { session, first_seq, epoch, at_ms, records, .. } = frame;
        prop_assert_eq!(decoded, Decoded { session, first_seq, epoch, at_ms, records });
    }

    #[test]
    fn decode_does_not_panic_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err());
    }

    #[test]
    fn decode_does_not_panic_on_any_body_with_valid_checksum(
        body in proptest::collection::vec(any::<u8>(), 0..200),
        count in 0_u32..3,
    ) {
        let _ = decode(&seal_frame(1, 0, count, &body));
    }

    #[test]
    fn flipped_bit_is_damage(frame in any_frame(), at in any::<proptest::sample::Index>()) {
        let mut bytes = encode(&frame).unwrap();
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(matches!(decode(&bytes), Err(FrameError::Corrupt(_))), "bit {bit}");
    }

    #[test]
    fn truncated_frame_is_damage(frame in any_frame(), at in any::<proptest::sample::Index>()) {
        let bytes = encode(&frame).unwrap();
        let cut = &bytes[..at.index(bytes.len())];
        prop_assert!(matches!(decode(cut), Err(FrameError::Corrupt(_))));
    }
}

/// Attack: a root whose first frame has the records of thousands of children, which each ask for its creation. The controls: all records,
/// and a frame with a flipped bit.
#[test]
fn first_record_is_decoded_without_the_others() {
    let records = vec![created("prompt"), input("first".into(), None, 1), input("second".into(), None, 2)];
    let bytes = encode(&frame(records, Changes::default())).unwrap();
    let whole = decode(&bytes).unwrap();
    let first = decode_first(&bytes).unwrap();
    assert_eq!((first.records.as_slice(), first.first_seq), (&whole.records[..1], whole.first_seq));
    let mut rest_is_invalid = bytes;
    let end = rest_is_invalid.len() - 2;
    rest_is_invalid[end] = b'!';
    assert!(decode_first(&rest_is_invalid).is_err(), "the checksum is of the whole frame");
    let sum = crc(&rest_is_invalid);
    put(&mut rest_is_invalid, CRC_AT, sum);
    assert!(decode(&rest_is_invalid).is_err());
    assert_eq!(decode_first(&rest_is_invalid).unwrap().records, first.records);
    assert!(decode_first(&encode(&frame(vec![], Changes::default())).unwrap()).is_err());
}
