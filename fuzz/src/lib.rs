//! Fuzz targets: one function for each kind of input from outside.
//!
//! `tests/fuzz.rs` runs the corpus and some mutations of it. The command `subtend-fuzz` does so for a given time, and
//! `libfuzzer` searches by coverage. A target panics if a property does not hold. It returns whether the input was
//! accepted.

pub mod arguments;
pub mod codec;
pub mod config;
pub mod corpus;
pub mod escape;
pub mod fold;
pub mod glob;
pub mod import;
pub mod manifest;
pub mod mutate;
mod pool;
pub mod products;
pub mod request;
pub mod stream;
pub mod tape;
mod tree;

/// The result of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputResult {
    /// The input was refused with a typed error, and nothing changed.
    Refused,
    /// The input was accepted.
    Accepted,
}

/// A target: the function that checks one input.
pub type Target = fn(&[u8]) -> InputResult;

/// The targets by name. The corpus of each target is the folder of that name in `corpus`.
pub const TARGETS: [(&str, Target); 15] = [
    ("manifest", manifest::any_bytes),
    ("products", products::any_bytes),
    ("config", config::any_bytes),
    ("glob", glob::any_bytes),
    ("arguments", arguments::any_bytes),
    ("stream-anthropic", stream::anthropic),
    ("stream-openai", stream::openai),
    ("stream-openai-responses", stream::openai_responses),
    ("stream-gemini", stream::gemini),
    ("stream-ollama", stream::ollama),
    ("import", import::any_bytes),
    ("request", request::any_bytes),
    ("escape", escape::any_bytes),
    ("codec", codec::any_bytes),
    ("fold", fold::any_bytes),
];
