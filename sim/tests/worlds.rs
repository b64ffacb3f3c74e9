//! Tests of the model checker and the simulator that need an optimised build:
//! `cargo test --profile checks -p subtend-sim --features worlds --test worlds`.

mod clients;
mod lease;
mod model;
mod nodes;
mod simulate;
