//! Reasoning to send back, as the journal stores it: JSON text with the name of its protocol. A pool may change providers within a
//! conversation, so a protocol skips reasoning of other protocols. It also skips unreadable reasoning.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_session::ids::Text;
use subtend_session::values::parse_recorded;

/// Reasoning that is sent back together with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "protocol")]
pub(super) enum StoredReasoning {
    /// Signed thinking blocks and redacted thinking blocks, unchanged.
    #[serde(rename = "anthropic")]
    Anthropic { blocks: Vec<Value> },
    /// Plain reasoning. Some servers require it together with the calls that resulted from it.
    #[serde(rename = "openai")]
    OpenAi { text: String },
    #[serde(rename = "openai-responses")]
    OpenAiResponses { encrypted: Vec<String> },
    #[serde(rename = "gemini")]
    Gemini {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Signatures of the calls, by position.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<Option<String>>,
    },
}

impl StoredReasoning {
    /// Serializes the reasoning for the journal; returns `None` if it is empty.
    pub(super) fn to_text(&self) -> Option<Text> {
        let empty = match self {
            Self::Anthropic { blocks } => blocks.is_empty(),
            Self::OpenAi { text } => text.is_empty(),
            Self::OpenAiResponses { encrypted } => encrypted.is_empty(),
            Self::Gemini { text, calls } => text.is_none() && calls.iter().all(Option::is_none),
        };
        if empty { None } else { serde_json::to_string(self).ok().map(Text::from) }
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        parse_recorded(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stored_reasoning_round_trips() {
        for kept in [
            StoredReasoning::Anthropic {
                blocks: vec![json!({ "type": "thinking", "thinking": "hm", "signature": "s" })],
            },
            StoredReasoning::OpenAi { text: "hm".into() },
            StoredReasoning::OpenAiResponses { encrypted: vec!["abc".into()] },
            StoredReasoning::Gemini { text: None, calls: vec![None, Some("s".into())] },
        ] {
            let text = kept.to_text().unwrap();
            assert_eq!(StoredReasoning::of_text(&text), Some(kept));
        }
    }

    #[test]
    fn empty_reasoning_and_other_texts_are_skipped() {
        assert_eq!(StoredReasoning::Anthropic { blocks: Vec::new() }.to_text(), None);
        assert_eq!(StoredReasoning::Gemini { text: None, calls: vec![None] }.to_text(), None);
        for text in ["", "hm", "{}", "{\"protocol\":\"klingon\"}", "{\"protocol\":\"anthropic\"}", "[1]"] {
            assert_eq!(StoredReasoning::of_text(text), None, "{text}");
        }
    }
}
