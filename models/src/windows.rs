//! Context windows: token counts that the host sets by model, and the windows of well-known models.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use subtend_session::ids::Text;

/// Context windows by the start of a model's name, from the documentation of the providers. The longest start applies. After the start, the name
/// must end or continue with `-`, `@` or `:`, so that a later model does not match.
const KNOWN_WINDOWS: [(&str, u64); 29] = [
    ("claude-3", 200_000),
    ("claude-opus-4", 200_000),
    ("claude-sonnet-4", 200_000),
    ("claude-haiku-4", 200_000),
    ("gpt-3.5-turbo", 16_385),
    ("gpt-4", 8_192),
    ("gpt-4-32k", 32_768),
    ("gpt-4-turbo", 128_000),
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-5", 400_000),
    ("gpt-5-chat", 128_000),
    ("gpt-5.1", 400_000),
    ("gpt-5.1-chat", 128_000),
    ("gpt-5.2", 400_000),
    ("gpt-5.2-chat", 128_000),
    ("o1", 200_000),
    ("o1-mini", 128_000),
    ("o1-preview", 128_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini-1.5-flash", 1_048_576),
    ("gemini-2.0-flash", 1_048_576),
    ("gemini-2.5-pro", 1_048_576),
    ("gemini-2.5-flash", 1_048_576),
    ("gemini-3-pro", 1_048_576),
    ("gemini-3-flash", 1_048_576),
    ("deepseek-chat", 128_000),
];

/// Token counts that the host sets, by model. A name that ends in `*` is a prefix. An exact name wins over the longest prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByModel(BTreeMap<Text, NonZeroU64>);

impl ByModel {
    pub fn new(named: BTreeMap<Text, NonZeroU64>) -> Self {
        Self(named)
    }

    pub fn named(&self, model: &str) -> Option<u64> {
        let beginning = || {
            let beginnings = self.0.iter().filter_map(|(name, tokens)| Some((name.strip_suffix('*')?, tokens)));
            let fits = beginnings.filter(|(beginning, _)| model.starts_with(beginning));
            fits.max_by_key(|(beginning, _)| beginning.len()).map(|(_, tokens)| tokens)
        };
        self.0.get(model).or_else(beginning).map(|tokens| tokens.get())
    }
}

/// Context windows: those that the host sets, and those of well-known models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows(ByModel);

impl Windows {
    pub fn new(named: BTreeMap<Text, NonZeroU64>) -> Self {
        Self(ByModel::new(named))
    }

    pub fn named(&self, model: &str) -> Option<u64> {
        self.0.named(model)
    }

    /// Returns the window of `model`, such as `anthropic/claude-sonnet-4-5`: the window that the host set, or the known window.
    pub fn of(&self, model: &str) -> Option<u64> {
        self.named(model).or_else(|| well_known_window(model))
    }
}

/// Returns the window of a well-known model. The window of an `ollama` model depends on its server's settings, so it is unknown.
pub fn well_known_window(model: &str) -> Option<u64> {
    if model.starts_with("ollama/") {
        return None;
    }
    let name = model.rsplit_once('/').map_or(model, |(_, name)| name);
    let fits =
        |start: &str| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']));
    KNOWN_WINDOWS
        .iter()
        .filter(|(start, _)| fits(start))
        .max_by_key(|(start, _)| start.len())
        .map(|(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m1_window_is_known_by_the_longest_start_of_a_name() {
        let windows = [
            "anthropic/claude-sonnet-4-5-20250929",
            "claude-3-5-haiku-latest",
            "openai/gpt-4.1-mini",
            "openai/gpt-4",
            "openai-responses/gpt-5-chat-latest",
            "gemini/gemini-2.5-flash-lite",
            "openai/gpt-4.5-preview",
            "ollama/gpt-4",
            "offline",
        ]
        .map(well_known_window);
        let sizes = [200_000, 200_000, 1_047_576, 8_192, 128_000, 1_048_576].map(Some);
        assert_eq!((&windows[..6], &windows[6..]), (&sizes[..], &[None; 3][..]));
    }

    #[test]
    fn m1_window_set_by_the_host_replaces_the_known_one() {
        let named = [("anthropic/claude-sonnet-4-5", 1_000_000), ("ollama/*", 32_768), ("ollama/big*", 131_072)];
        let named = named.map(|(name, tokens)| (name.into(), NonZeroU64::new(tokens).unwrap()));
        let windows = Windows::new(named.into());
        let of =
            ["anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4", "ollama/small", "ollama/big-one", "other"]
                .map(|name| windows.of(name));
        assert_eq!(of, [Some(1_000_000), Some(200_000), Some(32_768), Some(131_072), None]);
    }
}
