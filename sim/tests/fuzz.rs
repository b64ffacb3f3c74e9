//! The bodies of `fuzz/`, with every file of its corpus, and with bytes that are random or spoilt.
//!
//! `SUBTEND_WRITE_CORPUS=1` writes the seeds that are missing; `SUBTEND_FUZZ_CASES=N` tries more.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test says what it expects and fails where it is not so"
)]

use std::path::PathBuf;

use proptest::prelude::*;
use subtend_sim::fuzz::corpus::seeds;
use subtend_sim::fuzz::{Came, TARGETS, codec, export, fold};

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "fuzz", "corpus", target].iter().collect()
}

/// What lies in the corpus of a target.
fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder(target)).expect("a corpus");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), std::fs::read(path).expect("a seed"))).collect()
}

/// A search that found something leaves it in the corpus, and it is tried for ever.
#[test]
fn every_seed_of_the_corpus_leaves_everything_standing() {
    for (target, any_bytes) in TARGETS {
        let mut came = Vec::new();
        for (path, bytes) in corpus(target) {
            println!("{}", path.display());
            came.push(any_bytes(&bytes));
        }
        assert!(came.contains(&Came::Taken) && came.contains(&Came::Refused), "{target}: seeds of one sort show half");
    }
}

#[test]
fn the_corpus_holds_what_the_fixtures_give() {
    for (target, name, bytes) in seeds() {
        let path = folder(target).join(name);
        if std::env::var_os("SUBTEND_WRITE_CORPUS").is_some() && !path.exists() {
            std::fs::create_dir_all(folder(target)).expect("a folder");
            std::fs::write(&path, &bytes).expect("a seed");
        }
        assert!(path.exists(), "{} is missing: run this test with SUBTEND_WRITE_CORPUS=1", path.display());
    }
}

/// What was done to bytes.
#[derive(Clone, Debug)]
enum Mangled {
    Set(usize, u8),
    Cut(usize),
    Gone(usize, usize),
    Again(usize, usize),
    Strewn(usize, Vec<u8>),
}

fn mangled() -> impl Strategy<Value = Mangled> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Mangled::Set(at, byte)),
        any::<usize>().prop_map(Mangled::Cut),
        (any::<usize>(), 1..400_usize).prop_map(|(at, len)| Mangled::Gone(at, len)),
        (any::<usize>(), 1..400_usize).prop_map(|(at, len)| Mangled::Again(at, len)),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(at, what)| Mangled::Strewn(at, what)),
    ]
}

fn mangle(bytes: &mut Vec<u8>, how: &Mangled) {
    let len = bytes.len().max(1);
    let span = |at: usize, length: usize| (at % len).min(bytes.len())..(at % len + length).min(bytes.len());
    match how {
        Mangled::Set(at, byte) => bytes.iter_mut().skip(at % len).take(1).for_each(|slot| *slot = *byte),
        Mangled::Cut(at) => bytes.truncate(at % len),
        Mangled::Gone(at, length) => drop(bytes.drain(span(*at, *length))),
        Mangled::Again(at, length) => {
            let again = bytes[span(*at, *length)].to_vec();
            let end = span(*at, *length).end;
            drop(bytes.splice(end..end, again));
        }
        Mangled::Strewn(at, what) => {
            let at = span(*at, 0).start;
            drop(bytes.splice(at..at, what.iter().copied()));
        }
    }
}

/// A seed of the target, with a few things done to it.
fn spoilt(target: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let seeds: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, bytes)| bytes).collect();
    (prop::sample::select(seeds), prop::collection::vec(mangled(), 1..4)).prop_map(|(mut bytes, how)| {
        how.iter().for_each(|how| mangle(&mut bytes, how));
        bytes
    })
}

fn random() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..600)
}

fn cases(cases: u32) -> ProptestConfig {
    let cases = std::env::var("SUBTEND_FUZZ_CASES").map_or(cases, |cases| cases.parse().expect("a number"));
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn any_bytes_are_a_frame_or_a_typed_error(bytes in prop_oneof![spoilt("codec"), random()]) {
        codec::any_bytes(&bytes);
    }

    #[test]
    fn any_story_is_a_state_or_a_typed_error(bytes in prop_oneof![spoilt("fold"), random()]) {
        fold::any_bytes(&bytes);
    }
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn any_bytes_are_an_export_or_a_typed_error(bytes in prop_oneof![4 => spoilt("export"), 1 => random()]) {
        export::any_bytes(&bytes);
    }
}
