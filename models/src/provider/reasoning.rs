//! Reasoning that a provider wants back, as the journal keeps it.
//!
//! It is opaque to all others: a small JSON text that names its protocol. Another protocol passes it over, since a pool may
//! change providers in the middle of a conversation, and so does its own where it cannot be read.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_session::ids::Text;

/// What is sent back with the answer that it led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "protocol")]
pub(super) enum Kept {
    /// Thinking blocks with their signatures, and redacted ones, as they came.
    #[serde(rename = "anthropic")]
    Anthropic {
        /// The blocks, in order.
        blocks: Vec<Value>,
    },
    /// Plain reasoning, which some servers want back beside the calls that it led to.
    #[serde(rename = "openai")]
    OpenAi {
        /// The text.
        text: String,
    },
    /// Encrypted reasoning items.
    #[serde(rename = "openai-responses")]
    OpenAiResponses {
        /// Their contents, in order.
        encrypted: Vec<String>,
    },
    /// Thought signatures.
    #[serde(rename = "gemini")]
    Gemini {
        /// The one of the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Those of the calls, by their place.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<Option<String>>,
    },
}

impl Kept {
    /// As the journal keeps it; nothing where there is nothing to send back.
    pub(super) fn to_text(&self) -> Option<Text> {
        let empty = match self {
            Self::Anthropic { blocks } => blocks.is_empty(),
            Self::OpenAi { text } => text.is_empty(),
            Self::OpenAiResponses { encrypted } => encrypted.is_empty(),
            Self::Gemini { text, calls } => text.is_none() && calls.iter().all(Option::is_none),
        };
        if empty { None } else { serde_json::to_string(self).ok().map(Text::from) }
    }

    /// Reads it back.
    pub(super) fn of_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_kept_comes_back_whole() {
        for kept in [
            Kept::Anthropic { blocks: vec![json!({ "type": "thinking", "thinking": "hm", "signature": "s" })] },
            Kept::OpenAi { text: "hm".into() },
            Kept::OpenAiResponses { encrypted: vec!["abc".into()] },
            Kept::Gemini { text: None, calls: vec![None, Some("s".into())] },
        ] {
            let text = kept.to_text().unwrap();
            assert_eq!(Kept::of_text(&text), Some(kept));
        }
    }

    #[test]
    fn nothing_is_kept_of_nothing_and_other_texts_are_passed_over() {
        assert_eq!(Kept::Anthropic { blocks: Vec::new() }.to_text(), None);
        assert_eq!(Kept::Gemini { text: None, calls: vec![None] }.to_text(), None);
        for text in ["", "hm", "{}", "{\"protocol\":\"klingon\"}", "{\"protocol\":\"anthropic\"}", "[1]"] {
            assert_eq!(Kept::of_text(text), None, "{text}");
        }
    }
}
