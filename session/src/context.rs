//! The input of a model call, and what a branch inherits of it.

use std::sync::Arc;

use crate::call::CallEnd;
use crate::ids::{CallId, RunNo, Seq, Text};
use crate::message::{Message, Transcript};
use crate::record::{Prompt, Reserved};
use crate::state::{CallPhase, State};

/// Estimated bytes of a token: English and code average about four.
const BYTES_PER_TOKEN: u64 = 4;

/// Output tokens reserved for a call without a cap.
const USUAL_CAP: u64 = 4_096;

/// The input of a model call, without its tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The resolved system prompt of the active agent.
    pub system: Text,
    /// The transcript, shared unless an alternative is selected. It ends with the prompt text, if any.
    pub messages: Transcript,
    /// The prompt that the transcript ends with, for models that act on it.
    pub prompt: Prompt,
    /// The model's name in the session, or a fallback's own name.
    pub model: Text,
    /// JSON schema requested for the answer, as JSON text.
    pub format: Option<Text>,
}

/// Returns the context of the current turn.
///
/// The caller drops it before the answer is decided, so that the next message is pushed in place.
pub fn context(state: &State) -> Context {
    let run = state.run.as_ref();
    let turn = run.and_then(|run| run.turn.as_ref());
    let prompt = turn.map_or(Prompt::Plain, |turn| turn.prompt);
    let model = turn.map_or_else(|| model(state), |turn| turn.model.clone());
    let format = run.and_then(|run| run.format.clone());
    Context { system: system(state), messages: visible(state), prompt, model, format }
}

/// Returns the active agent's model.
pub(crate) fn model(state: &State) -> Text {
    state.agent.as_ref().map_or_else(|| state.created.model.clone(), |agent| agent.model.clone())
}

fn system(state: &State) -> Text {
    if let Some(agent) = &state.agent {
        return Arc::clone(&agent.system);
    }
    state.created.system.body.clone().unwrap_or_else(|| "".into())
}

/// Returns the transcript as models and people see it: a selected alternative replaces the original answer and what led
/// to it; rolled-back messages are hidden.
///
/// Shared at no cost if no alternative is selected and nothing is hidden.
pub fn visible(state: &State) -> Transcript {
    let originals = state.alternatives.values().all(|alternatives| alternatives.seen().is_none());
    if originals && state.hidden().next().is_none() {
        return Arc::clone(&state.transcript);
    }
    let mut out = Vec::with_capacity(state.transcript.len());
    let mut at = 0;
    for (from, to, instead) in cuts(state) {
        // A foreign journal may have an exchange around what is hidden.
        if from < at {
            at = at.max(to);
            continue;
        }
        out.extend(between(&state.transcript, at, from));
        out.extend(instead);
        at = to;
    }
    out.extend(between(&state.transcript, at, state.transcript.len()));
    Arc::new(out)
}

/// Returns the hidden ranges of the transcript in order, each with its replacement. They do not overlap: an exchange
/// lies within one run.
fn cuts(state: &State) -> Vec<(usize, usize, Option<Message>)> {
    let hidden = state.hidden().map(|(_, stretch)| (stretch.from, stretch.to, None));
    let replaced = state.alternatives.iter().filter_map(|(of, alternatives)| {
        let text = Some(Arc::clone(alternatives.seen()?));
        let exchange = exchange(state, *of)?;
        let instead = Message::Assistant { seq: *of, text, reasoning: None, calls: Arc::new([]) };
        Some((exchange.asked.saturating_add(1), exchange.end, Some(instead)))
    });
    let mut cuts: Vec<_> = hidden.chain(replaced).collect();
    cuts.sort_by_key(|(from, to, _)| (*from, *to));
    cuts
}

fn between(transcript: &Transcript, from: usize, to: usize) -> impl Iterator<Item = Message> {
    transcript.get(from..to).unwrap_or_default().iter().cloned()
}

/// An answer and its user message, by their positions in the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) asked: usize,
    pub(crate) user: Seq,
    /// The position after the answer and its tool results.
    pub(crate) end: usize,
}

/// Returns the exchange that answer `of` ends; `None` if it ends none, was continued without a user message, or was
/// rolled back.
pub(crate) fn exchange(state: &State, of: Seq) -> Option<Exchange> {
    let mut asked = None;
    let mut found: Option<Exchange> = None;
    for (at, message) in own(state) {
        match message {
            Message::User { seq, .. } => {
                if found.is_some() {
                    return found;
                }
                asked = Some((at, *seq));
            }
            Message::Assistant { seq, .. } if *seq == of => {
                let (asked, user) = asked?;
                found = Some(Exchange { asked, user, end: at.saturating_add(1) });
            }
            Message::Assistant { .. } if found.is_some() => return None,
            Message::Result { .. } => {
                if let Some(exchange) = found.as_mut().filter(|exchange| exchange.end == at) {
                    exchange.end = at.saturating_add(1);
                }
            }
            Message::Assistant { .. } | Message::Notice { .. } | Message::Prompt { .. } => {}
        }
    }
    found
}

/// Returns this session's own messages that were not rolled back, with their positions. Inherited ones name another
/// journal.
pub(crate) fn own(state: &State) -> impl DoubleEndedIterator<Item = (usize, &Message)> {
    let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    own.filter(|(at, _)| state.hidden_at(*at).is_none())
}

/// Returns the run whose rollback hid message `seq` of this session, if any.
pub(crate) fn rolled_back(state: &State, seq: Seq) -> Option<RunNo> {
    let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    own.filter(|(_, message)| point(message) == Some(seq)).find_map(|(at, _)| state.hidden_at(at))
}

/// Returns the visible user messages and answers of this session, by their records, in order.
pub(crate) fn points(state: &State, seen: &[Message]) -> Vec<Seq> {
    let mut points: Vec<Seq> = seen.iter().skip(state.created.inherited.len()).filter_map(point).collect();
    // Inputs that were taken together share one record.
    points.dedup();
    points
}

fn point(message: &Message) -> Option<Seq> {
    match message {
        Message::User { seq, .. } | Message::Assistant { seq, .. } => Some(*seq),
        Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    }
}

/// Returns what a branch at message `at` inherits: all visible messages up to it, with a result for each call.
///
/// Open calls get a placeholder: their results belong to the session that made the calls.
pub(crate) fn inherited(state: &State, seen: &Transcript, at: Seq) -> Transcript {
    let own = state.created.inherited.len();
    let last = seen.iter().enumerate().skip(own).rfind(|(_, message)| point(message) == Some(at));
    let end = last.map_or(0, |(at, _)| at.saturating_add(1));
    let mut out: Vec<Message> = between(seen, 0, end).collect();
    if let Some((_, Message::Assistant { calls, .. })) = last
        && !calls.is_empty()
        && out.len() == end
    {
        let results = seen.get(end..).unwrap_or_default().iter();
        let results: Vec<Message> =
            results.take_while(|message| matches!(message, Message::Result { .. })).cloned().collect();
        if results.is_empty() { out.extend(pending(state, at)) } else { out.extend(results) }
    }
    Arc::new(out)
}

/// Returns placeholder results for an answer whose calls are still open.
fn pending(state: &State, at: Seq) -> Vec<Message> {
    let Some(turn) = state.turn().filter(|turn| turn.answered == Some(at)) else { return Vec::new() };
    let result = |(call, ix): (&crate::state::Call, u32)| {
        let id = CallId { turn: turn.no, ix };
        match &call.phase {
            CallPhase::Closed(result) => {
                let error = !matches!(result.end, CallEnd::Ok | CallEnd::Backgrounded);
                Message::Result { call: id, error, content: Arc::clone(&result.content) }
            }
            CallPhase::Unstarted | CallPhase::Asked(_) | CallPhase::Started => {
                Message::Result { call: id, error: false, content: PENDING.into() }
            }
        }
    };
    turn.calls.iter().zip(0_u32..).map(result).collect()
}

const PENDING: &str = "Pending elsewhere: this call was open when this conversation branched off. Its result comes in the \
                       conversation that it branched off from, not here.";

/// Returns the estimated tokens of the next model call: the request, and the answer up to the cap.
pub(crate) fn estimate(state: &State) -> Reserved {
    let bytes = visible(state).iter().map(Message::bytes).fold(system(state).len() as u64, u64::saturating_add);
    Reserved { input: bytes.div_ceil(BYTES_PER_TOKEN), output: state.limits.output_tokens.unwrap_or(USUAL_CAP) }
}
