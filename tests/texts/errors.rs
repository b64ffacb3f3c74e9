//! Every error that the command prints, with its exit code.

mod agents;
mod configuration;
mod moving;
mod options;
mod runs;
mod servers;
mod sessions;
mod store;
mod trust;
