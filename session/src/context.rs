//! What a model call is given, and what a branch inherits of it.

use std::sync::Arc;

use crate::call::CallEnd;
use crate::ids::{CallId, RunNo, Seq, Text};
use crate::message::{Message, Transcript};
use crate::record::{Prompt, Reserved};
use crate::state::{CallPhase, State};

/// Bytes of a token, by estimate. English and code have about four.
const BYTES_PER_TOKEN: u64 = 4;

/// Output tokens that are reserved for a call whose answer has no cap.
const USUAL_CAP: u64 = 4_096;

/// What a model call is given, besides its tools.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The resolved system prompt: of the agent in force (G12).
    pub system: Text,
    /// The transcript, shared where no alternative is seen: it ends with the text of the prompt, if there is one.
    pub messages: Transcript,
    /// Which word of ours the transcript ends with; for models that act on it.
    pub prompt: Prompt,
    /// The model to call, by the session's name for it or by a fallback's own.
    pub model: Text,
    /// JSON schema that the answer is asked to keep, as JSON text.
    pub format: Option<Text>,
}

/// The context of the turn at hand.
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

/// The model of new turns: of the agent in force.
pub(crate) fn model(state: &State) -> Text {
    state.agent.as_ref().map_or_else(|| state.created.model.clone(), |agent| agent.model.clone())
}

fn system(state: &State) -> Text {
    if let Some(agent) = &state.agent {
        return Arc::clone(&agent.system);
    }
    state.created.system.body.clone().unwrap_or_else(|| "".into())
}

/// The transcript as models and people see it: where an alternative of an answer is seen, its text stands in place of all that
/// followed the user message up to the answer; what was rolled back is not there.
///
/// Shared and without cost where every original is seen and nothing is hidden.
pub fn visible(state: &State) -> Transcript {
    let originals = state.alternatives.values().all(|alternatives| alternatives.seen().is_none());
    if originals && state.hidden().next().is_none() {
        return Arc::clone(&state.transcript);
    }
    let mut out = Vec::with_capacity(state.transcript.len());
    let mut at = 0;
    for (from, to, instead) in cuts(state) {
        // A journal that is not ours may have an exchange around what is hidden.
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

/// The stretches of the transcript that are not seen, in its order, each with what is seen in its place.
///
/// They do not overlap: an exchange lies within one run, and one that is hidden is none.
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

/// An answer and what it answers, by their places in the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// The user message.
    pub(crate) asked: usize,
    /// The record of the user message.
    pub(crate) user: Seq,
    /// The message behind the answer and the results of its calls.
    pub(crate) end: usize,
}

/// The exchange that answer `of` ends; `None` where `of` is none that ends one: no answer of this session, one that the
/// session went on after without another user message, or one that was rolled back.
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

/// Messages of this session itself that were not rolled back, with their places: inherited ones name records of another journal.
pub(crate) fn own(state: &State) -> impl DoubleEndedIterator<Item = (usize, &Message)> {
    let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    own.filter(|(at, _)| state.hidden_at(*at).is_none())
}

/// The run that was rolled back and with it the user message or answer `seq` of this session, if it was.
pub(crate) fn rolled_back(state: &State, seq: Seq) -> Option<RunNo> {
    let own = state.transcript.iter().enumerate().skip(state.created.inherited.len());
    own.filter(|(_, message)| point(message) == Some(seq)).find_map(|(at, _)| state.hidden_at(at))
}

/// The user messages and answers of this session that are seen, by their records, in order.
pub(crate) fn points(state: &State, seen: &[Message]) -> Vec<Seq> {
    let mut points: Vec<Seq> = seen.iter().skip(state.created.inherited.len()).filter_map(point).collect();
    // Inputs that were taken together are one record.
    points.dedup();
    points
}

fn point(message: &Message) -> Option<Seq> {
    match message {
        Message::User { seq, .. } | Message::Assistant { seq, .. } => Some(*seq),
        Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    }
}

/// What a branch that hangs on message `at` inherits: all that is seen up to it, with results for the calls that it asks for.
///
/// Those that are open get a result that says so: theirs come in the session that asked for them.
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

/// Results of the answer whose calls are not all closed yet.
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

/// What the next model call may take, by estimate: its request, and its answer up to the cap.
pub(crate) fn estimate(state: &State) -> Reserved {
    let bytes = visible(state).iter().map(Message::bytes).fold(system(state).len() as u64, u64::saturating_add);
    Reserved { input: bytes.div_ceil(BYTES_PER_TOKEN), output: state.limits.output_tokens.unwrap_or(USUAL_CAP) }
}
