//! See `subtend_sim::fuzz::codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    subtend_sim::fuzz::codec::any_bytes(bytes);
});
