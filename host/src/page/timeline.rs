//! When each session of a tree called models and tools, and when it waited: a slow fan-out is seen at a glance.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Html;
use subtend_actors::past::Past;
use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{CallId, SessionId};
use subtend_session::record::{Carrier, Record};

use super::words;
use super::{Frame, Refusal, html};
use crate::host::Host;
use crate::problem::Problem;

/// Width of the bars, and height of a session's line.
const WIDTH: u64 = 1_000;
const LINE: u64 = 26;
/// Sessions that are drawn.
const SESSIONS: usize = 500;

/// What a bar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Wait,
    Model,
    Tool,
    Ask,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Wait => "waitbar",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Ask => "askbar",
        }
    }
}

/// A span of time in which a session did one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    kind: Kind,
    from: i64,
    /// Absent while it lasts.
    to: Option<i64>,
    what: String,
}

/// The spans of one session, by its records.
#[derive(Debug, Default)]
struct Spans {
    done: Vec<Span>,
    run: Option<Span>,
    model: Option<Span>,
    calls: BTreeMap<CallId, Span>,
    asks: BTreeMap<CallId, Span>,
    tools: BTreeMap<CallId, String>,
}

impl Spans {
    fn of(records: &[Stored]) -> Vec<Span> {
        let mut spans = Self::default();
        records.iter().for_each(|stored| spans.add(stored));
        let Self { mut done, run, model, calls, asks, .. } = spans;
        done.extend(run.into_iter().chain(model).chain(calls.into_values()).chain(asks.into_values()));
        // Work is drawn over waits.
        done.sort_by_key(|span| span.kind);
        done
    }

    fn end(&mut self, span: Option<Span>, at: i64) {
        self.done.extend(span.map(|span| Span { to: Some(at), ..span }));
    }

    fn end_call(&mut self, call: CallId, at: i64) {
        let (call, ask) = (self.calls.remove(&call), self.asks.remove(&call));
        self.end(call, at);
        self.end(ask, at);
    }

    fn add(&mut self, stored: &Stored) {
        let at = stored.at_ms;
        let span = |kind, what: String| Span { kind, from: at, to: None, what };
        match &stored.record {
            Record::RunOpened(opened) => self.run = Some(span(Kind::Wait, format!("run {}", opened.run))),
            Record::TurnStarted { model, turn, .. } => {
                self.model = Some(span(Kind::Model, format!("{model}, turn {turn}")));
            }
            Record::AttemptDiscarded(_) => {
                let model = self.model.take();
                self.end(model, at);
            }
            Record::TurnAnswered(answered) => {
                let model = self.model.take();
                self.end(model, at);
                let calls = (0_u32..).zip(&answered.calls);
                self.tools =
                    calls.map(|(ix, call)| (CallId { turn: answered.turn, ix }, call.tool.to_string())).collect();
            }
            Record::CallStarted { call, kind, .. } if kind.is_local() => {
                let tool = self.tools.get(call).cloned().unwrap_or_default();
                self.calls.insert(*call, span(Kind::Tool, tool));
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
                let what = words::line(&format!("approval of {action} {resource}"));
                self.asks.insert(*call, span(Kind::Ask, what));
            }
            Record::AskAnswered { call, .. } => {
                let ask = self.asks.remove(call);
                self.end(ask, at);
            }
            Record::RunEnded(_) => {
                let (run, model) = (self.run.take(), self.model.take());
                self.end(run, at);
                self.end(model, at);
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

struct Line {
    name: String,
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
struct Page {
    frame: Frame,
    id: SessionId,
    lines: Vec<Line>,
    ticks: Vec<Tick>,
    height: u64,
    whole: String,
    left_out: usize,
    table: Vec<Total>,
}

/// What a session's time went to, for people who read no bars.
struct Total {
    id: SessionId,
    name: String,
    model: String,
    tool: String,
    ask: String,
    whole: String,
}

/// The sessions below one in the order of their births, parents before children, with their levels.
fn below(journal: &Journal, top: SessionId) -> Result<Vec<(SessionId, u64)>, ReadError> {
    let (mut found, mut next) = (Vec::new(), vec![(top, 0)]);
    while let Some((id, level)) = next.pop() {
        if found.iter().any(|(known, _)| *known == id) {
            continue;
        }
        found.push((id, level));
        let born = journal.records(id).map(|records| Past::of(&records).born).unwrap_or_default();
        let others = journal.kids(id)?.into_iter().filter(|kid| !born.contains(kid));
        let kids: Vec<_> = born.iter().copied().chain(others).collect();
        next.extend(kids.into_iter().rev().map(|kid| (kid, level + 1)));
    }
    Ok(found)
}

fn sum(spans: &[Span], kind: Kind, now: i64) -> String {
    let of = spans.iter().filter(|span| span.kind == kind);
    let ms: i64 = of.map(|span| span.to.unwrap_or(now).saturating_sub(span.from)).sum();
    words::span(u64::try_from(ms).unwrap_or(0))
}

/// Draws the tree below a session.
pub(super) async fn page(State(host): State<Host>, Path(id): Path<String>) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    host.settled().await?;
    let journal = host.runtime().journal();
    let head = journal.head(id)?.ok_or_else(|| Problem::no_session(&id.to_string()))?;
    let mut sessions = below(journal, id)?;
    let left_out = sessions.len().saturating_sub(SESSIONS);
    sessions.truncate(SESSIONS);
    let mut read = Vec::with_capacity(sessions.len());
    let (mut from, mut now) = (i64::MAX, 0);
    for (id, level) in sessions {
        let Some(head) = journal.head(id)?.filter(|head| !head.deleted) else { continue };
        let records = journal.records(id).unwrap_or_default();
        from = from.min(records.first().map_or(head.created_ms, |first| first.at_ms));
        now = now.max(records.last().map_or(head.updated_ms, |last| last.at_ms));
        read.push((id, level, format!("{} {}", head.agent, head.short), Spans::of(&records)));
    }
    let whole = u64::try_from(now.saturating_sub(from)).unwrap_or(0).max(1);
    let x = |at: i64| u64::try_from(at.saturating_sub(from)).unwrap_or(0).min(whole).saturating_mul(WIDTH) / whole;
    let mut lines = Vec::with_capacity(read.len());
    let mut table = Vec::with_capacity(read.len());
    for (nth, (id, level, name, spans)) in (0_u64..).zip(read) {
        let y = nth * LINE + 24;
        table.push(Total {
            id,
            name: name.clone(),
            model: sum(&spans, Kind::Model, now),
            tool: sum(&spans, Kind::Tool, now),
            ask: sum(&spans, Kind::Ask, now),
            whole: sum(&spans, Kind::Wait, now),
        });
        let bar = |span: Span| {
            let (start, end) = (x(span.from), x(span.to.unwrap_or(now)));
            let ms = span.to.unwrap_or(now).saturating_sub(span.from);
            let lasts = if span.to.is_none() { ", not over" } else { "" };
            let title = format!("{}: {}{lasts}", span.what, words::span(u64::try_from(ms).unwrap_or(0)));
            Bar { class: span.kind.class(), x: start, y: y + 3, width: end.saturating_sub(start).max(2), title }
        };
        let bars = spans.into_iter().map(bar).collect();
        lines.push(Line { name, y, indent: level.min(8) * 10, bars });
    }
    let ticks = (0..=4).map(|nth| Tick { x: nth * WIDTH / 4, label: words::span(whole * nth / 4) }).collect();
    let title = format!("Timeline of {} {}", head.agent, head.short);
    let height = lines.len() as u64 * LINE + 28;
    html(&Page {
        frame: Frame::of_session(&host, title, "timeline").await,
        id,
        lines,
        ticks,
        height,
        whole: words::span(whole),
        left_out,
        table,
    })
}
