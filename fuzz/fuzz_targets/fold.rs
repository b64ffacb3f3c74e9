//! See `subtend_sim::fuzz::fold`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    subtend_sim::fuzz::fold::any_bytes(bytes);
});
