//! The protocols of the providers.

use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Ollama,
}

const KEYS: [&str; 3] = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"];
/// Variables that would redirect a call.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

impl Protocol {
    pub(crate) const ALL: [Self; 5] = [Self::Chat, Self::Responses, Self::Anthropic, Self::Gemini, Self::Ollama];
    /// Protocols that llama.cpp's server supports.
    pub(crate) const REAL: [Self; 3] = [Self::Chat, Self::Responses, Self::Anthropic];

    /// Returns the provider's name in front of a model's.
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::Chat => "openai",
            Self::Responses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    pub(crate) fn model(self, name: &str) -> String {
        format!("{}/{name}", self.provider())
    }

    pub(crate) fn base(self, origin: &str) -> String {
        match self {
            Self::Chat | Self::Responses | Self::Anthropic => format!("{origin}/v1"),
            Self::Gemini => format!("{origin}/v1beta"),
            Self::Ollama => origin.to_owned(),
        }
    }

    pub(crate) fn variable(self) -> Option<&'static str> {
        match self {
            Self::Chat | Self::Responses => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }

    pub(crate) fn path(self, model: &str) -> String {
        match self {
            Self::Chat => "/v1/chat/completions".to_owned(),
            Self::Responses => "/v1/responses".to_owned(),
            Self::Anthropic => "/v1/messages".to_owned(),
            Self::Gemini => format!("/v1beta/models/{model}:streamGenerateContent"),
            Self::Ollama => "/api/chat".to_owned(),
        }
    }
}

/// Removes variables that this machine's user may have set.
pub(crate) fn clear_environment(command: &mut Command) {
    // Titles are off, because these servers count calls.
    command.env("SUBTEND_SESSIONS_TITLES", "false");
    KEYS.iter().chain(&PROXIES).for_each(|name| {
        command.env_remove(name);
    });
}
