/// The protocol of a provider or of a compatible server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Protocol {
    Anthropic,
    #[strum(serialize = "openai")]
    OpenAi,
    #[strum(serialize = "openai-responses")]
    OpenAiResponses,
    Gemini,
    Ollama,
}

impl Protocol {
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::OpenAi, Self::OpenAiResponses, Self::Gemini, Self::Ollama];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the environment variable of the key, if the provider needs one.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::OpenAi | Self::OpenAiResponses => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }

    pub(super) fn default_base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://127.0.0.1:11434/",
        }
    }

    pub(super) fn version(self) -> Option<&'static str> {
        match self {
            Self::Anthropic | Self::OpenAi | Self::OpenAiResponses => Some("v1"),
            Self::Gemini => Some("v1beta"),
            Self::Ollama => None,
        }
    }
}
