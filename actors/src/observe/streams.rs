//! Running streams: the text so far, and the rules for publishing pieces.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::FixedState;
use subtend_models::model::Delta;
use subtend_session::ids::{AttemptNo, CallId, RunNo, SessionId, Text, TurnNo};
use subtend_session::record::Record;

use crate::observe::event::{Event, EventKind};
use crate::values::address::Address;

/// Maximum bytes per kind and stream that are kept for late readers. Beyond them, only the offset advances.
const MAX_KEPT: u64 = 1 << 20;
/// Bytes of text that late readers share. Each reader copies at most this many bytes after them.
const SHARED_BYTES: usize = 16 << 10;
const MAX_KEPT_CALLS: usize = 256;

/// Identifies an attempt. Keys are ordered as the session makes the attempts.
pub(crate) type AttemptKey = (TurnNo, AttemptNo);

/// Ends of a session's streams, read from the records of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    over: Option<AttemptKey>,
    retry: Option<AttemptKey>,
    /// True if an attempt was discarded or retried, so that its later pieces must be recognised.
    failed: bool,
    /// True if the batch ends without a pending retry.
    rest: bool,
}

impl Ends {
    pub(crate) fn of(records: &[Record]) -> Self {
        let mut ends = Self::default();
        for record in records {
            if let Record::TurnAnswered(answered) = record {
                ends.over = ends.over.max(Some((answered.turn, answered.attempt)));
                ends.rest = true;
            } else if let Record::AttemptDiscarded(discarded) = record {
                ends.over = ends.over.max(Some((discarded.turn, discarded.attempt)));
                (ends.failed, ends.rest) = (true, false);
            } else if let Record::TurnStarted { turn, attempt, .. } = record {
                if let Some(before) = before(*attempt) {
                    // An attempt of a crashed activation ends without a record: only the start of the next attempt shows it.
                    ends.over = ends.over.max(Some((*turn, before)));
                    ends.retry = ends.retry.max(Some((*turn, *attempt)));
                    (ends.failed, ends.rest) = (true, false);
                }
            } else if let Record::RunEnded(_) = record {
                ends.rest = true;
            }
        }
        ends
    }

    /// Returns whether an attempt failed, which matters even for unknown streams.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }
}

pub(crate) fn before(attempt: AttemptNo) -> Option<AttemptNo> {
    (attempt.0 > 1).then(|| AttemptNo(attempt.0.saturating_sub(1)))
}

/// The streams of all sessions. They share one lock with the sending of events, so that a new subscriber gets each piece once.
#[derive(Default)]
pub(crate) struct Streams {
    live: BTreeMap<SessionId, StreamState>,
    retries: HashMap<SessionId, Retry, FixedState>,
    /// Appended sessions that are not durable yet.
    not_durable: HashSet<SessionId, FixedState>,
    /// Seeded bug: publishes the pieces of a retry immediately.
    #[cfg(test)]
    pub(crate) publishes_early: bool,
}

struct StreamState {
    root: SessionId,
    run: RunNo,
    place: AttemptKey,
    /// True if pieces are held back: the start of the retry, or the session, has not been published.
    held: bool,
    /// True if the model call has ended, so that no further piece arrives.
    done: bool,
    /// True if the end was published. The stream is kept without its text while its model call may still stream.
    ended: bool,
    so_far: StreamBuffer,
}

#[derive(Default)]
struct Retry {
    over: Option<AttemptKey>,
    /// The newest attempt whose start was published.
    shown: Option<AttemptKey>,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.live.len().saturating_add(self.retries.len())
    }

    /// Records appended sessions: nothing about them is published before [`Streams::release_created`].
    pub(crate) fn add_appended(&mut self, sessions: &[SessionId]) {
        self.not_durable.extend(sessions);
    }

    pub(crate) fn is_not_durable(&self, session: SessionId) -> bool {
        self.not_durable.contains(&session)
    }

    /// Returns the pieces that were held back until `sessions` were durable.
    pub(crate) fn release_created(&mut self, sessions: &[SessionId]) -> Vec<Event> {
        sessions
            .iter()
            .flat_map(|session| if self.not_durable.remove(session) { self.release(*session) } else { Vec::new() })
            .collect()
    }

    /// Keeps a piece, and returns it if it may be published now: not after the end of its attempt, not before the published start of its retry, and
    /// not before its session is durable.
    pub(crate) fn push(&mut self, at: &Address, delta: &Delta) -> Option<EventKind> {
        let place = (at.turn, at.attempt);
        let retry = self.retries.get(&at.session);
        if retry.is_some_and(|retry| Some(place) <= retry.over) {
            return None;
        }
        let first = before(at.attempt).is_none();
        // An in-process model may be called before the record of its attempt is in the log: an unknown attempt is not published.
        let held = self.is_not_durable(at.session) || (!first && retry.is_none_or(|retry| Some(place) > retry.shown));
        #[cfg(test)]
        let held = held && !self.publishes_early;
        let fresh = || StreamState {
            root: at.root,
            run: at.run,
            place,
            held,
            done: false,
            ended: false,
            so_far: StreamBuffer::default(),
        };
        let stream = self.live.entry(at.session).or_insert_with(fresh);
        if stream.place < place {
            *stream = fresh();
        }
        if stream.place > place || stream.ended {
            return None;
        }
        let offset = stream.so_far.push(delta);
        let (run, turn, attempt) = (at.run, at.turn, at.attempt);
        (!stream.held).then(|| EventKind::Delta { run, turn, attempt, offset, delta: delta.clone() })
    }

    /// Ends the model call of an attempt; only pieces that are still to be published are kept.
    pub(crate) fn done(&mut self, session: SessionId, place: AttemptKey) {
        let Some(stream) = self.live.get_mut(&session).filter(|stream| stream.place == place) else { return };
        stream.done = true;
        if !stream.held || stream.ended {
            self.live.remove(&session);
        }
    }

    /// Marks records as published; returns the pieces held back until then.
    pub(crate) fn on_shown(&mut self, session: SessionId, ends: Ends) -> Vec<Event> {
        if let Some(stream) = self.live.get_mut(&session).filter(|stream| Some(stream.place) <= ends.over) {
            stream.ended = true;
            stream.so_far = StreamBuffer::default();
            if stream.done {
                self.live.remove(&session);
            }
        }
        if ends.rest {
            self.retries.remove(&session);
        } else if ends.failed {
            let retry = self.retries.entry(session).or_default();
            retry.over = retry.over.max(ends.over);
            retry.shown = retry.shown.max(ends.retry);
        }
        if self.is_not_durable(session) { Vec::new() } else { self.release(session) }
    }

    /// Releases the pieces of a stream that nothing holds back any more.
    fn release(&mut self, session: SessionId) -> Vec<Event> {
        let shown = self.retries.get(&session).and_then(|retry| retry.shown);
        let Some(stream) = self.live.get_mut(&session) else { return Vec::new() };
        let waits = before(stream.place.1).is_some() && Some(stream.place) > shown;
        if !stream.held || stream.ended || waits {
            return Vec::new();
        }
        stream.held = false;
        let events = stream.events(session);
        if stream.done {
            self.live.remove(&session);
        }
        events
    }

    /// Returns the text so far of every stream for which `sees` is true.
    pub(crate) fn open_text(&self, sees: impl Fn(SessionId, SessionId) -> bool) -> Vec<Event> {
        let seen = self.live.iter().filter(|(session, stream)| !stream.held && sees(stream.root, **session));
        seen.flat_map(|(session, stream)| stream.events(*session)).collect()
    }
}

impl StreamState {
    fn events(&self, session: SessionId) -> Vec<Event> {
        let (root, run, (turn, attempt)) = (self.root, self.run, self.place);
        let pieces = self.so_far.pieces().into_iter();
        let what = |(offset, delta)| EventKind::Delta { run, turn, attempt, offset, delta };
        pieces.map(|piece| Event { root, session, what: what(piece) }).collect()
    }
}

/// The output of a stream, bounded for each kind.
#[derive(Default)]
struct StreamBuffer {
    text: StreamedText,
    reasoning: StreamedText,
    calls: Vec<(CallId, Text)>,
    call_count: u64,
}

#[derive(Default)]
struct StreamedText {
    /// The kept text, in parts with their offsets. Shared by all readers.
    shared: Vec<(u64, Text)>,
    /// The end of the kept text.
    tail: String,
    kept: u64,
    /// Total number of bytes, including dropped ones.
    len: u64,
}

impl StreamBuffer {
    /// Adds a piece; returns its offset.
    fn push(&mut self, delta: &Delta) -> u64 {
        match delta {
            Delta::Text(text) => self.text.push(text),
            Delta::Reasoning(text) => self.reasoning.push(text),
            Delta::Call { call, tool } => {
                if self.calls.len() < MAX_KEPT_CALLS {
                    self.calls.push((*call, Text::clone(tool)));
                }
                let before = self.call_count;
                self.call_count = before.saturating_add(1);
                before
            }
        }
    }

    fn pieces(&self) -> Vec<(u64, Delta)> {
        let mut pieces = Vec::new();
        pieces.extend(self.reasoning.pieces().map(|(offset, text)| (offset, Delta::Reasoning(text))));
        pieces.extend(self.text.pieces().map(|(offset, text)| (offset, Delta::Text(text))));
        let calls = self.calls.iter().zip(0_u64..);
        pieces.extend(calls.map(|((call, tool), ix)| (ix, Delta::Call { call: *call, tool: Text::clone(tool) })));
        pieces
    }
}

impl StreamedText {
    fn push(&mut self, text: &str) -> u64 {
        let before = self.len;
        self.len = before.saturating_add(text.len() as u64);
        // The kept text has no gap: after a piece that did not fit, no later piece is kept.
        if self.kept == before && self.len <= MAX_KEPT {
            self.kept = self.len;
            self.tail.push_str(text);
            if self.tail.len() >= SHARED_BYTES {
                self.shared.push((self.tail_offset(), std::mem::take(&mut self.tail).into()));
            }
        }
        before
    }

    fn tail_offset(&self) -> u64 {
        self.kept.saturating_sub(self.tail.len() as u64)
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, Text)> {
        let tail = (!self.tail.is_empty()).then(|| (self.tail_offset(), self.tail.as_str().into()));
        self.shared.iter().map(|(offset, text)| (*offset, Text::clone(text))).chain(tail)
    }
}

#[cfg(test)]
pub(crate) mod tests;
