//! Settings of model calls.

use serde::{Deserialize, Serialize};

/// How a model should answer; the provider's default where unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: the probability mass to sample from, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Effort {
    /// No reasoning, where the model allows that.
    None,
    Low,
    Medium,
    High,
}

impl Settings {
    /// Returns these settings over `above`: set values win, but a cap never exceeds the one above.
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
