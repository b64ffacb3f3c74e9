//! The documents that claim something of the code, against the code.
#![cfg(test)]

pub(crate) mod source;

mod circles;
mod documents;
mod features;
mod invariants;
mod surface;
mod threats;
mod type_names;
