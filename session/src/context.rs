//! The input of a model call, and the part of it that a branch inherits.

use std::sync::Arc;

use crate::call::CallEnd;
use crate::ids::{CallId, RunNo, Seq, Text};
use crate::message::{Message, Transcript};
use crate::record::{Prompt, Reserved};
use crate::state::{CallPhase, Compaction, Ranges, State};

/// Estimated bytes of a token: English and code average about four.
const BYTES_PER_TOKEN: u64 = 4;

/// Output tokens reserved for a call without a cap.
const DEFAULT_OUTPUT_TOKENS: u64 = 4_096;

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

/// Returns the context of the current turn. The caller must drop it before it submits the answer, so that the next
/// message is pushed without a copy.
pub fn context(state: &State) -> Context {
    let run = state.run.as_ref();
    let turn = run.and_then(|run| run.turn.as_ref());
    let prompt = turn.map_or(Prompt::Plain, |turn| turn.prompt);
    let model = turn.map_or_else(|| model(state), |turn| turn.model.clone());
    let format = run.and_then(|run| run.format.clone());
    Context { system: system(state), messages: visible(state), prompt, model, format }
}

pub(crate) fn model(state: &State) -> Text {
    state.agent.as_ref().map_or_else(|| state.created.model.clone(), |agent| agent.model.clone())
}

fn system(state: &State) -> Text {
    if let Some(agent) = &state.agent {
        return Arc::clone(&agent.system);
    }
    state.created.system.body.clone().unwrap_or_else(|| "".into())
}

/// Returns the transcript as models and people see it: a selected alternative replaces the original answer and the
/// messages that led to it, rolled-back messages are hidden, and a summary replaces compacted messages.
///
/// The transcript is shared, not copied, if no alternative is selected and no message is hidden.
pub fn visible(state: &State) -> Transcript {
    let originals = state.alternatives.values().all(|alternatives| alternatives.selected_text().is_none());
    if originals && state.compactions.is_empty() && state.hidden().next().is_none() {
        return Arc::clone(&state.transcript);
    }
    Arc::new(visible_after(state, state.compactions.last(), state.transcript.len()).messages)
}

pub(crate) fn visible_to(state: &State, upto: usize) -> Vec<Message> {
    visible_after(state, state.compactions.last(), upto).messages
}

/// Returns the visible messages of this session alone, without inherited ones and summaries.
pub fn visible_own(state: &State) -> Vec<Message> {
    let Visible { mut messages, own } = visible_after(state, state.compactions.last(), state.transcript.len());
    messages.split_off(own)
}

pub(crate) struct Visible {
    pub(crate) messages: Vec<Message>,
    /// The position of the first message of this session: inherited ones and a summary come before it.
    pub(crate) own: usize,
}

impl Visible {
    pub(crate) fn own(&self) -> &[Message] {
        self.messages.get(self.own..).unwrap_or_default()
    }
}

/// Returns the messages that were visible before the compactions that hide message `seq`.
pub(crate) fn visible_before(state: &State, seq: Option<Seq>) -> Visible {
    let at = seq.and_then(|seq| {
        let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
        own.rev().find_map(|(at, message)| (point(message) == Some(seq)).then_some(at))
    });
    let applies = |compaction: &&Compaction| at.is_none_or(|at| compaction.upto <= at);
    visible_after(state, state.compactions.iter().rev().find(applies), state.transcript.len())
}

fn visible_after(state: &State, compaction: Option<&Compaction>, upto: usize) -> Visible {
    let inherited = state.created.inherited.len();
    let mut out = Vec::with_capacity(upto.min(state.transcript.len()));
    let mut at = 0;
    if let Some(compaction) = compaction {
        out.extend(compaction.replacement(&state.transcript));
        at = compaction.upto;
    }
    // After a compaction, only messages of this session stay visible, and the summary is the first visible message.
    let own = if compaction.is_some() { 1_usize.saturating_add(inherited.saturating_sub(at)) } else { inherited };
    let first = at;
    for (from, to, instead) in cuts(state) {
        if from >= upto {
            break;
        }
        // An imported journal may contain an exchange that spans the hidden range.
        if from < at {
            if from < first && to > at {
                out.extend(instead);
            }
            at = at.max(to);
            continue;
        }
        out.extend(between(&state.transcript, at, from));
        out.extend(instead);
        at = to;
    }
    out.extend(between(&state.transcript, at, upto));
    Visible { messages: out, own }
}

/// Returns the hidden ranges in order, with their replacements. They do not overlap: an exchange lies within one run.
fn cuts(state: &State) -> Vec<(usize, usize, Option<Message>)> {
    let hidden = state.hidden().map(|(_, stretch)| (stretch.from, stretch.to, None));
    let mut cuts: Vec<_> = hidden.chain(replaced_ranges(state)).collect();
    cuts.sort_by_key(|(from, to, _)| (*from, *to));
    cuts
}

fn replaced_ranges(state: &State) -> impl Iterator<Item = (usize, usize, Option<Message>)> {
    let any = state.alternatives.values().any(|alternatives| alternatives.selected_text().is_some());
    let exchanges = if any { exchanges(state) } else { Vec::new() };
    exchanges.into_iter().filter_map(|(of, exchange)| {
        let text = Some(Arc::clone(state.alternatives.get(&of)?.selected_text()?));
        let instead = Message::Assistant { seq: of, text, reasoning: None, calls: Arc::new([]) };
        Some((exchange.asked.saturating_add(1), exchange.end, Some(instead)))
    })
}

/// Returns the ranges that selected alternatives replace. A cut separates messages of one unless it is at its start.
pub(crate) fn replaced(state: &State) -> Ranges {
    Ranges::new(replaced_ranges(state).map(|(from, to, _)| (from, to)))
}

fn between(transcript: &[Message], from: usize, to: usize) -> impl Iterator<Item = Message> {
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

/// Returns the exchange that answer `of` ends; `None` if it ends none, has no user message, or was rolled back.
pub(crate) fn exchange(state: &State, of: Seq) -> Option<Exchange> {
    exchanges(state).into_iter().find_map(|(answer, exchange)| (answer == of).then_some(exchange))
}

/// Returns all exchanges in order, each with its answer. One pass: a journal may have thousands of alternatives.
fn exchanges(state: &State) -> Vec<(Seq, Exchange)> {
    let (mut found, mut last_user) = (Vec::new(), None);
    let mut open: Option<(Seq, Exchange)> = None;
    for (at, message) in own(state) {
        let end = at.saturating_add(1);
        match message {
            Message::User { seq, .. } => {
                found.extend(open.take());
                last_user = Some((at, *seq));
            }
            Message::Assistant { seq, .. } => {
                open = last_user.map(|(asked, user)| (*seq, Exchange { asked, user, end }));
            }
            Message::Result { .. } => {
                if let Some((_, exchange)) = open.as_mut().filter(|(_, exchange)| exchange.end == at) {
                    exchange.end = end;
                }
            }
            Message::Notice { .. } | Message::Prompt { .. } => {}
        }
    }
    found.extend(open);
    found
}

/// Returns this session's messages without inherited, rolled-back and compacted ones, with their positions.
pub(crate) fn own(state: &State) -> impl DoubleEndedIterator<Item = (usize, &Message)> {
    let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    let hidden = state.hidden_ranges();
    own.filter(move |(at, _)| hidden.around(*at).is_none() && !state.is_compacted(*at))
}

/// Returns the run whose rollback hid message `seq` of this session, if any.
pub(crate) fn rolled_back(state: &State, seq: Seq) -> Option<RunNo> {
    let mut own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    // Messages that share a record are of one run.
    own.find(|(_, message)| point(message) == Some(seq)).and_then(|(at, _)| state.hidden_at(at))
}

pub(crate) fn is_compacted(state: &State, seq: Seq) -> bool {
    let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    own.filter(|(_, message)| point(message) == Some(seq)).any(|(at, _)| state.is_compacted(at))
}

/// Returns the records of the user messages and answers among `own`, in order.
pub(crate) fn points(own: &[Message]) -> Vec<Seq> {
    let mut points: Vec<Seq> = own.iter().filter_map(point).collect();
    // Inputs that were taken together share one record.
    points.dedup();
    points
}

pub(crate) fn point(message: &Message) -> Option<Seq> {
    match message {
        Message::User { seq, .. } | Message::Assistant { seq, .. } => Some(*seq),
        Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    }
}

/// Returns the messages that a branch at message `at` inherits: all visible ones up to it. Open calls get a
/// placeholder, because their results belong to the session that made the calls.
pub(crate) fn inherited(state: &State, Visible { messages, own }: &Visible, at: Seq) -> Transcript {
    let last = messages.iter().enumerate().skip(*own).rfind(|(_, message)| point(message) == Some(at));
    let end = last.map_or(0, |(at, _)| at.saturating_add(1));
    let mut out: Vec<Message> = between(messages, 0, end).collect();
    if let Some((_, Message::Assistant { calls, .. })) = last
        && !calls.is_empty()
        && out.len() == end
    {
        let results = messages.get(end..).unwrap_or_default().iter();
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
    Reserved {
        input: bytes.div_ceil(BYTES_PER_TOKEN),
        output: state.limits.output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS),
    }
}
