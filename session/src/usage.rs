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

    /// Adds `other`. If a part is unknown, the sum is marked as unreliable.
    pub fn add(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.cache_new = self.cache_new.saturating_add(other.cache_new);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cost_micro = match (self.cost_micro, other.cost_micro) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        self.unreliable |= other.unreliable;
    }

    /// Returns input plus output tokens.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}
