//! Answers on their way: the text so far of each model stream, and which of its pieces may be shown.

use std::collections::{BTreeMap, HashMap, HashSet};

use subtend_models::model::Delta;
use subtend_session::ids::{AttemptNo, CallId, RunNo, SessionId, Text, TurnNo};
use subtend_session::record::Record;

use crate::observe::event::{Event, What};
use crate::values::address::Address;

/// Bytes of one kind that are kept of a stream for those who come late; of a longer one they see the rest with its offset.
const KEPT: usize = 1 << 20;
/// Calls of one stream that are kept likewise.
const KEPT_CALLS: usize = 256;

/// An attempt, in the order in which a session makes them.
pub(crate) type Place = (TurnNo, AttemptNo);

/// What the records of one session in one batch say about its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The last attempt that is over.
    over: Option<Place>,
    /// The last retry that has begun.
    retry: Option<Place>,
    /// Whether an attempt was discarded or tried again: then later pieces of it must be known for what they are.
    failed: bool,
    /// Whether the last word of the batch is that no attempt is to be tried again.
    rest: bool,
}

impl Ends {
    /// What `records` say.
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
                    // An activation that died leaves no word of its attempt but that the next one starts.
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

    /// Whether an attempt failed: whoever keeps the streams must hear of it, whether one is known or not.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }
}

/// The attempt before, if there is one.
pub(crate) fn before(attempt: AttemptNo) -> Option<AttemptNo> {
    (attempt.0 > 1).then(|| AttemptNo(attempt.0.saturating_sub(1)))
}

/// The streams of all sessions. Under one lock with the sending of events, so that who attaches sees each piece once.
#[derive(Default)]
pub(crate) struct Streams {
    live: BTreeMap<SessionId, Stream>,
    /// Sessions with a turn that is tried again.
    retries: HashMap<SessionId, Retry>,
    /// Sessions whose birth is appended and not durable yet.
    unborn: HashSet<SessionId>,
    /// Shows the pieces of a retry at once: the fault that the order of events is tested against.
    #[cfg(test)]
    pub(crate) careless: bool,
}

struct Stream {
    root: SessionId,
    run: RunNo,
    place: Place,
    /// A retry whose beginning has not been shown, or a session whose birth has not: its pieces wait here.
    held: bool,
    /// Its model call is over, and no piece comes any more.
    done: bool,
    /// Its end has been shown. It is kept without its text while its model call may still say something.
    ended: bool,
    so_far: SoFar,
}

#[derive(Default)]
struct Retry {
    /// This attempt and all before it are over.
    over: Option<Place>,
    /// The beginning of this attempt, and of all before it, has been shown.
    shown: Option<Place>,
}

impl Streams {
    /// How many sessions something is kept of.
    pub(crate) fn len(&self) -> usize {
        self.live.len().saturating_add(self.retries.len())
    }

    /// Notes sessions whose birth was appended: nothing that names them is shown before [`Streams::born`].
    pub(crate) fn bears(&mut self, sessions: &[SessionId]) {
        self.unborn.extend(sessions);
    }

    /// Whether the birth of `session` is not durable yet.
    pub(crate) fn is_unborn(&self, session: SessionId) -> bool {
        self.unborn.contains(&session)
    }

    /// Returns what was held back until the births of `sessions` were durable.
    pub(crate) fn born(&mut self, sessions: &[SessionId]) -> Vec<Event> {
        sessions
            .iter()
            .flat_map(|session| if self.unborn.remove(session) { self.release(*session) } else { Vec::new() })
            .collect()
    }

    /// Keeps a piece. Returns it as it is to be shown now, if it is: not one of an attempt that is over, not one of a retry
    /// before subscribers have seen that the retry began, and none before the session's birth is durable.
    pub(crate) fn push(&mut self, at: &Address, delta: &Delta) -> Option<What> {
        let place = (at.turn, at.attempt);
        let retry = self.retries.get(&at.session);
        if retry.is_some_and(|retry| Some(place) <= retry.over) {
            return None;
        }
        let first = before(at.attempt).is_none();
        // A model in this process may be called before the record of its attempt is even in the log: not known is not shown.
        let held = self.is_unborn(at.session) || (!first && retry.is_none_or(|retry| Some(place) > retry.shown));
        #[cfg(test)]
        let held = held && !self.careless;
        let fresh =
            || Stream { root: at.root, run: at.run, place, held, done: false, ended: false, so_far: SoFar::default() };
        let stream = self.live.entry(at.session).or_insert_with(fresh);
        if stream.place < place {
            *stream = fresh();
        }
        if stream.place > place || stream.ended {
            return None;
        }
        let offset = stream.so_far.push(delta);
        let (run, turn, attempt) = (at.run, at.turn, at.attempt);
        (!stream.held).then(|| What::Delta { run, turn, attempt, offset, delta: delta.clone() })
    }

    /// The model call of an attempt is over: nothing of it needs to be kept, but what waits to be shown.
    pub(crate) fn done(&mut self, session: SessionId, place: Place) {
        let Some(stream) = self.live.get_mut(&session).filter(|stream| stream.place == place) else { return };
        stream.done = true;
        if !stream.held || stream.ended {
            self.live.remove(&session);
        }
    }

    /// The records that say so have been shown, or nobody is there to see them. Returns what was held back until then.
    pub(crate) fn shown(&mut self, session: SessionId, ends: Ends) -> Vec<Event> {
        if let Some(stream) = self.live.get_mut(&session).filter(|stream| Some(stream.place) <= ends.over) {
            stream.ended = true;
            stream.so_far = SoFar::default();
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
        if self.is_unborn(session) { Vec::new() } else { self.release(session) }
    }

    /// What a stream held back, where nothing holds it any more.
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

    /// The text so far of every stream that `sees` lets through.
    pub(crate) fn so_far(&self, sees: impl Fn(SessionId, SessionId) -> bool) -> Vec<Event> {
        let seen = self.live.iter().filter(|(session, stream)| !stream.held && sees(stream.root, **session));
        seen.flat_map(|(session, stream)| stream.events(*session)).collect()
    }
}

impl Stream {
    fn events(&self, session: SessionId) -> Vec<Event> {
        let (root, run, (turn, attempt)) = (self.root, self.run, self.place);
        let pieces = self.so_far.pieces().into_iter();
        let what = |(offset, delta)| What::Delta { run, turn, attempt, offset, delta };
        pieces.map(|piece| Event { root, session, what: what(piece) }).collect()
    }
}

/// What a stream gave so far, up to a bound for each kind.
#[derive(Default)]
struct SoFar {
    text: Kept,
    reasoning: Kept,
    calls: Vec<(CallId, Text)>,
    call_count: u64,
}

#[derive(Default)]
struct Kept {
    head: String,
    /// Bytes in all, those that are not kept included.
    len: u64,
}

impl SoFar {
    /// Adds a piece; returns what came before it, of its kind.
    fn push(&mut self, delta: &Delta) -> u64 {
        match delta {
            Delta::Text(text) => self.text.push(text),
            Delta::Reasoning(text) => self.reasoning.push(text),
            Delta::Call { call, tool } => {
                if self.calls.len() < KEPT_CALLS {
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
        pieces.extend(self.reasoning.piece().map(|text| (0, Delta::Reasoning(text))));
        pieces.extend(self.text.piece().map(|text| (0, Delta::Text(text))));
        let calls = self.calls.iter().zip(0_u64..);
        pieces.extend(calls.map(|((call, tool), ix)| (ix, Delta::Call { call: *call, tool: Text::clone(tool) })));
        pieces
    }
}

impl Kept {
    fn push(&mut self, text: &str) -> u64 {
        let before = self.len;
        self.len = before.saturating_add(text.len() as u64);
        // What is kept has no hole: after a piece that did not fit, nothing is.
        if self.head.len() as u64 == before && self.head.len().saturating_add(text.len()) <= KEPT {
            self.head.push_str(text);
        }
        before
    }

    fn piece(&self) -> Option<Text> {
        (!self.head.is_empty()).then(|| self.head.as_str().into())
    }
}

#[cfg(test)]
pub(crate) mod tests;
