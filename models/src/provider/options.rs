//! Settings of a call, as `genai` takes them.

use genai::chat::{ChatOptions, ChatResponseFormat, JsonSpec, ReasoningEffort, ToolChoice};
use serde_json::{Map, Value, json};
use subtend_session::outcome::ModelFail;
use subtend_session::settings::Effort;

use super::client::Client;
use super::fault::Fault;
use super::protocol::Protocol;
use super::render;
use crate::model::Request;

/// What `genai` takes for a word about effort at the end of a model's name.
const EFFORT_ENDINGS: [&str; 8] = ["zero", "none", "minimal", "low", "medium", "high", "xhigh", "max"];
/// Tokens that thinking may take on models of Anthropic that have a budget for it, by effort. An answer has to fit beside it.
const BUDGETS: [(Effort, u64); 3] = [(Effort::High, 24_000), (Effort::Medium, 8_000), (Effort::Low, 1_024)];

/// The options of `request`.
///
/// # Errors
/// When its format is no JSON.
pub(super) fn of(client: &Client, request: &Request) -> Result<ChatOptions, Fault> {
    let settings = &request.settings;
    let protocol = client.protocol;
    let thinks = render::thinks(protocol, request);
    let mut body = Map::new();
    let mut options = ChatOptions::default().with_capture_usage(true);
    if let Some(tokens) = settings.output_tokens {
        options = options.with_max_tokens(u32::try_from(tokens).unwrap_or(u32::MAX));
    }
    // Anthropic refuses both while it thinks.
    let sampled = protocol != Protocol::Anthropic || !thinks;
    if let Some(temperature) = settings.temperature.filter(|_| sampled) {
        options = options.with_temperature(temperature);
    }
    if let Some(top_p) = settings.top_p.filter(|_| sampled) {
        options = options.with_top_p(top_p);
    }
    let cannot = protocol == Protocol::Anthropic && render::is_unsigned(request);
    let asked = settings.effort.map(|effort| if cannot { Effort::None } else { effort });
    if let Some(effort) = effort(protocol, &client.model, asked, settings.output_tokens) {
        options = options.with_reasoning_effort(effort);
    }
    // Gemini and Anthropic show what they think where they are asked to.
    let shows = settings.effort.is_some_and(|effort| effort != Effort::None);
    if shows && matches!(protocol, Protocol::Gemini | Protocol::Anthropic) {
        options = options.with_capture_reasoning_content(true);
    }
    if protocol == Protocol::OpenAiResponses && (shows || reasons(&client.model)) {
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if client.is_home() && matches!(protocol, Protocol::OpenAi | Protocol::OpenAiResponses) {
        options = options.with_prompt_cache_key(request.session.to_string());
    }
    if !render::stubs(protocol, request).is_empty() {
        options = options.with_tool_choice(ToolChoice::None);
    }
    body.extend(render::own_tools(protocol, &request.tools));
    // Some servers refuse a format beside tools.
    if let Some(format) = request.format.as_deref().filter(|_| request.tools.is_empty()) {
        let schema: Value = serde_json::from_str(format).map_err(|error| {
            Fault::new(ModelFail::InvalidRequest, format!("the answer's format is no JSON: {error}"))
        })?;
        // The schema itself cannot be sent to Ollama: it stands in the prompt.
        options = options.with_response_format(match protocol {
            Protocol::Ollama => ChatResponseFormat::JsonMode,
            Protocol::Anthropic | Protocol::OpenAi | Protocol::OpenAiResponses | Protocol::Gemini => {
                JsonSpec::new("answer", schema).into()
            }
        });
    }
    Ok(if body.is_empty() { options } else { options.with_extra_body(Value::Object(body)) })
}

/// The effort, so that none is ever read out of the model's name, which would also be cut.
fn effort(protocol: Protocol, model: &str, asked: Option<Effort>, cap: Option<u64>) -> Option<ReasoningEffort> {
    let named = model.rsplit_once('-').is_some_and(|(_, ending)| EFFORT_ENDINGS.contains(&ending));
    match (asked, protocol) {
        (Some(asked), Protocol::Anthropic) => Some(fitting(asked, cap)),
        // The models of this line can be told not to think at all, by a budget of nothing.
        (Some(Effort::None), Protocol::Gemini) if model.contains("2.5-flash") => Some(ReasoningEffort::Budget(0)),
        (Some(asked), _) => Some(effort_of(asked)),
        // A budget says nothing to these.
        (None, Protocol::OpenAi | Protocol::OpenAiResponses) if named => Some(ReasoningEffort::Budget(0)),
        (None, Protocol::Anthropic | Protocol::Gemini) if named => Some(ReasoningEffort::Zero),
        (None, _) => None,
    }
}

fn effort_of(effort: Effort) -> ReasoningEffort {
    match effort {
        Effort::None => ReasoningEffort::Zero,
        Effort::Low => ReasoningEffort::Low,
        Effort::Medium => ReasoningEffort::Medium,
        Effort::High => ReasoningEffort::High,
    }
}

/// The most effort, up to the asked one, whose thinking leaves room for an answer under the cap.
fn fitting(asked: Effort, cap: Option<u64>) -> ReasoningEffort {
    let fits = |(effort, budget): &&(Effort, u64)| *effort <= asked && cap.is_none_or(|cap| cap > *budget);
    BUDGETS.iter().find(fits).map_or(ReasoningEffort::Zero, |(effort, _)| effort_of(*effort))
}

/// Whether a model of OpenAI reasons: the others refuse to be asked for their reasoning.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["o1", "o3", "o4", "gpt-5", "gpt-6", "codex"].iter().any(|line| name.starts_with(line)) && !name.contains("-chat")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(protocol: Protocol, model: &str, asked: Option<Effort>, cap: Option<u64>) -> String {
        effort(protocol, model, asked, cap).map_or_else(|| "nothing".into(), |effort| effort.to_string())
    }

    #[test]
    fn an_ending_of_a_name_is_never_taken_for_an_effort() {
        assert_eq!(word(Protocol::OpenAi, "qwen3-max", None, None), "0");
        assert_eq!(word(Protocol::OpenAiResponses, "o4-mini-high", None, None), "0");
        assert_eq!(word(Protocol::Gemini, "some-low", None, None), "zero");
        assert_eq!(word(Protocol::Anthropic, "glm-max", None, None), "zero");
        assert_eq!(word(Protocol::Ollama, "some-low", None, None), "nothing");
        assert_eq!(word(Protocol::OpenAi, "gpt-5", None, None), "nothing");
    }

    #[test]
    fn effort_leaves_room_for_an_answer() {
        let fits = |cap| word(Protocol::Anthropic, "claude-sonnet-4", Some(Effort::High), cap);
        assert_eq!(fits(None), "high");
        assert_eq!(fits(Some(10_000)), "medium");
        assert_eq!(fits(Some(2_000)), "low");
        assert_eq!(fits(Some(500)), "zero");
        assert_eq!(word(Protocol::OpenAi, "gpt-5", Some(Effort::High), Some(500)), "high");
        assert_eq!(word(Protocol::Gemini, "gemini-2.5-flash", Some(Effort::None), None), "0");
    }
}
