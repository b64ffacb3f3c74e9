//! The timeline of a tree: when each session called models and tools, and when it waited.

use std::collections::{BTreeMap, HashSet};

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use subtend_actors::{Runtime, history};
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{CallId, SessionId, Text};
use subtend_session::index::Head;
use subtend_session::record::{Carrier, Record};

use super::extract::PathPart;
use super::words;
use super::{PageFrame, Refusal, html, render_fragment};
use crate::host::Host;

/// Width of the chart, in SVG units.
const WIDTH: u64 = 1_000;
/// Height of the row of a session, in SVG units.
const ROW_HEIGHT: u64 = 26;
const MAX_SESSIONS: usize = 500;
const MAX_RECORDS: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BarKind {
    Wait,
    Model,
    /// The wait of a model call for a permit.
    Permit,
    Tool,
    Ask,
}

impl BarKind {
    fn class(self) -> &'static str {
        match self {
            Self::Wait => "waitbar",
            Self::Model => "model",
            Self::Permit => "permitbar",
            Self::Tool => "tool",
            Self::Ask => "askbar",
        }
    }
}

/// A span of time in which a session did one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    kind: BarKind,
    from: i64,
    to: Option<i64>,
    label: String,
}

/// Builds the spans of one session from its records.
#[derive(Debug, Default)]
struct Spans {
    done: Vec<Span>,
    run: Option<Span>,
    model: Option<Span>,
    calls: BTreeMap<CallId, Span>,
    asks: BTreeMap<CallId, Span>,
    tools: BTreeMap<CallId, Text>,
    /// Time at which an attempt was discarded, and the delay before the next attempt.
    retry: (i64, u64),
}

impl Spans {
    fn finish(self) -> Vec<Span> {
        let Self { mut done, run, model, calls, asks, .. } = self;
        done.extend(run.into_iter().chain(model).chain(calls.into_values()).chain(asks.into_values()));
        // Sorted so that work is drawn over waits.
        done.sort_by_key(|span| span.kind);
        done
    }

    fn end(&mut self, span: Option<Span>, at: i64) {
        self.done.extend(span.map(|span| Span { from: span.from.min(at), to: Some(at), ..span }));
    }

    /// Ends the model call. The first `queued_ms` become a separate span: the wait for a permit.
    fn end_model(&mut self, at: i64, queued_ms: u64) {
        let Some(call) = self.model.take() else { return };
        let called = call.from.saturating_add_unsigned(queued_ms).min(at);
        if queued_ms > 0 {
            let label = words::line(&format!("wait for a permit of {}", call.label));
            self.done.push(Span { kind: BarKind::Permit, from: call.from, to: Some(called), label });
        }
        self.end(Some(Span { from: called, ..call }), at);
    }

    fn end_call(&mut self, call: CallId, at: i64) {
        let (call, ask) = (self.calls.remove(&call), self.asks.remove(&call));
        self.end(call, at);
        self.end(ask, at);
    }

    fn add(&mut self, stored: &Stored) {
        let at = stored.at_ms;
        let span = |kind, label: String| Span { kind, from: at, to: None, label };
        match &stored.record {
            Record::RunOpened(opened) => self.run = Some(span(BarKind::Wait, format!("run {}", opened.run))),
            Record::TurnStarted { model, turn, .. } => {
                // The batch that discards an attempt also starts the next one, so both records have the same time.
                let delay = if self.retry.0 == at { self.retry.1 } else { 0 };
                let call = span(BarKind::Model, format!("{}, turn {turn}", words::line(model)));
                self.model = Some(Span { from: at.saturating_add_unsigned(delay), ..call });
            }
            Record::AttemptDiscarded(discarded) => {
                self.end_model(at, discarded.queued_ms);
                self.retry = (at, discarded.retry_delay_ms.unwrap_or(0));
            }
            Record::TurnAnswered(answered) => {
                self.end_model(at, answered.queued_ms);
                let calls = (0_u32..).zip(&answered.calls);
                self.tools = calls.map(|(ix, call)| (CallId { turn: answered.turn, ix }, call.tool.clone())).collect();
            }
            Record::CallStarted { call, kind, .. } if kind.is_local() => {
                let tool = self.tools.get(call).map(|tool| words::line(tool)).unwrap_or_default();
                self.calls.insert(*call, span(BarKind::Tool, tool));
            }
            Record::CallFinished(finished) => self.end_call(finished.call, at),
            Record::NoticeTaken(taken) => match taken.carrier {
                Carrier::Result => {
                    taken.items.iter().filter_map(|item| item.key).for_each(|key| self.end_call(key, at))
                }
                Carrier::Await { call } => self.end_call(call, at),
                Carrier::Message => {}
            },
            Record::AskOpened { call, action, resource, .. } => {
                let label = words::line(&format!("approval of {action} {resource}"));
                self.asks.insert(*call, span(BarKind::Ask, label));
            }
            Record::AskAnswered { call, .. } => {
                let ask = self.asks.remove(call);
                self.end(ask, at);
            }
            Record::RunEnded(_) => {
                let run = self.run.take();
                self.end(run, at);
                self.end_model(at, 0);
                for call in self.calls.keys().chain(self.asks.keys()).copied().collect::<Vec<_>>() {
                    self.end_call(call, at);
                }
            }
            Record::SessionCreated(_)
            | Record::RunStarted { .. }
            | Record::InputAccepted(_)
            | Record::InputsTaken { .. }
            | Record::QueueChanged { .. }
            | Record::CallStarted { .. }
            | Record::ChildSpawned(_)
            | Record::ContinueAsked(_)
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::RunParked { .. }
            | Record::RunResumed { .. }
            | Record::RunHeld { .. }
            | Record::BranchCreated(_)
            | Record::AlternativeSwitched { .. }
            | Record::TitleSet(_)
            | Record::SummarySet(_)
            | Record::MetadataSet(_)
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::CompactionFailed(_)
            | Record::CompactionUndone { .. }
            | Record::SessionDeleted { .. }
            | Record::SessionClosed { .. }
            | Record::SessionReopened { .. } => {}
        }
    }
}

struct Bar {
    class: &'static str,
    x: u64,
    y: u64,
    width: u64,
    title: String,
}

struct TimelineRow {
    name: String,
    title: String,
    y: u64,
    indent: u64,
    bars: Vec<Bar>,
}

struct Tick {
    x: u64,
    label: String,
}

#[derive(Template)]
#[template(path = "timeline.html")]
struct TimelinePage {
    frame: PageFrame,
    id: SessionId,
    chart: String,
}

/// The bars and the table. The browser reloads them every two seconds while a run is in flight.
#[derive(Template)]
#[template(path = "timeline_chart.html")]
struct TimelineChart {
    id: SessionId,
    open: bool,
    lines: Vec<TimelineRow>,
    ticks: Vec<Tick>,
    height: u64,
    duration: String,
    left_out: usize,
    truncated: usize,
    damaged: usize,
    table: Vec<KindTotal>,
}

/// The time of a session by kind, as text for screen readers.
struct KindTotal {
    id: SessionId,
    name: String,
    title: String,
    model: String,
    permit: String,
    tool: String,
    ask: String,
    duration: String,
}

/// Numbers of sessions that are not drawn, or not completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Omitted {
    left_out: usize,
    /// Number of sessions whose later records are not drawn.
    truncated: usize,
    /// Number of sessions that cannot be read.
    damaged: usize,
}

/// What the records of one session show.
#[derive(Debug, Default)]
struct DrawnSession {
    spans: Spans,
    records: usize,
    first_ms: Option<i64>,
    last_ms: Option<i64>,
    /// Its children in the order of creation.
    children: Vec<SessionId>,
}

impl DrawnSession {
    fn add(&mut self, stored: &Stored) {
        self.spans.add(stored);
        self.records = self.records.saturating_add(1);
        self.first_ms.get_or_insert(stored.at_ms);
        self.last_ms = Some(stored.at_ms);
        if let Record::ChildSpawned(spawned) = &stored.record {
            self.children.push(spawned.child);
        } else if let Record::BranchCreated(created) = &stored.record {
            self.children.push(created.child);
        }
    }
}

/// Calls `draw` with the level, the head and the records of a session and of its descendants, in the order of creation,
/// parents first. Only a page of records is in memory.
///
/// Only counts sessions beyond [`MAX_SESSIONS`], and those after `budget` records.
fn read_subtree(
    journal: &Journal,
    top: SessionId,
    mut budget: usize,
    mut draw: impl FnMut(SessionId, u64, Head, DrawnSession),
) -> Result<Omitted, ReadError> {
    let (mut omitted, mut drawn, mut known, mut next) = (Omitted::default(), 0, HashSet::new(), vec![(top, 0)]);
    while let Some((id, level)) = next.pop() {
        if !known.insert(id) {
            continue;
        }
        let head = journal.head(id)?.filter(|head| !head.deleted);
        let mut spawned = Vec::new();
        if drawn == MAX_SESSIONS || budget == 0 {
            omitted.left_out += usize::from(head.is_some());
        } else if let Some(head) = head {
            let mut session = DrawnSession::default();
            // A session is drawn as far as it can be read.
            match history::each_of_first(journal, id, budget, |stored| session.add(stored)) {
                Ok((_, has_more)) => omitted.truncated += usize::from(has_more),
                Err(_) => omitted.damaged += 1,
            }
            budget = budget.saturating_sub(session.records);
            spawned = std::mem::take(&mut session.children);
            drawn += 1;
            draw(id, level, head, session);
        }
        let others = journal.children(id)?.into_iter().filter(|child| !spawned.contains(child));
        let children: Vec<_> = spawned.iter().copied().chain(others).collect();
        next.extend(children.into_iter().rev().map(|child| (child, level + 1)));
    }
    Ok(omitted)
}

fn total_text(spans: &[Span], kind: BarKind, now: i64) -> String {
    let ms: i64 = spans
        .iter()
        .filter(|span| span.kind == kind)
        .map(|span| span.to.unwrap_or(now).saturating_sub(span.from).max(0))
        .sum();
    words::span(u64::try_from(ms).unwrap_or(0))
}

impl TimelineChart {
    fn read(runtime: &Runtime, id: SessionId) -> Result<Self, ReadError> {
        let journal = runtime.journal();
        let (mut from, mut now, mut read) = (i64::MAX, 0, Vec::new());
        let omitted = read_subtree(journal, id, MAX_RECORDS, |id, level, head, session| {
            from = from.min(session.first_ms.unwrap_or(head.created_ms));
            now = now.max(session.last_ms.unwrap_or(head.updated_ms));
            read.push((id, level, head, session.spans.finish()));
        })?;
        let Omitted { left_out, truncated, damaged } = omitted;
        let open = read.iter().any(|(.., spans)| spans.iter().any(|span| span.to.is_none()));
        if open {
            now = now.max(runtime.now_ms());
        }
        let duration = u64::try_from(now.saturating_sub(from)).unwrap_or(0).max(1);
        let x = |at: i64| {
            u64::try_from(at.saturating_sub(from)).unwrap_or(0).min(duration).saturating_mul(WIDTH) / duration
        };
        let mut lines = Vec::with_capacity(read.len());
        let mut table = Vec::with_capacity(read.len());
        for (nth, (id, level, head, spans)) in (0_u64..).zip(read) {
            let y = nth * ROW_HEIGHT + 24;
            let (name, title) = (format!("{} {}", head.agent, head.short), words::clip(&head.title, 80));
            table.push(KindTotal {
                id,
                name: name.clone(),
                title: title.clone(),
                model: total_text(&spans, BarKind::Model, now),
                permit: total_text(&spans, BarKind::Permit, now),
                tool: total_text(&spans, BarKind::Tool, now),
                ask: total_text(&spans, BarKind::Ask, now),
                duration: total_text(&spans, BarKind::Wait, now),
            });
            let bars = spans.into_iter().map(|span| bar(span, y, now, x)).collect();
            lines.push(TimelineRow { name, title, y, indent: level.min(8) * 10, bars });
        }
        let ticks = (0..=4).map(|nth| Tick { x: nth * WIDTH / 4, label: words::span(duration * nth / 4) }).collect();
        let height = lines.len() as u64 * ROW_HEIGHT + 28;
        Ok(Self {
            id,
            open,
            lines,
            ticks,
            height,
            duration: words::span(duration),
            left_out,
            truncated,
            damaged,
            table,
        })
    }
}

/// Returns the bar of a span in the row at `y`. `x` maps a time to a position.
fn bar(span: Span, y: u64, now: i64, x: impl Fn(i64) -> u64) -> Bar {
    let (start, end) = (x(span.from), x(span.to.unwrap_or(now)));
    let ms = span.to.unwrap_or(now).saturating_sub(span.from);
    let suffix = if span.to.is_none() { ", not ended" } else { "" };
    let title = format!("{}: {}{suffix}", span.label, words::span(u64::try_from(ms).unwrap_or(0)));
    Bar { class: span.kind.class(), x: start, y: y + 3, width: end.saturating_sub(start).max(2), title }
}

pub(super) async fn page(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    host.settled().await?;
    let chart = render_fragment(&TimelineChart::read(host.runtime(), id)?);
    html(&TimelinePage { frame: PageFrame::of_view(&host, id, "Timeline", "timeline").await, id, chart })
}

/// Draws the bars and the table again.
pub(super) async fn chart(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    Ok(Html(render_fragment(&TimelineChart::read(host.runtime(), id)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use subtend_actors::OpenOptions;

    /// Sessions beyond the bound are counted and not read.
    #[tokio::test]
    async fn timeline_reads_no_more_records_than_its_bound() {
        let model = subtend_models::closure::fn_model("x", |_, _| async {
            Ok(subtend_models::model::Answer::of_text("Hello."))
        });
        let runtime = Runtime::builder().model(std::sync::Arc::new(model)).start().await.expect("a runtime");
        let session = runtime.open(OpenOptions::agent("general")).expect("a session");
        let receipt = session.send("Good morning.").await.expect("accepted");
        session.run(receipt.run).ended().await.expect("an end");
        let journal = runtime.journal();
        let all = journal.records(session.id()).expect("records").len();
        let drawn = |budget| {
            let mut count = 0;
            let add = |_, _, _, session: DrawnSession| count += session.records;
            let omitted = read_subtree(journal, session.id(), budget, add).expect("read");
            (count, omitted.left_out, omitted.truncated)
        };
        assert_eq!([drawn(1_000), drawn(2), drawn(0)], [(all, 0, 0), (2, 0, 1), (0, 1, 0)]);
    }
}
