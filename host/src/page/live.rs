//! Streams of changed fragments of a view, which the browser swaps in.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use subtend_actors::event::{DeltaKind, EventLine};
use subtend_actors::{Next, Subscription};
use subtend_session::ids::{AttemptNo, SessionId, TurnNo};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::host::Host;
use crate::metrics::Streaming;
use crate::problem::Problem;
use crate::reads;

/// Time for which changes are collected before they are sent.
pub(super) const COLLECT_TIME: Duration = Duration::from_millis(80);
/// Number of messages buffered between a view and its connection. A slow browser delays only its own view.
const BUFFERED_MESSAGES: usize = 4;
/// Maximum size in bytes of the shown part of an answer in progress.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// The text of an answer in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Partial {
    at: (TurnNo, AttemptNo),
    pub(super) text: String,
    pub(super) calls: Vec<String>,
}

/// Events since the last message.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) sessions: BTreeSet<SessionId>,
    /// True if anything may have changed, as at the start and after missed events.
    pub(super) all: bool,
    pub(super) partials: BTreeMap<SessionId, Partial>,
}

/// A part of a page, with the id of its element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    pub(super) id: String,
    pub(super) html: String,
    pub(super) swap: Swap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swap {
    Outer,
    Inner,
    /// Appended to the children of the element.
    Append,
    /// Not swapped: the message is for another node.
    Bare,
}

impl Fragment {
    pub(super) fn new(id: impl Into<String>, html: String, swap: Swap) -> Self {
        Self { id: id.into(), html, swap }
    }

    /// Appends the fragment in the format of htmx.
    pub(super) fn write(&self, into: &mut String) {
        let swap = match self.swap {
            Swap::Outer => "outerMorph",
            Swap::Inner => "innerMorph",
            Swap::Append => "beforeend",
            Swap::Bare => return into.push_str(&self.html),
        };
        let Self { id, html, .. } = self;
        // Writing to a string does not fail.
        _ = write!(into, "<hx-partial hx-target=\"#{id}\" hx-swap=\"{swap}\">{html}</hx-partial>");
    }
}

pub(super) trait LiveView: Send + 'static {
    /// Returns the fragments that may have changed. The caller skips unchanged ones.
    fn changed(
        &mut self,
        host: &Host,
        changes: &Changes,
    ) -> impl Future<Output = Result<Vec<Fragment>, Problem>> + Send;

    /// Returns the id of the sent state. A browser repeats it when it reconnects.
    fn id(&self) -> Option<String> {
        None
    }
}

pub(super) fn follow(host: &Host, root: Option<SessionId>, view: impl LiveView) -> Response {
    let (to, from) = mpsc::channel(BUFFERED_MESSAGES);
    // Subscribe before reading the view, so that no event is missed.
    let events = host.runtime().subscribe(root);
    tokio::spawn(reads::run_as(reads::sender(), pump(host.clone(), root, events, view, to)));
    let streaming = Arc::new(host.metrics().count_stream());
    Sse::new(to_stream(from, streaming)).keep_alive(KeepAlive::new().interval(host.options().heartbeat)).into_response()
}

fn to_stream(from: mpsc::Receiver<Sent>, streaming: Arc<Streaming>) -> impl Stream<Item = Result<Sent, Infallible>> {
    stream::unfold((from, streaming), async |(mut from, streaming)| {
        let sent = from.recv().await?;
        Some((Ok(sent), (from, streaming)))
    })
}

async fn pump(
    host: Host,
    root: Option<SessionId>,
    mut events: Subscription,
    mut view: impl LiveView,
    to: mpsc::Sender<Sent>,
) {
    let mut changes = Changes { all: true, ..Changes::default() };
    let mut known: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let fragments = match host.reads().read_for_stream(view.changed(&host, &changes)).await {
            Ok(fragments) => fragments,
            Err(problem) => {
                tracing::warn!(detail = problem.detail, "a view cannot be followed");
                return;
            }
        };
        (changes.all, changes.sessions) = (false, BTreeSet::new());
        let message = message(&mut known, &fragments);
        if !message.is_empty() {
            let sent = event(&message);
            let sent = match view.id() {
                Some(id) => sent.id(id),
                None => sent,
            };
            if to.send(sent).await.is_err() {
                return;
            }
        }
        let first = tokio::select! {
            next = events.next() => next,
            () = host.ends().cancelled() => return,
            () = to.closed() => return,
        };
        let Some(first) = first else { return };
        let mut missed = changes.add(first);
        let until = Instant::now() + COLLECT_TIME;
        loop {
            let next = tokio::select! {
                biased;
                next = events.next() => next,
                () = sleep_until(until) => break,
                () = host.ends().cancelled() => return,
                () = to.closed() => return,
            };
            let Some(next) = next else { break };
            missed |= changes.add(next);
            if Instant::now() >= until {
                break;
            }
        }
        if missed {
            // Subscribe again to receive the text of the answer in progress from its start.
            events = host.runtime().subscribe(root);
            changes = Changes { all: true, ..Changes::default() };
        }
    }
}

/// Returns the event of a message.
pub(super) fn event(message: &str) -> Sent {
    Sent::default().data(message.replace('\r', "&#13;"))
}

/// Returns one message with the fragments that differ from those sent before.
pub(super) fn message(known: &mut BTreeMap<String, u64>, fragments: &[Fragment]) -> String {
    let mut message = String::new();
    for fragment in fragments {
        let mut hasher = DefaultHasher::new();
        fragment.html.hash(&mut hasher);
        let hash = hasher.finish();
        let key = if fragment.swap == Swap::Append { format!("{}+{hash}", fragment.id) } else { fragment.id.clone() };
        if known.insert(key, hash) != Some(hash) {
            fragment.write(&mut message);
        }
    }
    message
}

impl Changes {
    /// Adds an event, and returns whether events were missed.
    fn add(&mut self, next: Next) -> bool {
        let event = match next {
            Next::Event(event) => event,
            Next::Missed(_) => return true,
        };
        match event.line() {
            EventLine::Record { session, record, .. } => {
                self.sessions.insert(session);
                // The record contains the answer or its failure, so the parts are obsolete.
                if matches!(record.kind(), "turn_answered" | "attempt_discarded" | "run_ended" | "turn_started") {
                    self.partials.remove(&session);
                }
            }
            EventLine::Delta { session, turn, attempt, kind, offset, text, .. } => {
                let partial = self.partials.entry(session).or_default();
                if partial.at != (turn, attempt) {
                    *partial = Partial { at: (turn, attempt), ..Partial::default() };
                }
                partial.add(kind, offset, text);
            }
            EventLine::Progress { .. } | EventLine::Queue { .. } | EventLine::Missed { .. } => {}
        }
        false
    }
}

impl Partial {
    fn add(&mut self, kind: DeltaKind, offset: u64, text: &str) {
        match kind {
            DeltaKind::Text => {
                // A delta with offset 0 contains the text so far.
                if offset == 0 {
                    self.text.clear();
                }
                if self.text.len() < MAX_TEXT_BYTES {
                    self.text.push_str(text);
                }
            }
            DeltaKind::Call => self.calls.push(text.to_owned()),
            DeltaKind::Reasoning => {}
        }
    }
}
