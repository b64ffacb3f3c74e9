//! One binary for all targets. The variable `FUZZ_TARGET` names the target to run.
#![no_main]

use std::sync::OnceLock;

use subtend_fuzz::{TARGETS, Target};

fn target() -> Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let names = || TARGETS.map(|(name, _)| name).join(", ");
        let asked = std::env::var("FUZZ_TARGET").unwrap_or_else(|_| panic!("set FUZZ_TARGET to one of: {}", names()));
        let found = TARGETS.into_iter().find(|(name, _)| *name == asked);
        found.unwrap_or_else(|| panic!("unknown fuzz target {asked:?}; targets: {}", names())).1
    })
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    target()(bytes);
});
