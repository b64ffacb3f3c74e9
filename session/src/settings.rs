//! Settings of model calls.

use serde::{Deserialize, Serialize};

/// How a model is to answer; what is not set is the provider's own default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Output tokens of one call at most (B18).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Sampling temperature, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: the probability mass that is sampled from, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// How much a reasoning model is to think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

/// How much a reasoning model is to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all, where the model can be told so.
    None,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}

impl Settings {
    /// These settings, under `above`: what is set here counts, but a cap never rises above the one above (B18).
    #[must_use]
    pub fn under(&self, above: &Settings) -> Settings {
        let cap = match (self.output_tokens, above.output_tokens) {
            (Some(here), Some(above)) => Some(here.min(above)),
            (here, above) => here.or(above),
        };
        Settings {
            output_tokens: cap,
            temperature: self.temperature.or(above.temperature),
            top_p: self.top_p.or(above.top_p),
            effort: self.effort.or(above.effort),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearer_setting_counts_and_a_cap_only_falls() {
        let above = Settings { output_tokens: Some(100), temperature: Some(0.5), ..Settings::default() };
        let capped = |output_tokens| Settings { output_tokens, effort: Some(Effort::Low), ..Settings::default() };
        let merged =
            |output_tokens| Settings { output_tokens: Some(output_tokens), effort: Some(Effort::Low), ..above };
        assert_eq!(capped(Some(500)).under(&above), merged(100));
        assert_eq!(capped(Some(50)).under(&above), merged(50));
        assert_eq!(capped(None).under(&above), merged(100));
    }
}
