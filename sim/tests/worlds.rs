//! The model checker and the simulator on many worlds, optimised: `cargo test --profile checks -p subtend-sim
//! --features worlds --test worlds`.

mod clients;
mod lease;
mod model;
mod nodes;
mod simulate;
