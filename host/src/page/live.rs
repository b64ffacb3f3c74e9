//! Streams of changed fragments of a view, which the browser swaps in.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use subtend_actors::event::{DeltaKind, EventLine};
use subtend_actors::{Next, Subscription};
use subtend_session::ids::{AttemptNo, SessionId, TurnNo};
use tokio::time::{Instant, sleep_until};

use super::words;
use crate::host::Host;
use crate::metrics::Streaming;
use crate::problem::Problem;

/// Time for which changes are collected before they are sent.
pub(super) const COLLECT_TIME: Duration = Duration::from_millis(80);
/// Maximum size in bytes of the shown part of an answer in progress.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum number of shown calls of an answer in progress, and of characters of their names.
const MAX_CALLS: usize = 256;

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
    /// The answer in progress of the session that the view shows.
    pub(super) partial: Option<Partial>,
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

    /// Returns the session whose answer in progress is shown. Those of others are not kept.
    fn shown(&self) -> Option<SessionId> {
        None
    }

    /// Returns the id of the sent state. A browser repeats it when it reconnects.
    fn id(&self) -> Option<String> {
        None
    }
}

/// Streams a view. It is rendered only as the connection accepts messages: a slow browser delays its own view.
pub(super) fn follow(host: &Host, root: Option<SessionId>, view: impl LiveView) -> Response {
    let open = FollowedView {
        // Subscribe before reading the view, so that no event is missed.
        events: host.runtime().subscribe(root),
        root,
        view: Some(view),
        changes: Changes { all: true, ..Changes::default() },
        sent: BTreeMap::new(),
        host: host.for_stream(),
        _counted: host.metrics().count_stream(),
    };
    let messages = stream::unfold(Box::new(open), async |mut open| {
        let ends = open.host.ends().clone();
        let sent = tokio::select! {
            sent = open.next() => sent?,
            () = ends.cancelled() => return None,
        };
        Some((Ok::<_, Infallible>(sent), open))
    });
    Sse::new(messages).keep_alive(KeepAlive::new().interval(host.options().heartbeat)).into_response()
}

struct FollowedView<V> {
    host: Host,
    root: Option<SessionId>,
    events: Subscription,
    /// `None` while it is read.
    view: Option<V>,
    changes: Changes,
    /// Hashes of the fragments that the browser has.
    sent: BTreeMap<String, u64>,
    _counted: Streaming,
}

impl<V: LiveView> FollowedView<V> {
    /// Returns the next message; `None` at the end.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            if !self.changes.all {
                self.collect().await?;
            }
            let message = self.read().await?;
            if !message.is_empty() {
                let sent = event(&message);
                return Some(match self.view.as_ref()?.id() {
                    Some(id) => sent.id(id),
                    None => sent,
                });
            }
        }
    }

    /// Returns the changed fragments as a message, which may be empty; `None` if they cannot be read.
    async fn read(&mut self) -> Option<String> {
        let mut view = self.view.take()?;
        let (mut changes, mut sent) = (std::mem::take(&mut self.changes), std::mem::take(&mut self.sent));
        let host = self.host.clone();
        let read = async move {
            let fragments = view.changed(&host, &changes).await;
            (changes.all, changes.sessions) = (false, BTreeSet::new());
            (fragments.map(|fragments| message(&mut sent, &fragments)), view, changes, sent)
        };
        let (message, view, changes, sent) = self.host.read_view(read).await;
        (self.view, self.changes, self.sent) = (Some(view), changes, sent);
        message.inspect_err(|problem| tracing::warn!(detail = problem.detail, "a view cannot be followed")).ok()
    }

    /// Waits for an event, and collects those that soon follow.
    async fn collect(&mut self) -> Option<()> {
        let shown = self.view.as_ref()?.shown();
        let mut missed = self.changes.add(self.events.next().await?, shown);
        let until = Instant::now() + COLLECT_TIME;
        while Instant::now() < until {
            let next = tokio::select! {
                biased;
                next = self.events.next() => next,
                () = sleep_until(until) => break,
            };
            let Some(next) = next else { break };
            missed |= self.changes.add(next, shown);
        }
        if missed {
            // Subscribe again to receive the text of the answer in progress from its start.
            self.events = self.host.runtime().subscribe(self.root);
            self.changes = Changes { all: true, ..Changes::default() };
        }
        Some(())
    }
}

/// Returns the event of a message.
pub(super) fn event(message: &str) -> Sent {
    Sent::default().data(message.replace('\r', "&#13;"))
}

pub(super) fn hash(html: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    html.hash(&mut hasher);
    hasher.finish()
}

/// Returns one message with the fragments that differ from those sent before.
pub(super) fn message(known: &mut BTreeMap<String, u64>, fragments: &[Fragment]) -> String {
    let mut message = String::new();
    for fragment in fragments {
        let hash = hash(&fragment.html);
        let key = if fragment.swap == Swap::Append { format!("{}+{hash}", fragment.id) } else { fragment.id.clone() };
        if known.insert(key, hash) != Some(hash) {
            fragment.write(&mut message);
        }
    }
    message
}

impl Changes {
    /// Adds an event, and returns whether events were missed.
    fn add(&mut self, next: Next, shown: Option<SessionId>) -> bool {
        let event = match next {
            Next::Event(event) => event,
            Next::Missed(_) => return true,
        };
        match event.line() {
            EventLine::Record { session, record, .. } => {
                self.sessions.insert(session);
                // The record contains the answer or its failure, so the parts are obsolete.
                if Some(session) == shown
                    && matches!(record.kind(), "turn_answered" | "attempt_discarded" | "run_ended" | "turn_started")
                {
                    self.partial = None;
                }
            }
            EventLine::Delta { session, turn, attempt, kind, offset, text, .. } if Some(session) == shown => {
                let partial = self.partial.get_or_insert_default();
                if partial.at != (turn, attempt) {
                    *partial = Partial { at: (turn, attempt), ..Partial::default() };
                }
                partial.add(kind, offset, text);
            }
            EventLine::Delta { .. }
            | EventLine::Progress { .. }
            | EventLine::Queue { .. }
            | EventLine::Missed { .. } => {}
        }
        false
    }
}

impl Partial {
    fn add(&mut self, kind: DeltaKind, offset: u64, text: &str) {
        match kind {
            DeltaKind::Text => {
                // A delta with offset 0 starts the text so far.
                if offset == 0 {
                    self.text.clear();
                }
                let room = MAX_TEXT_BYTES.saturating_sub(self.text.len());
                self.text.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
            }
            DeltaKind::Call if self.calls.len() < MAX_CALLS => self.calls.push(words::clip(text, MAX_CALLS)),
            DeltaKind::Call | DeltaKind::Reasoning => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use subtend_actors::{Event, EventKind, Runtime};
    use subtend_models::model::Delta;
    use subtend_session::ids::RunNo;
    use uuid::Uuid;

    use super::*;

    fn piece(session: SessionId, offset: u64, text: &str) -> Next {
        let delta = Delta::Text(text.into());
        let what = EventKind::Delta { run: RunNo(1), turn: TurnNo(1), attempt: AttemptNo(1), offset, delta };
        Next::Event(Event { root: session, session, what })
    }

    fn text_after(shown: Option<SessionId>, pieces: impl IntoIterator<Item = Next>) -> Option<usize> {
        let mut changes = Changes::default();
        for piece in pieces {
            assert!(!changes.add(piece, shown));
        }
        changes.partial.map(|partial| partial.text.len())
    }

    /// The control: the answer of the shown session is kept, up to a limit also of one piece.
    #[test]
    fn view_keeps_only_the_answer_that_it_shows() {
        let [shown, other] = [7, 8].map(|id| SessionId(Uuid::from_u128(id)));
        let both = || [piece(other, 0, &"x".repeat(1 << 20)), piece(shown, 0, "short")];
        assert_eq!([Some(shown), None].map(|of| text_after(of, both())), [Some(5), None]);
        let large = [piece(shown, 0, "x"), piece(shown, 1, &"x".repeat(9 << 20)), piece(shown, 9 << 20, "x")];
        assert_eq!(text_after(Some(shown), large), Some(MAX_TEXT_BYTES));
    }

    struct ThreadName;

    impl LiveView for ThreadName {
        async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
            host.settled().await?;
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            Ok(vec![Fragment::new("thread", name, Swap::Bare)])
        }
    }

    /// Attack: many views leave the memory of their reads in many threads of the runtime.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn live_view_is_read_by_threads_of_streams() {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(Arc::new(model)).start().await.expect("a runtime");
        let host = Host::new(runtime, crate::HostOptions::default());
        let mut body = follow(&host, None, ThreadName).into_body();
        let message = body.frame().await.expect("a message").expect("no error").into_data().expect("data");
        assert_eq!(&*message, b"data: subtend-reads\n\n");
    }
}
