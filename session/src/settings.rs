use serde::{Deserialize, Serialize};

/// Settings of a model call. The provider's default applies to each that is not set.
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
    /// No reasoning, if the model allows that.
    None,
    Low,
    Medium,
    High,
}

impl Settings {
    /// Returns these settings, with unset values from `parent`. An output cap never exceeds that of `parent`.
    #[must_use]
    pub fn under(&self, parent: &Settings) -> Settings {
        let cap = match (self.output_tokens, parent.output_tokens) {
            (Some(own), Some(cap)) => Some(own.min(cap)),
            (own, cap) => own.or(cap),
        };
        Settings {
            output_tokens: cap,
            temperature: self.temperature.or(parent.temperature),
            top_p: self.top_p.or(parent.top_p),
            effort: self.effort.or(parent.effort),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_setting_takes_precedence_and_caps_never_rise() {
        let parent = Settings { output_tokens: Some(100), temperature: Some(0.5), ..Settings::default() };
        let capped = |output_tokens| Settings { output_tokens, effort: Some(Effort::Low), ..Settings::default() };
        let merged =
            |output_tokens| Settings { output_tokens: Some(output_tokens), effort: Some(Effort::Low), ..parent };
        assert_eq!(capped(Some(500)).under(&parent), merged(100));
        assert_eq!(capped(Some(50)).under(&parent), merged(50));
        assert_eq!(capped(None).under(&parent), merged(100));
    }
}
