//! Converts messages into an order that every provider accepts:
//!
//! * The user starts, and turns alternate, except for results and the user text after them.
//! * Each call has one result, right after its answer. Call ids are unique.
//! * No content is empty.
//! * The last turn is not the model's, because the model would continue it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use subtend_session::message::Message;
use subtend_session::record::ToolCall;
use subtend_session::values::{MAX_VALUES, ValueCount, parse_recorded};

use super::notice::{Form, TOOL};
use crate::provider::reasoning::StoredReasoning;

const EMPTY: &str = "(empty)";
const NO_RESULT: &str = "(there is no result)";
const OPENING: &str = "(The conversation continues.)";
const CONTINUE: &str = "Continue.";
/// Maximum number of JSON values in the arguments and the reasoning of a request, and in all other parts of its messages.
pub(super) const MAX_REQUEST_VALUES: usize = 5 * MAX_VALUES;
/// Values that a message adds to a request, in the protocol with most: also a message for the results of its calls.
pub(super) const MESSAGE_VALUES: usize = 18;
/// Values that a call adds, without its arguments, but with its result, and with its tool if no tools are offered.
pub(super) const CALL_VALUES: usize = 28;
/// Values that a piece of encrypted reasoning adds. The journal has it as one value.
const ENCRYPTED_VALUES: usize = 8;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Turn {
    User(Vec<String>),
    /// The model's text, calls, or both.
    Assistant {
        text: Option<String>,
        kept: Option<StoredReasoning>,
        calls: Vec<Call>,
    },
    /// Results of the preceding answer's calls, in order.
    Results(Vec<Outcome>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) args: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) content: String,
    pub(super) error: bool,
}

pub(super) struct OrderedTurns {
    pub(super) turns: Vec<Turn>,
    /// True if the last answer made calls without thinking signed by Anthropic, for example after a change of provider. Then thinking must
    /// be disabled until the next answer.
    pub(super) is_unsigned: bool,
}

/// Converts `messages`, with notices in `form`. Returns `None` if they would have too many values, even without arguments and reasoning.
pub(super) fn of(messages: &[Message], form: Form) -> Option<OrderedTurns> {
    let mut order = TurnOrder::default();
    for message in messages {
        match message {
            Message::User { text, .. } | Message::Prompt { text } => order.user(text),
            Message::Assistant { text, reasoning, calls, .. } => {
                order.push_assistant(text.as_deref(), reasoning.as_deref(), calls);
            }
            Message::Result { call, error, content } => order.result(call.ix, *error, content),
            Message::Notice { text, .. } => match form {
                Form::Call => order.notice(text),
                Form::Text => order.user(text),
            },
        }
        if order.items > MAX_REQUEST_VALUES {
            return None;
        }
    }
    order.close();
    match order.turns.last() {
        Some(Turn::User(_) | Turn::Results(_)) => {}
        Some(Turn::Assistant { .. }) => order.user(CONTINUE),
        None => order.user(EMPTY),
    }
    Some(OrderedTurns { turns: order.turns, is_unsigned: order.is_unsigned })
}

/// Returns the names of all called tools, in order.
pub(super) fn called_tools(turns: &[Turn]) -> Vec<String> {
    let calls = turns.iter().filter_map(|turn| match turn {
        Turn::Assistant { calls, .. } => Some(calls),
        Turn::User(_) | Turn::Results(_) => None,
    });
    let names: BTreeSet<&String> = calls.flatten().map(|call| &call.name).collect();
    names.into_iter().cloned().collect()
}

/// Returns a valid tool name, because a model may have requested an invalid name.
pub(super) fn tool_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .take(64)
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    if plain.is_empty() { "unnamed".into() } else { plain }
}

#[derive(Default)]
struct TurnOrder {
    turns: Vec<Turn>,
    open: Vec<OpenCall>,
    ids: BTreeSet<String>,
    /// Number of the next generated id. It never decreases: a server that takes ids in advance would make the search quadratic.
    next_id: usize,
    /// Number of rendered values in arguments and reasoning.
    values: usize,
    /// Number of all other rendered values.
    items: usize,
    is_unsigned: bool,
}

struct OpenCall {
    id: String,
    name: String,
    result: Option<(String, bool)>,
}

impl OpenCall {
    fn of(call: &Call, result: Option<(String, bool)>) -> Self {
        Self { id: call.id.clone(), name: call.name.clone(), result }
    }
}

impl TurnOrder {
    fn user(&mut self, text: &str) {
        self.close();
        if text.trim().is_empty() {
            return;
        }
        self.count_message(0);
        match self.turns.last_mut() {
            Some(Turn::User(texts)) => texts.push(text.to_owned()),
            Some(Turn::Assistant { .. } | Turn::Results(_)) | None => {
                self.turns.push(Turn::User(vec![text.to_owned()]));
            }
        }
    }

    fn push_assistant(&mut self, text: Option<&str>, reasoning: Option<&str>, tool_calls: &[ToolCall]) {
        self.close();
        let kept = reasoning.and_then(|reasoning| self.reasoning(reasoning));
        self.is_unsigned = !tool_calls.is_empty() && !matches!(kept, Some(StoredReasoning::Anthropic { .. }));
        let text = text.filter(|text| !text.trim().is_empty()).map(str::to_owned);
        if text.is_none() && tool_calls.is_empty() {
            return;
        }
        self.count_message(tool_calls.len());
        let calls: Vec<Call> = tool_calls
            .iter()
            .map(|tool_call| Call {
                id: self.id(&tool_call.provider_id),
                name: tool_name(&tool_call.tool),
                args: self.object(&tool_call.args),
            })
            .collect();
        self.open = calls.iter().map(|call| OpenCall::of(call, None)).collect();
        match self.turns.last_mut() {
            // Merge two consecutive answers. The first one has no calls.
            Some(Turn::Assistant { text: before, kept: reasoned, calls: made }) => {
                match (&mut *before, text) {
                    (Some(before), Some(text)) => before.extend(["\n\n", &text]),
                    (before, text) => *before = before.take().or(text),
                }
                *reasoned = kept.or(reasoned.take());
                made.extend(calls);
            }
            Some(Turn::User(_) | Turn::Results(_)) => self.turns.push(Turn::Assistant { text, kept, calls }),
            None => {
                self.turns.push(Turn::User(vec![OPENING.into()]));
                self.turns.push(Turn::Assistant { text, kept, calls });
            }
        }
    }

    fn count_message(&mut self, calls: usize) {
        let values = calls.saturating_mul(CALL_VALUES).saturating_add(MESSAGE_VALUES);
        self.items = self.items.saturating_add(values);
    }

    /// Counts the values of a JSON text. Returns whether the limit of a request permits to parse it. Each later request counts the same.
    fn may_parse(&mut self, json: &str) -> bool {
        self.values = self.values.saturating_add(ValueCount::default().add(json.as_bytes()));
        self.values <= MAX_REQUEST_VALUES
    }

    /// Returns the reasoning of an answer. It is left out above the limit of a request.
    fn reasoning(&mut self, reasoning: &str) -> Option<StoredReasoning> {
        let kept = self.may_parse(reasoning).then(|| StoredReasoning::of_text(reasoning)).flatten()?;
        let added = match &kept {
            StoredReasoning::OpenAiResponses { encrypted } => encrypted.len().saturating_mul(ENCRYPTED_VALUES),
            // Blocks are rendered as they are stored. The message and its calls count the others.
            StoredReasoning::Anthropic { .. } | StoredReasoning::OpenAi { .. } | StoredReasoning::Gemini { .. } => 0,
        };
        self.values = self.values.saturating_add(added);
        (self.values <= MAX_REQUEST_VALUES).then_some(kept)
    }

    /// Returns arguments as an object, as providers require. Other values are wrapped in an object. Arguments above the limit of a request are
    /// also wrapped, as text.
    fn object(&mut self, args: &str) -> Value {
        let parsed = self.may_parse(args).then(|| parse_recorded::<Value>(args).ok()).flatten();
        match parsed {
            Some(args @ Value::Object(_)) => args,
            None if args.trim().is_empty() => Value::Object(Map::new()),
            Some(_) | None => json!({ "unparsed": args }),
        }
    }

    fn result(&mut self, ix: u32, error: bool, content: &str) {
        let slot = usize::try_from(ix).ok().and_then(|ix| self.open.get_mut(ix));
        match slot {
            Some(OpenCall { result: result @ None, .. }) => *result = Some((content.to_owned(), error)),
            // Keep a result without a call as user text.
            Some(OpenCall { result: Some(_), .. }) | None => self.user(content),
        }
    }

    fn notice(&mut self, text: &str) {
        self.close();
        if self.turns.is_empty() || text.trim().is_empty() {
            return self.user(text);
        }
        self.count_message(1);
        let call = Call { id: self.id(""), name: TOOL.into(), args: json!({}) };
        self.open = vec![OpenCall::of(&call, Some((text.to_owned(), false)))];
        match self.turns.last_mut() {
            // Add the call to a preceding answer without calls, because providers refuse consecutive answers.
            Some(Turn::Assistant { calls, .. }) => calls.push(call),
            Some(Turn::User(_) | Turn::Results(_)) | None => {
                self.turns.push(Turn::Assistant { text: None, kept: None, calls: vec![call] });
            }
        }
        self.close();
    }

    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let outcome = |OpenCall { id, name, result }| {
            let (content, error) = result.unwrap_or_else(|| (NO_RESULT.into(), true));
            let content = if content.trim().is_empty() { EMPTY.into() } else { content };
            Outcome { id, name, content, error }
        };
        let outcomes = std::mem::take(&mut self.open).into_iter().map(outcome).collect();
        self.turns.push(Turn::Results(outcomes));
    }

    /// Returns the provider's id if it is valid and unused, or a new one.
    fn id(&mut self, given: &str) -> String {
        let sendable = (1..=64).contains(&given.len())
            && given.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if sendable && self.ids.insert(given.to_owned()) {
            return given.to_owned();
        }
        self.next_id = self.next_id.max(self.ids.len());
        loop {
            let id = format!("call_{}", self.next_id);
            self.next_id = self.next_id.saturating_add(1);
            if self.ids.insert(id.clone()) {
                return id;
            }
        }
    }
}
