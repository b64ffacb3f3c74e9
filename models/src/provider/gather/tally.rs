//! Reads token counts that providers report.

use serde_json::Value;
use subtend_session::usage::Usage;

/// Maximum plausible count. Larger counts are errors of the server.
const MAX_COUNT: u64 = 1_000_000_000;

/// Reported counts. Each number of a later report replaces the earlier number.
#[derive(Default)]
pub(super) struct TokenTally {
    input: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    cache_new: Option<u64>,
    cache_read: Option<u64>,
    /// Further input tokens, which the provider does not include in `input`.
    separate_input: Option<u64>,
    /// True if `input` excludes cached tokens.
    cache_apart: bool,
    /// True if `output` excludes reasoning tokens.
    reasoning_apart: bool,
    /// True if a count was invalid.
    is_invalid: bool,
}

impl TokenTally {
    /// Reads Anthropic's counts, whose input excludes cache writes and reads.
    pub(super) fn anthropic(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.cache_apart = true;
        self.read(usage, "/input_tokens", |tally| &mut tally.input);
        self.read(usage, "/output_tokens", |tally| &mut tally.output);
        self.read(usage, "/output_tokens_details/thinking_tokens", |tally| &mut tally.reasoning);
        self.read(usage, "/cache_creation_input_tokens", |tally| &mut tally.cache_new);
        self.read(usage, "/cache_read_input_tokens", |tally| &mut tally.cache_read);
    }

    pub(super) fn openai(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.read(usage, "/prompt_tokens", |tally| &mut tally.input);
        self.read(usage, "/completion_tokens", |tally| &mut tally.output);
        self.read(usage, "/completion_tokens_details/reasoning_tokens", |tally| &mut tally.reasoning);
        self.read(usage, "/prompt_cache_hit_tokens", |tally| &mut tally.cache_read);
        self.read(usage, "/prompt_tokens_details/cached_tokens", |tally| &mut tally.cache_read);
        self.read(usage, "/prompt_tokens_details/cache_write_tokens", |tally| &mut tally.cache_new);
    }

    pub(super) fn responses(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.read(usage, "/input_tokens", |tally| &mut tally.input);
        self.read(usage, "/output_tokens", |tally| &mut tally.output);
        self.read(usage, "/output_tokens_details/reasoning_tokens", |tally| &mut tally.reasoning);
        self.read(usage, "/input_tokens_details/cached_tokens", |tally| &mut tally.cache_read);
        self.read(usage, "/input_tokens_details/cache_write_tokens", |tally| &mut tally.cache_new);
    }

    /// Reads Gemini's counts. The output excludes thoughts, and the input excludes text that Gemini's own tools read.
    pub(super) fn gemini(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage.filter(|usage| usage.is_object()) else { return };
        self.reasoning_apart = true;
        self.read(usage, "/promptTokenCount", |tally| &mut tally.input);
        self.read(usage, "/toolUsePromptTokenCount", |tally| &mut tally.separate_input);
        self.read(usage, "/candidatesTokenCount", |tally| &mut tally.output);
        self.read(usage, "/thoughtsTokenCount", |tally| &mut tally.reasoning);
        self.read(usage, "/cachedContentTokenCount", |tally| &mut tally.cache_read);
    }

    /// Reads Ollama's counts from the last line.
    pub(super) fn ollama(&mut self, line: &Value) {
        self.read(line, "/prompt_eval_count", |tally| &mut tally.input);
        self.read(line, "/eval_count", |tally| &mut tally.output);
        self.read(line, "/prompt_eval_cached_count", |tally| &mut tally.cache_read);
    }

    fn read(&mut self, usage: &Value, pointer: &str, field: fn(&mut Self) -> &mut Option<u64>) {
        let Some(value) = usage.pointer(pointer).filter(|value| !value.is_null()) else { return };
        let number = match value.as_u64() {
            Some(number) if number <= MAX_COUNT => number,
            Some(_) => {
                self.is_invalid = true;
                MAX_COUNT
            }
            // The count is negative, or not an integer.
            None => {
                self.is_invalid = true;
                0
            }
        };
        *field(self) = Some(number);
    }

    pub(super) fn is_reported(&self) -> bool {
        self.input.is_some() || self.output.is_some()
    }

    /// Returns the output tokens, including reasoning.
    pub(super) fn output(&self) -> Option<u64> {
        let apart = if self.reasoning_apart { self.reasoning.unwrap_or(0) } else { 0 };
        // Some servers exclude reasoning tokens from the output, although their protocol includes them.
        self.output.map(|output| output.saturating_add(apart).max(self.reasoning.unwrap_or(0)))
    }

    /// Returns the usage: the input includes cached tokens, the output includes reasoning.
    pub(super) fn usage(&self) -> Usage {
        let (cache_new, cache_read) = (self.cache_new.unwrap_or(0), self.cache_read.unwrap_or(0));
        let beside = self.separate_input.unwrap_or(0);
        let apart = if self.cache_apart { cache_new.saturating_add(cache_read) } else { 0 };
        let input = self.input.unwrap_or(0).saturating_add(beside).saturating_add(apart);
        Usage {
            input,
            output: self.output().or(self.reasoning).unwrap_or(0),
            reasoning: self.reasoning.unwrap_or(0),
            cache_new: cache_new.min(input),
            cache_read: cache_read.min(input),
            cost_micro: None,
            unreliable: self.is_invalid || self.input.is_none() || (self.output.is_none() && self.reasoning.is_none()),
        }
    }
}
