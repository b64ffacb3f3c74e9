//! Random mutations of inputs. Equal seeds give equal mutations.

use fastrand::Rng;

/// Maximum size of an input in bytes.
pub const MAX_LEN: usize = 64 << 10;

/// Returns random bytes or a mutated input of the corpus.
pub fn next_input(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    if corpus.is_empty() || rng.u8(..) < 16 {
        return (0..rng.usize(..600)).map(|_| rng.u8(..)).collect();
    }
    let mut bytes = pick(corpus, rng).to_vec();
    for _ in 0..rng.usize(1..5) {
        mutate(&mut bytes, corpus, rng);
    }
    bytes.truncate(MAX_LEN);
    bytes
}

fn pick<'a>(corpus: &'a [Vec<u8>], rng: &mut Rng) -> &'a [u8] {
    corpus.get(rng.usize(..corpus.len().max(1))).map_or(&[], Vec::as_slice)
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let span = |of: &[u8], rng: &mut Rng| {
        let at = rng.usize(..=of.len());
        at..(at + rng.usize(1..400)).min(of.len())
    };
    let own = span(bytes, rng);
    match rng.u8(..8) {
        0 => bytes.truncate(own.start),
        1 => drop(bytes.drain(own)),
        2 => {
            let again = bytes.get(own.clone()).unwrap_or_default().to_vec();
            bytes.splice(own.end..own.end, again);
        }
        3 => {
            let random: Vec<u8> = (0..rng.usize(1..40)).map(|_| rng.u8(..)).collect();
            bytes.splice(own.start..own.start, random);
        }
        4 => {
            let other = pick(corpus, rng);
            let part = other.get(span(other, rng)).unwrap_or_default().to_vec();
            bytes.splice(own.start..own.start, part);
        }
        // Nests deeply, because parsers recurse.
        5 => {
            let opens = rng.choice([&b"["[..], b"{\"a\":", b"{", b"- ", b"(", b"?"]).unwrap_or_default();
            let many = opens.repeat(rng.usize(1..2_000));
            bytes.splice(own.start..own.start, many);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(own.start) {
                *byte = if rng.bool() { rng.u8(..) } else { *byte ^ (1 << rng.u8(..8)) };
            }
        }
    }
}
