//! Tokens and money: over time, by agent, by model and by session.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::Html;
use subtend_journal::{ReadError, Stored};
use subtend_session::ids::{SessionId, Text};
use subtend_session::record::Record;
use subtend_session::usage::Usage;

use super::words;
use super::{Frame, Refusal, html};
use crate::host::Host;
use crate::problem::Problem;

/// Bars over time, and their height.
const BARS: usize = 48;
const HEIGHT: u64 = 120;
/// Rows of a table.
const ROWS: usize = 30;

/// Model calls with their times, summed up.
#[derive(Debug, Default)]
struct Tally {
    calls: Vec<(i64, Usage)>,
    agents: BTreeMap<String, Usage>,
    models: BTreeMap<String, Usage>,
    sessions: BTreeMap<SessionId, (String, Usage)>,
    whole: Usage,
}

impl Tally {
    fn add(&mut self, id: SessionId, name: &str, agent: &Text, records: &[Stored]) {
        let (mut agent, mut model) = (agent.clone(), Text::default());
        for stored in records {
            let usage = if let Record::SessionCreated(created) = &stored.record {
                agent = created.agent.clone();
                None
            } else if let Record::TurnStarted { model: called, .. } = &stored.record {
                model = called.clone();
                None
            } else if let Record::TurnAnswered(answered) = &stored.record {
                Some(answered.usage)
            } else if let Record::AttemptDiscarded(discarded) = &stored.record {
                discarded.usage
            } else {
                None
            };
            let Some(usage) = usage else { continue };
            self.calls.push((stored.at_ms, usage));
            self.agents.entry(agent.to_string()).or_default().add(&usage);
            self.models.entry(model.to_string()).or_default().add(&usage);
            self.sessions.entry(id).or_insert_with(|| (name.to_owned(), Usage::default())).1.add(&usage);
            self.whole.add(&usage);
        }
    }

    /// Reads the sessions below one, or all.
    fn read(host: &Host, top: Option<SessionId>) -> Result<Self, ReadError> {
        let journal = host.runtime().journal();
        let ids = match top {
            None => journal.heads()?.into_iter().filter(|(_, head)| !head.deleted).map(|(id, _)| id).collect(),
            Some(top) => {
                let (mut found, mut next) = (Vec::new(), vec![top]);
                while let Some(id) = next.pop() {
                    if !found.contains(&id) {
                        found.push(id);
                        next.extend(journal.kids(id)?);
                    }
                }
                found
            }
        };
        let mut tally = Self::default();
        for id in ids {
            let Some(head) = journal.head(id)?.filter(|head| !head.deleted) else { continue };
            // One that cannot be read makes the sums a part.
            match journal.records(id) {
                Ok(records) => tally.add(id, &format!("{} {}", head.agent, head.short), &head.agent, &records),
                Err(_) => tally.whole.unreliable = true,
            }
        }
        Ok(tally)
    }

    fn bars(&self) -> (Vec<Bar>, String, String) {
        let (from, to) = self.calls.iter().fold((i64::MAX, 0), |(from, to), (at, _)| (from.min(*at), to.max(*at)));
        if self.calls.is_empty() {
            return Default::default();
        }
        let whole = u64::try_from(to.saturating_sub(from)).unwrap_or(0).max(1);
        let mut sums = [0_u64; BARS];
        for (at, usage) in &self.calls {
            let offset = u64::try_from(at.saturating_sub(from)).unwrap_or(0);
            let bar = usize::try_from(offset.saturating_mul(BARS as u64) / (whole + 1)).unwrap_or(0);
            if let Some(sum) = sums.get_mut(bar) {
                *sum = sum.saturating_add(usage.tokens());
            }
        }
        let most = sums.iter().copied().max().unwrap_or(0).max(1);
        let bar = |(nth, sum): (u64, u64)| {
            let height = sum.saturating_mul(HEIGHT) / most;
            let height = if sum > 0 { height.max(2) } else { 0 };
            let begins = words::moment(from.saturating_add(i64::try_from(whole * nth / BARS as u64).unwrap_or(0)));
            Bar {
                x: nth * 20 + 20,
                y: HEIGHT + 20 - height,
                height,
                title: format!("from {begins}: {} tokens", words::tokens(sum)),
            }
        };
        let bars = (0_u64..).zip(sums).map(bar).collect();
        (bars, words::moment(from), words::moment(to))
    }
}

struct Bar {
    x: u64,
    y: u64,
    height: u64,
    title: String,
}

struct Row {
    name: String,
    link: Option<SessionId>,
    input: String,
    output: String,
    cached: String,
    cost: String,
}

impl Row {
    fn of(name: String, link: Option<SessionId>, of: &Usage) -> Self {
        Self {
            name,
            link,
            input: words::tokens(of.input),
            output: words::tokens(of.output),
            cached: words::tokens(of.cache_read),
            cost: of.cost_micro.map(words::money).unwrap_or_default(),
        }
    }
}

struct Table {
    title: &'static str,
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct Page {
    frame: Frame,
    id: Option<SessionId>,
    whole: String,
    bars: Vec<Bar>,
    from: String,
    to: String,
    tables: Vec<Table>,
}

/// Rows, the largest first.
fn rows(mut of: Vec<(String, Option<SessionId>, Usage)>) -> Vec<Row> {
    of.sort_by_key(|(_, _, usage)| std::cmp::Reverse(usage.tokens()));
    of.into_iter().take(ROWS).map(|(name, link, usage)| Row::of(name, link, &usage)).collect()
}

async fn view(host: &Host, id: Option<SessionId>, title: String) -> Result<Html<String>, Refusal> {
    host.settled().await?;
    let tally = Tally::read(host, id)?;
    let (bars, from, to) = tally.bars();
    let named = |of: BTreeMap<String, Usage>| rows(of.into_iter().map(|(name, usage)| (name, None, usage)).collect());
    let sessions = tally.sessions.into_iter().map(|(id, (name, usage))| (name, Some(id), usage)).collect();
    let tables = vec![
        Table { title: "By agent", rows: named(tally.agents) },
        Table { title: "By model", rows: named(tally.models) },
        Table { title: "By session", rows: rows(sessions) },
    ];
    let frame = match id {
        Some(_) => Frame::of_session(host, title, "usage").await,
        None => Frame::new(host, title, "usage").await,
    };
    html(&Page { frame, id, whole: words::usage(&tally.whole), bars, from, to, tables })
}

/// What all sessions used.
pub(super) async fn all(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    view(&host, None, "Usage".to_owned()).await
}

/// What a session and all below it used.
pub(super) async fn page(State(host): State<Host>, Path(id): Path<String>) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    let head = host.runtime().journal().head(id)?.ok_or_else(|| Problem::no_session(&id.to_string()))?;
    view(&host, Some(id), format!("Usage of {} {}", head.agent, head.short)).await
}
