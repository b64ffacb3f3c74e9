//! Claims of the documents about the code, checked against the code.
#![cfg(test)]

pub(crate) mod source;

mod cycles;
mod documents;
mod features;
mod invariants;
mod modes;
mod recorded_json;
mod surface;
mod threats;
mod type_names;
mod whole_reads;
