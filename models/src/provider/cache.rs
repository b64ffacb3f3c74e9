//! What of a request a provider is asked to keep, so that the next turn does not pay for it again.

use genai::chat::{CacheControl, ChatRequest};

use super::client::Client;
use super::protocol::Protocol;

/// Marks the end of the conversation: tools, system and all messages before it are kept for some minutes, and the next turn,
/// which begins with them, finds them. Anthropic wants the mark; others keep what they like, and a server in a provider's
/// place need not know it.
pub(super) fn marked(client: &Client, mut rendered: ChatRequest) -> ChatRequest {
    if client.protocol == Protocol::Anthropic
        && client.is_home()
        && let Some(last) = rendered.messages.pop()
    {
        rendered.messages.push(last.with_options(CacheControl::Ephemeral));
    }
    rendered
}

#[cfg(test)]
mod tests {
    use genai::chat::ChatMessage;

    use super::*;
    use crate::provider::target::Target;

    fn marks(word: &str, base_url: Option<&str>) -> Vec<bool> {
        let target = Target::parse(word).unwrap();
        let target = base_url.map_or(Ok(target.clone()), |url| target.with_base_url(url)).unwrap();
        let client = Client::new(target, |_| Some("key".to_owned())).unwrap();
        let rendered = ChatRequest::from_messages(vec![ChatMessage::user("one"), ChatMessage::user("two")]);
        let mark = |message: &ChatMessage| message.options.as_ref().is_some_and(|of| of.cache_control.is_some());
        marked(&client, rendered).messages.iter().map(mark).collect()
    }

    #[test]
    fn the_end_of_the_conversation_is_marked_where_the_provider_itself_wants_it() {
        assert_eq!(marks("anthropic/claude-x", None), [false, true]);
        assert_eq!(marks("anthropic/claude-x", Some("http://127.0.0.1:1")), [false, false]);
        assert_eq!(marks("openai/x", None), [false, false]);
    }
}
