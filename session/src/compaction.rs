//! Selects the messages that a compaction hides, and decides whether the next model call needs a compaction.

use crate::context;
use crate::ids::{Seq, Text};
use crate::limits::Limits;
use crate::message::Message;
use crate::place::{BranchKind, Place};
use crate::render;
use crate::state::{Ranges, State};

/// Estimated bytes of a token: English and code average about four.
const BYTES_PER_TOKEN: u64 = 4;

/// The default share of the context window, in percent.
const DEFAULT_SHARE: u32 = 80;

/// A compaction keeps the newest messages within 1/`TAIL` of the tokens, and hidden completions within 1/`COMPLETIONS`.
const TAIL: u64 = 4;
const COMPLETIONS: u64 = 8;

/// The messages that a compaction would hide now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCut {
    /// The position from which all messages stay visible. Some earlier messages also stay.
    pub upto: u64,
    /// The record that last changed the visible messages. A summary of an older history is refused.
    pub revised: Seq,
}

/// Returns the messages that a compaction would hide now; `None` if no old message can be hidden.
///
/// The newest messages stay, and at least those that the model has not answered. A cut never separates a call from its
/// result.
pub fn plan(state: &State) -> Option<HistoryCut> {
    if is_service(state) {
        return None;
    }
    let tokens = tokens(state);
    let keep = limit(state).map_or(tokens, |limit| limit.min(tokens)) / TAIL * BYTES_PER_TOKEN;
    let (last_cut, replaced) = (newest_cut(state), context::replaced(state));
    let (mut kept, mut upto) = (0_u64, None);
    for at in (start(state)..=state.transcript.len()).rev() {
        kept = kept.saturating_add(state.transcript.get(at).map_or(0, Message::bytes));
        if kept > keep && upto.is_some() {
            break;
        }
        if at <= last_cut && fits(state, &replaced, at) {
            upto = Some(at);
        }
    }
    let upto = upto.filter(|upto| hides(state, *upto))?;
    Some(HistoryCut { upto: upto as u64, revised: state.revised })
}

/// Returns the messages that the summary of `plan` replaces, as the model sees them.
pub fn material(state: &State, plan: HistoryCut) -> Vec<Message> {
    let upto = usize::try_from(plan.upto).unwrap_or(usize::MAX);
    context::visible_to(state, upto)
}

pub(crate) fn is_due(state: &State) -> bool {
    let failed = state.run.as_ref().is_some_and(|run| run.compaction_failed);
    let Some(limit) = limit(state).filter(|_| !failed) else { return false };
    tokens(state) >= limit && plan(state).is_some()
}

/// Returns whether a compaction may follow when the provider reports an overflow. One is allowed in each turn.
pub(crate) fn may_follow_overflow(state: &State) -> bool {
    let fresh = state.turn().is_some_and(|turn| !turn.overflowed && !turn.compaction_failed);
    fresh && is_automatic(&state.limits) && plan(state).is_some()
}

/// Returns the outcome of a compaction with `summary`, without checking that it saves enough.
pub(crate) fn preview(state: &State, plan: HistoryCut, summary: &Text) -> CompactionPreview {
    let upto = usize::try_from(plan.upto).unwrap_or(usize::MAX);
    let verbatim = verbatim(state, upto);
    let text = render::summary_message(state, summary, upto.saturating_sub(verbatim.len()));
    let before = tokens(state);
    let cost =
        |messages: &[Message]| messages.iter().map(Message::bytes).fold(0, u64::saturating_add) / BYTES_PER_TOKEN;
    let kept: u64 = verbatim.iter().filter_map(|at| state.transcript.get(*at)).map(Message::bytes).sum();
    let added = (text.len() as u64).saturating_add(kept).div_ceil(BYTES_PER_TOKEN);
    let after = before.saturating_sub(cost(&context::visible_to(state, upto))).saturating_add(added);
    CompactionPreview { verbatim: verbatim.into_iter().map(|at| at as u64).collect(), text, before, after }
}

pub(crate) struct CompactionPreview {
    pub(crate) verbatim: Vec<u64>,
    pub(crate) text: Text,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// Returns whether a history of `after` tokens is small enough after an automatic compaction.
pub(crate) fn is_within_share(state: &State, after: u64) -> bool {
    limit(state).is_none_or(|limit| after < limit)
}

/// Returns the tokens from which a model call awaits a compaction; `None` if the window is unknown or compaction off.
fn limit(state: &State) -> Option<u64> {
    let share = u64::from(state.limits.compact_at.unwrap_or(DEFAULT_SHARE));
    state.window.filter(|_| share > 0 && !is_service(state)).map(|window| window.saturating_mul(share) / 100)
}

fn is_automatic(limits: &Limits) -> bool {
    limits.compact_at != Some(0)
}

/// Returns whether the session is a service, which has one prompt and one answer.
fn is_service(state: &State) -> bool {
    matches!(state.created.place, Place::Child { kind: BranchKind::Service, .. })
}

/// Returns the estimated input tokens of the next model call: the provider's last count, plus those of later messages.
pub(crate) fn tokens(state: &State) -> u64 {
    let bytes = |messages: &[Message]| messages.iter().map(Message::bytes).fold(0, u64::saturating_add);
    match state.measured {
        Some((tokens, upto)) => {
            let since = state.transcript.get(upto..).unwrap_or_default();
            tokens.saturating_add(bytes(since).div_ceil(BYTES_PER_TOKEN))
        }
        None => context::estimate(state).input,
    }
}

/// Returns the position of the first message that is not yet compacted.
fn start(state: &State) -> usize {
    state.compactions.last().map_or(0, |last| last.upto)
}

/// Returns the last position at which the history may be cut: unanswered messages and open calls stay.
fn newest_cut(state: &State) -> usize {
    let last = state.transcript.iter().enumerate().rev().find_map(|(at, message)| match message {
        Message::Assistant { calls, .. } => Some((at, calls.is_empty())),
        Message::User { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    });
    match last {
        Some((at, true)) => at.saturating_add(1),
        Some((at, false)) => at,
        None => 0,
    }
}

/// Returns whether the history may be cut before `at`: not between call and result, nor within a replaced exchange.
pub(crate) fn is_cut(state: &State, at: usize) -> bool {
    at <= newest_cut(state) && fits(state, &context::replaced(state), at)
}

fn fits(state: &State, replaced: &Ranges, at: usize) -> bool {
    let result = matches!(state.transcript.get(at), Some(Message::Result { .. }));
    at > start(state) && !result && !separates(replaced, at)
}

/// Returns whether a cut before `at` separates messages that a selected alternative replaces together.
fn separates(replaced: &Ranges, at: usize) -> bool {
    replaced.around(at).is_some_and(|from| from < at)
}

fn hides(state: &State, upto: usize) -> bool {
    upto > start(state) && {
        let (stay, hidden) = (verbatim(state, upto), state.hidden_ranges());
        (start(state)..upto).any(|at| hidden.around(at).is_none() && stay.binary_search(&at).is_err())
    }
}

/// Returns the messages before `upto` that stay visible: inputs that the run in flight has not answered, and the newest
/// completions within their share of the tokens.
fn verbatim(state: &State, upto: usize) -> Vec<usize> {
    let own = state.created.inherited.len();
    let first = state.run.as_ref().filter(|run| !run.unanswered.is_empty()).map(|run| run.asked_from);
    let mut remaining = limit(state).unwrap_or_else(|| tokens(state)) / COMPLETIONS * BYTES_PER_TOKEN;
    let mut stay = Vec::new();
    for at in candidates(state, upto).rev().filter(|at| *at >= own) {
        match state.transcript.get(at) {
            Some(Message::User { .. }) if first.is_some_and(|from| at >= from) => stay.push(at),
            Some(Message::Notice { text, .. }) => {
                let Some(rest) = remaining.checked_sub(text.len() as u64) else {
                    remaining = 0;
                    continue;
                };
                remaining = rest;
                stay.push(at);
            }
            Some(
                Message::User { .. } | Message::Assistant { .. } | Message::Result { .. } | Message::Prompt { .. },
            )
            | None => {}
        }
    }
    stay.reverse();
    stay
}

/// Returns the visible positions before `upto` that may stay: later ones, and those that the last compaction kept.
fn candidates(state: &State, upto: usize) -> impl DoubleEndedIterator<Item = usize> {
    let kept = state.compactions.last().map(|last| last.verbatim.clone()).unwrap_or_default();
    let (hidden, replaced) = (state.hidden_ranges(), context::replaced(state));
    let seen = |at: &usize| hidden.around(*at).is_none() && !separates(&replaced, *at);
    let all: Vec<usize> = kept.into_iter().chain(start(state)..upto).filter(seen).collect();
    all.into_iter()
}
