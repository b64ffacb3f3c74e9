//! Runs every target with its corpus and with mutations of it. `SUBTEND_FUZZ_CASES=N` sets the number of mutations, and
//! `SUBTEND_WRITE_CORPUS=1` writes missing seeds.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use fastrand::Rng;
use subtend_fuzz::corpus::seeds;
use subtend_fuzz::{InputResult, TARGETS, mutate};

fn folder(target: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "corpus", target].iter().collect()
}

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(folder(target)).expect("a corpus");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.map(|path| (path.clone(), std::fs::read(path).expect("a seed"))).collect()
}

/// Runs every file of the corpus, including those that a search found.
#[test]
fn corpus_has_accepted_and_refused_inputs() {
    for (name, target) in TARGETS {
        let mut result = Vec::new();
        for (path, bytes) in corpus(name) {
            println!("{}", path.display());
            result.push(target(&bytes));
        }
        assert!(
            result.contains(&InputResult::Accepted) && result.contains(&InputResult::Refused),
            "{name}: every input is {result:?}"
        );
    }
}

#[test]
fn corpus_contains_the_seeds_of_the_fixtures() {
    for (target, name, bytes) in seeds() {
        let path = folder(target).join(name);
        if std::env::var_os("SUBTEND_WRITE_CORPUS").is_some() && !path.exists() {
            std::fs::create_dir_all(folder(target)).expect("a folder");
            std::fs::write(&path, &bytes).expect("a seed");
        }
        assert!(path.exists(), "{} is missing: run this test with SUBTEND_WRITE_CORPUS=1", path.display());
    }
}

#[test]
fn corpus_files_are_small() {
    let large = |(path, bytes): (PathBuf, Vec<u8>)| (bytes.len() > 32 << 10).then_some(path);
    let large: Vec<PathBuf> = TARGETS.iter().flat_map(|(name, _)| corpus(name)).filter_map(large).collect();
    assert!(large.is_empty(), "{large:?}");
}

#[test]
fn mutations_of_the_corpus_keep_every_property() {
    let cases = std::env::var("SUBTEND_FUZZ_CASES").map_or(60, |cases| cases.parse().expect("a number"));
    for (name, target) in TARGETS {
        let corpus: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, bytes)| bytes).collect();
        for seed in 0..cases {
            println!("{name} {seed}");
            target(&mutate::next_input(&corpus, &mut Rng::with_seed(seed)));
        }
    }
}
