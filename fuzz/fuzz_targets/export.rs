//! See `subtend_sim::fuzz::export`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    subtend_sim::fuzz::export::any_bytes(bytes);
});
