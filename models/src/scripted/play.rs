//! Plays a script: chooses a step for a transcript and performs it.

use std::time::Duration;

use serde_json::json;
use subtend_session::ids::{CallId, Text, TurnNo};
use subtend_session::message::Message;
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Stop, ToolCall};
use subtend_session::usage::Usage;

use super::file::{Rule, Script};
use super::step::{FanOut, Fault, ScriptedArgs, Step, When};
use super::template::TemplateValues;
use crate::model::{Answer, Delta, Deltas, ModelError, Request};
use crate::notice;

/// Approximate size of one piece of streamed text, in bytes.
const PIECE_BYTES: usize = 48;
/// Number of pieces after which other tasks run: the text of a script may have megabytes, and a cancel would wait for all of it.
const PIECES_PER_POLL: usize = 1_024;

/// The facts of a transcript that a script can match.
struct TranscriptFacts<'a> {
    answers: usize,
    first_user: &'a str,
    last_user: &'a str,
    last_result: &'a str,
    last: &'a str,
    messages: &'a [Message],
}

impl<'a> TranscriptFacts<'a> {
    fn of(messages: &'a [Message]) -> Self {
        let mut seen = Self { answers: 0, first_user: "", last_user: "", last_result: "", last: "", messages };
        let mut users = 0_usize;
        for message in messages {
            seen.last = match message {
                Message::User { text, .. } => {
                    users = users.saturating_add(1);
                    seen.last_user = text;
                    if users == 1 {
                        seen.first_user = text;
                    }
                    text
                }
                Message::Assistant { text, .. } => {
                    seen.answers = seen.answers.saturating_add(1);
                    text.as_deref().unwrap_or_default()
                }
                Message::Result { content, .. } => {
                    seen.last_result = content;
                    content
                }
                Message::Notice { text, .. } | Message::Prompt { text } => text,
            };
        }
        seen
    }
}

impl When {
    fn holds(&self, seen: &TranscriptFacts<'_>, attempt: u32) -> bool {
        let has = |part: &Option<Text>, whole: &str| part.as_ref().is_none_or(|part| whole.contains(&**part));
        has(&self.prompt_contains, seen.first_user)
            && has(&self.user_contains, seen.last_user)
            && has(&self.result_contains, seen.last_result)
            && has(&self.last_contains, seen.last)
            && self.attempt.is_none_or(|wanted| wanted == attempt)
            && self.ended.is_none_or(|wanted| notice::count(seen.messages) >= wanted)
    }
}

impl Script {
    /// Returns the plan for `request`, without keeping the request. Fails if no step applies.
    pub(super) fn plan(&self, request: &Request) -> Result<StepPlan, ModelError> {
        let seen = TranscriptFacts::of(&request.messages);
        let rule = self.rules.iter().find(|rule| *rule.agent == *request.agent || &*rule.agent == "*");
        let rule = rule.ok_or_else(|| {
            let known: Vec<&str> = self.rules.iter().map(|rule| &*rule.agent).collect();
            play_error(format!(
                "the script has no rule for agent `{}`: it has {}; add one, or one for \"*\"",
                request.agent,
                known.join(", ")
            ))
        })?;
        let step = rule.step(&seen, request.attempt.0)?;
        Ok(StepPlan::of(step, &seen, request.turn))
    }
}

impl Rule {
    fn step(&self, seen: &TranscriptFacts<'_>, attempt: u32) -> Result<&Step, ModelError> {
        let number = seen.answers.saturating_add(1);
        let fits = |step: &&Step| step.when.holds(seen, attempt);
        if let Some(position) = self.steps.get(seen.answers) {
            return position.0.iter().find(fits).ok_or_else(|| {
                play_error(format!(
                    "no `when` holds in step {number} of the script's rule for `{}`: add an alternative without one",
                    self.agent
                ))
            });
        }
        let again = self.steps.last().and_then(|position| position.0.iter().filter(|step| step.repeat).find(fits));
        again.ok_or_else(|| {
            let steps = self.steps.len();
            play_error(format!(
                "the script's rule for `{}` has {steps} steps, and this is answer {number}: add a step, or mark the last \
                 with \"repeat\": true",
                self.agent
            ))
        })
    }
}

/// Returns an error that is not retryable, because the same call would fail again.
fn play_error(message: String) -> ModelError {
    ModelError::new(ModelFail::InvalidRequest, message)
}

#[derive(Debug)]
pub(super) struct StepPlan {
    latency_ms: u64,
    chunk_ms: u64,
    turn: TurnNo,
    answer: Answer,
    fault: Option<Fault>,
}

impl StepPlan {
    fn of(step: &Step, seen: &TranscriptFacts<'_>, turn: TurnNo) -> Self {
        let number = u64::try_from(seen.answers).unwrap_or(u64::MAX).saturating_add(1);
        let values = TemplateValues { prompt: seen.first_user, last: seen.last, n: number };
        let mut calls: Vec<ToolCall> = Vec::new();
        for call in &step.calls {
            let args = match &call.args {
                ScriptedArgs::Fixed(text) => Text::clone(text),
                ScriptedArgs::Template(value) => values.fill_value(value).to_string().into(),
            };
            calls.push(ToolCall { provider_id: provider_id(number, calls.len()), tool: Text::clone(&call.tool), args });
        }
        if let Some(fan_out) = &step.fan_out {
            fan_out.push_calls(&mut calls, number, values);
        }
        let stop = match (&step.fault, step.stop) {
            (Some(Fault::Truncated), _) => Stop::Length,
            (Some(Fault::Refuse), _) => Stop::Refused,
            (_, Some(stop)) => stop,
            (_, None) if calls.is_empty() => Stop::End,
            (_, None) => Stop::Calls,
        };
        let filled = |text: &Option<Text>| text.as_ref().map(|text| values.fill(text));
        Self {
            latency_ms: step.latency_ms,
            chunk_ms: step.chunk_ms,
            turn,
            answer: Answer {
                text: filled(&step.text),
                reasoning: filled(&step.reasoning),
                calls,
                stop,
                model: None,
                usage: step.usage,
            },
            fault: step.fault.clone(),
        }
    }

    /// Waits, streams the text, and then answers or fails.
    pub(super) async fn perform(self, deltas: Deltas) -> Result<Answer, ModelError> {
        if self.latency_ms > 0 {
            tokio::time::sleep(Duration::from_millis(self.latency_ms)).await;
        }
        self.stream(&deltas).await;
        let fail = |kind, message: &Text, retry_after_ms| {
            let usage = (self.answer.usage != Usage::default()).then_some(self.answer.usage);
            Err(ModelError { kind, message: message.to_string(), retry_after_ms, usage })
        };
        match &self.fault {
            None | Some(Fault::Truncated | Fault::Empty | Fault::Refuse) => Ok(self.answer),
            Some(Fault::Error { kind, message, retry_after_ms }) => fail(*kind, message, *retry_after_ms),
            Some(Fault::Garbage(message)) => fail(ModelFail::BadAnswer, message, None),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic(message)) => panic_with(message),
        }
    }

    async fn stream(&self, deltas: &Deltas) {
        if !deltas.has_receiver() && self.chunk_ms == 0 {
            return;
        }
        if let Some(reasoning) = &self.answer.reasoning {
            deltas.send(Delta::Reasoning(Text::clone(reasoning)));
        }
        for (ix, piece) in pieces(self.answer.text.as_deref().unwrap_or_default()).enumerate() {
            if ix > 0 && ix.is_multiple_of(PIECES_PER_POLL) {
                tokio::task::yield_now().await;
            }
            if self.chunk_ms > 0 {
                tokio::time::sleep(Duration::from_millis(self.chunk_ms)).await;
            }
            deltas.send(Delta::Text(piece.into()));
        }
        for (ix, call) in self.answer.calls.iter().enumerate() {
            let ix = u32::try_from(ix).unwrap_or(u32::MAX);
            deltas.send(Delta::Call { call: CallId { turn: self.turn, ix }, tool: Text::clone(&call.tool) });
        }
    }
}

impl FanOut {
    fn push_calls(&self, calls: &mut Vec<ToolCall>, number: u64, values: TemplateValues<'_>) {
        let tool: Text = "task".into();
        for n in 1..=self.n {
            let prompt = TemplateValues { n: n.into(), ..values }.fill(&self.prompt);
            let args = json!({ "subagent_type": &*self.agent, "prompt": &*prompt, "background": self.background });
            let provider_id = provider_id(number, calls.len());
            calls.push(ToolCall { provider_id, tool: Text::clone(&tool), args: args.to_string().into() });
        }
    }
}

fn provider_id(answer: u64, ix: usize) -> Text {
    format!("call_{answer}_{ix}").into()
}

/// Splits `text` into pieces of about [`PIECE_BYTES`] bytes, after a space or otherwise between characters.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let head = rest.get(..rest.floor_char_boundary(PIECE_BYTES)).unwrap_or(rest);
        let end = match head.rfind(char::is_whitespace) {
            Some(at) if head.len() < rest.len() => rest.ceil_char_boundary(at.saturating_add(1)),
            Some(_) | None => head.len(),
        };
        let (piece, after) = rest.split_at_checked(end)?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

#[expect(clippy::panic, reason = "the script requests this panic, to test that it is caught")]
fn panic_with(message: &str) -> Result<Answer, ModelError> {
    panic!("{message}")
}
