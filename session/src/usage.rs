//! Tokens and cost of model calls.

use serde::{Deserialize, Serialize};

/// Tokens and money of one or more model calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, cached ones included.
    #[serde(rename = "in")]
    pub input: u64,
    #[serde(rename = "out")]
    pub output: u64,
    /// Reasoning tokens, included in the output.
    #[serde(skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Input tokens written to a cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_new: u64,
    /// Input tokens read from a cache.
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Millionths of a US dollar, if a price is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_micro: Option<u64>,
    /// True if a part is unknown, which is not the same as zero.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unreliable: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
pub(crate) fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    /// The usage of a call that was dropped before it reported any. It is unknown, not zero.
    pub const UNKNOWN: Self =
        Self { input: 0, output: 0, reasoning: 0, cache_new: 0, cache_read: 0, cost_micro: None, unreliable: true };

    /// Maximum tokens, or millionths of a dollar, in one number. A server that exaggerates reaches 10^13 for a run. An import
    /// refuses more, so no sum exceeds it either.
    pub const MAX_FIGURE: u64 = 1 << 60;

    /// Adds `other`, up to [`Usage::MAX_FIGURE`]. If a part is unknown, the sum is marked as unreliable.
    pub fn add(&mut self, other: &Usage) {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(Self::MAX_FIGURE);
        self.input = sum(self.input, other.input);
        self.output = sum(self.output, other.output);
        self.reasoning = sum(self.reasoning, other.reasoning);
        self.cache_new = sum(self.cache_new, other.cache_new);
        self.cache_read = sum(self.cache_read, other.cache_read);
        self.cost_micro = match (self.cost_micro, other.cost_micro) {
            (None, None) => None,
            (a, b) => Some(sum(a.unwrap_or(0), b.unwrap_or(0))),
        };
        self.unreliable |= other.unreliable;
    }

    /// Returns input plus output tokens.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
