//! Capabilities of Anthropic's models, by name. Sources: Anthropic's pages on models, extended thinking, adaptive thinking and effort.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    Budget,
    Effort,
    /// Thinking with a given effort. The model decides when to think.
    Adaptive {
        /// True if the model thinks by default.
        by_default: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Opus,
    Sonnet,
    Haiku,
    Fable,
    Mythos,
}

/// A model of Anthropic, or of a compatible server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claude(Option<(Family, Option<(u32, u32)>)>);

impl Claude {
    /// Parses names such as `claude-sonnet-4-5-20250929` and `claude-3-5-haiku-latest`.
    pub(super) fn of(name: &str) -> Self {
        let mut parts = name.split('-');
        if parts.next() != Some("claude") {
            return Self(None);
        }
        let (mut family, mut numbers) = (None, Vec::new());
        for part in parts {
            match part {
                "opus" => family = Some(Family::Opus),
                "sonnet" => family = Some(Family::Sonnet),
                "haiku" => family = Some(Family::Haiku),
                "fable" => family = Some(Family::Fable),
                "mythos" => family = Some(Family::Mythos),
                // A number with more digits is a date.
                _ if part.len() <= 2 => numbers.extend(part.parse::<u32>()),
                _ => {}
            }
        }
        let version = numbers.first().map(|major| (*major, numbers.get(1).copied().unwrap_or(0)));
        Self(family.map(|family| (family, version)))
    }

    /// Returns the default cap on output tokens. The protocol requires a cap.
    pub(super) fn max_tokens(self) -> u64 {
        match self.0 {
            Some((Family::Fable | Family::Mythos, _)) => 128_000,
            Some((Family::Opus, Some(version))) if version >= (4, 8) => 128_000,
            Some((Family::Haiku, Some(version))) if version >= (5, 0) => 128_000,
            Some((Family::Opus, Some(version))) if version < (4, 0) => 4_096,
            Some((Family::Opus, Some(version))) if version < (4, 5) => 32_000,
            Some((Family::Sonnet | Family::Haiku, Some(version))) if version < (3, 5) => 4_096,
            Some((Family::Sonnet | Family::Haiku, Some(version))) if version < (3, 7) => 8_192,
            Some((Family::Opus | Family::Sonnet | Family::Haiku, _)) | None => 64_000,
        }
    }

    pub(super) fn thinking(self) -> Thinking {
        match self.0 {
            Some((Family::Fable | Family::Mythos, _)) => Thinking::Adaptive { by_default: false },
            Some((Family::Opus | Family::Sonnet | Family::Haiku, Some(version))) if version >= (5, 0) => {
                Thinking::Adaptive { by_default: true }
            }
            Some((Family::Opus | Family::Sonnet, Some(version))) if version >= (4, 6) => {
                Thinking::Adaptive { by_default: false }
            }
            Some((Family::Opus, Some(version))) if version >= (4, 5) => Thinking::Effort,
            Some((Family::Opus | Family::Sonnet | Family::Haiku, _)) | None => Thinking::Budget,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_follow_from_model_names() {
        let adaptive = |by_default| Thinking::Adaptive { by_default };
        for (name, tokens, thinking) in [
            ("claude-3-haiku-20240307", 4_096, Thinking::Budget),
            ("claude-3-opus-latest", 4_096, Thinking::Budget),
            ("claude-3-5-sonnet-20241022", 8_192, Thinking::Budget),
            ("claude-3-7-sonnet-latest", 64_000, Thinking::Budget),
            ("claude-opus-4-20250514", 32_000, Thinking::Budget),
            ("claude-opus-4-1", 32_000, Thinking::Budget),
            ("claude-sonnet-4-5-20250929", 64_000, Thinking::Budget),
            ("claude-opus-4-5", 64_000, Thinking::Effort),
            ("claude-sonnet-4-6", 64_000, adaptive(false)),
            ("claude-opus-4-8", 128_000, adaptive(false)),
            ("claude-sonnet-5", 64_000, adaptive(true)),
            ("claude-opus-5", 128_000, adaptive(true)),
            ("claude-haiku-5", 128_000, adaptive(true)),
            ("claude-mythos-preview", 128_000, adaptive(false)),
            ("claude-sonnet-latest", 64_000, Thinking::Budget),
            ("glm-5", 64_000, Thinking::Budget),
        ] {
            let model = Claude::of(name);
            assert_eq!((model.max_tokens(), model.thinking()), (tokens, thinking), "{name}");
        }
    }
}
