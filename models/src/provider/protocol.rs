//! Protocols of providers.

use std::fmt;

/// Protocol of a provider or of a compatible server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Anthropic messages.
    Anthropic,
    /// OpenAI chat completions.
    OpenAi,
    /// OpenAI responses.
    OpenAiResponses,
    /// Gemini content generation.
    Gemini,
    /// Ollama chat.
    Ollama,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses, Self::Gemini, Self::Ollama];

    /// Returns its name in a choice of model.
    pub fn word(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// Returns the environment variable of the key, where one is needed.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAi | Self::OpenAiResponses => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }

    pub(super) fn home(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://127.0.0.1:11434/",
        }
    }

    /// The version in its paths.
    pub(super) fn version(self) -> Option<&'static str> {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiResponses => Some("v1"),
            Self::Gemini => Some("v1beta"),
            Self::Ollama => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
