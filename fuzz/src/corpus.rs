//! Seeds of the corpus, built from the fixtures of export format 1.

use subtend_journal::Frame;
use subtend_journal::codec;
use subtend_session::ids::{Epoch, Seq};
use subtend_session::index::{self, Changes};
use subtend_session::record::Record;

use super::{pool, request, tape};

/// A seed: its target, name and bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// Maximum size of a seed in bytes. Large seeds slow a search down.
const MAX_SEED_BYTES: usize = 12 << 10;

/// Returns the seeds that the corpus must contain. The other files in the folders of the corpus come from searches.
pub fn seeds() -> Vec<Seed> {
    let mut seeds: Vec<Seed> = vec![("codec", "nothing".into(), Vec::new())];
    for (ix, (session, records)) in (0_u8..).zip(pool::sessions()) {
        let name = session.short().to_string();
        seeds.push(("fold", format!("tape-{ix}-{name}"), tape::session_tape(ix, records.len())));
        seeds.push(("fold", format!("json-{ix}-{name}"), serde_json::to_vec(records).unwrap_or_default()));
        let mut changes = Changes::default();
        if let Some(Record::SessionCreated(created)) = records.first() {
            changes.defs.extend(index::defs(created).into_iter().flatten());
        }
        let frame = |changes, records| Frame {
            session: *session,
            first_seq: Seq(1),
            epoch: Epoch(1),
            at_ms: 0,
            records,
            changes,
        };
        let without = codec::encode(&frame(Changes::default(), records.clone())).unwrap_or_default();
        seeds.push(("codec", format!("frame-{ix}-{name}"), without));
        let creation = records.first().cloned().into_iter().collect();
        seeds.push((
            "codec",
            format!("birth-{ix}-{name}"),
            codec::encode(&frame(changes, creation)).unwrap_or_default(),
        ));
    }
    // These seeds have an error after many valid records: a repeated, moved, foreign or altered record.
    for (name, what) in [("again", 176), ("back", 192), ("else", 208), ("jump", 224), ("altered", 240)] {
        let mut tape = tape::session_tape(0, 12);
        tape.extend([what, 3, 7]);
        tape.extend(tape::session_tape(0, 20).split_off(3));
        seeds.push(("fold", format!("tape-{name}"), tape));
    }
    for (name, export) in pool::EXPORTS {
        seeds.push(("import", name.into(), export.as_bytes().to_vec()));
        let lines: Vec<&str> = export.split_inclusive('\n').collect();
        for (what, from, to) in [("head", 0, 6), ("tail", lines.len().saturating_sub(6), lines.len())] {
            let cut: String = lines.get(from..to).unwrap_or_default().concat();
            seeds.push(("import", format!("{name}-{what}"), cut.into_bytes()));
        }
    }
    seeds.extend(request::seeds::all().into_iter().map(|(name, bytes)| ("request", name, bytes)));
    seeds.retain(|(target, _, bytes)| {
        bytes.len() <= MAX_SEED_BYTES || (*target == "import" && bytes.len() <= 2 * MAX_SEED_BYTES)
    });
    seeds
}
