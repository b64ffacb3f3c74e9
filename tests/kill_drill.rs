//! Kills real runs on redb with SIGKILL at random moments, and checks what is on the disk after each.
//!
//! After every kill: the store opens, `verify` is clean, nothing that was acknowledged is missing; after recovery every run
//! has one end and every owned run one notice, and no side effect happened twice. Two sabotages show that the drill can fail.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "drill/check.rs"]
mod check;
#[path = "drill/child.rs"]
mod child;
#[path = "drill/kill.rs"]
mod kill;

use check::Violations;
use kill::Drill;

/// One drill at a time: a process that is being started still holds the files of its parent, the lock of a store too.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The child's side: does nothing unless the drill started it.
#[test]
fn child_process() {
    if let Ok(dir) = std::env::var(child::DIR) {
        child::run(std::path::Path::new(&dir));
    }
}

/// Twenty kills: ten on one store that ages, ten on fresh ones.
#[test]
fn twenty_kills_lose_and_double_nothing() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seed = kill::seed();
    println!("drill seed {seed} (set {} to repeat)", kill::SEED);
    let mut drill = Drill::new(seed, None);
    let aged = tempfile::tempdir().expect("a directory");
    for _ in 0..10 {
        let violations = drill.once(aged.path());
        assert_eq!(violations, Violations::default(), "aged store, {}", drill.told());
    }
    for _ in 0..10 {
        let fresh = tempfile::tempdir().expect("a directory");
        let violations = drill.once(fresh.path());
        assert_eq!(violations, Violations::default(), "fresh store, {}", drill.told());
    }
    println!("{}", drill.told());
    assert!(drill.acknowledged > 100, "the drill hit nothing: {}", drill.told());
    assert!(drill.in_flight > 0, "no kill hit a run in flight: {}", drill.told());
}

/// A journal that acknowledges 50 ms before it commits loses what it acknowledged.
#[test]
fn acknowledging_before_the_commit_is_caught() {
    let caught = sabotaged("ack-before-commit", |violations| !violations.lost.is_empty());
    assert!(caught, "{CONTROL} kills did not catch it");
}

/// A journal without an outbox loses notices, so that owners wait for ever or end without them.
#[test]
fn a_missing_outbox_is_caught() {
    let caught = sabotaged("no-outbox", |violations| !violations.notices.is_empty() || !violations.endless.is_empty());
    assert!(caught, "{CONTROL} kills did not catch it");
}

/// Kills that a sabotage may take: one kill in a few hits the moment that shows it, and fewer on a machine that is busy.
const CONTROL: u32 = 60;

fn sabotaged(fault: &'static str, caught: impl Fn(&Violations) -> bool) -> bool {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut drill = Drill::new(kill::seed(), Some(fault));
    (0..CONTROL).any(|_| {
        let dir = tempfile::tempdir().expect("a directory");
        caught(&drill.once(dir.path()))
    })
}
