//! The view of tokens and cost over time, by agent, by model and by session.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use askama::Template;
use axum::extract::State;
use axum::response::Html;
use subtend_actors::history;
use subtend_journal::{Journal, ReadError};
use subtend_session::ids::{SessionId, Text};
use subtend_session::index::Head;
use subtend_session::record::Record;
use subtend_session::usage::Usage;

use super::extract::PathPart;
use super::words;
use super::{PageFrame, Refusal, html};
use crate::host::Host;

const BARS: usize = 48;
/// Height of the highest bar.
const HEIGHT: u64 = 120;
const MAX_ROWS: usize = 30;
/// Maximum number of records that a view reads, beginning with the sessions that changed last.
const MAX_RECORDS: usize = 200_000;

/// The usage of model calls, with times and totals.
#[derive(Debug, Default)]
struct UsageTally {
    calls: Vec<(i64, Usage)>,
    agents: BTreeMap<String, Usage>,
    models: BTreeMap<String, Usage>,
    sessions: BTreeMap<SessionId, (String, Usage)>,
    whole: Usage,
    /// Number of sessions that the bound left out, fully or partly.
    left_out: usize,
}

impl UsageTally {
    /// Adds the calls of at most `most` records of a session. Returns the number of records, and whether there are more.
    fn add(
        &mut self,
        journal: &Journal,
        (id, head): (SessionId, &Head),
        most: usize,
    ) -> Result<(usize, bool), ReadError> {
        let name = format!("{} {}", head.agent, head.short);
        let (mut agent, mut model) = (head.agent.clone(), Text::default());
        history::each_of_first(journal, id, most, |stored| {
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
            let Some(usage) = usage else { return };
            self.calls.push((stored.at_ms, usage));
            self.agents.entry(agent.to_string()).or_default().add(&usage);
            self.models.entry(words::line(&model)).or_default().add(&usage);
            self.sessions.entry(id).or_insert_with(|| (name.clone(), Usage::default())).1.add(&usage);
            self.whole.add(&usage);
        })
    }

    /// Reads a session and its descendants, or all sessions, until `budget` records are read.
    fn read(host: &Host, top: Option<SessionId>, mut budget: usize) -> Result<Self, ReadError> {
        let journal = host.runtime().journal();
        let mut heads = match top {
            None => journal.heads()?,
            Some(top) => {
                let (mut known, mut found, mut next) = (HashSet::new(), Vec::new(), vec![top]);
                while let Some(id) = next.pop() {
                    if known.insert(id) {
                        found.extend(journal.head(id)?.map(|head| (id, head)));
                        next.extend(journal.children(id)?);
                    }
                }
                found
            }
        };
        heads.retain(|(_, head)| !head.deleted);
        heads.sort_by_key(|(id, head)| Reverse((head.updated_ms, *id)));
        let mut tally = Self::default();
        for (id, head) in heads {
            if budget == 0 {
                tally.left_out += 1;
                continue;
            }
            // Unreadable sessions are included as far as they can be read, so the totals are lower bounds.
            match tally.add(journal, (id, &head), budget) {
                Ok((count, has_more)) => {
                    tally.left_out += usize::from(has_more);
                    budget = budget.saturating_sub(count);
                }
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
            let start = words::utc_text(from.saturating_add(i64::try_from(whole * nth / BARS as u64).unwrap_or(0)));
            Bar {
                x: nth * 20 + 20,
                y: HEIGHT + 20 - height,
                height,
                title: format!("from {start}: {} tokens", words::tokens(sum)),
            }
        };
        let bars = (0_u64..).zip(sums).map(bar).collect();
        (bars, words::utc_text(from), words::utc_text(to))
    }
}

struct Bar {
    x: u64,
    y: u64,
    height: u64,
    title: String,
}

struct UsageRow {
    name: String,
    link: Option<SessionId>,
    input: String,
    output: String,
    cached: String,
    cost: String,
}

impl UsageRow {
    fn new(name: String, link: Option<SessionId>, usage: &Usage) -> Self {
        Self {
            name,
            link,
            input: words::tokens(usage.input),
            output: words::tokens(usage.output),
            cached: words::tokens(usage.cache_read),
            cost: usage.cost_micro.map(words::money).unwrap_or_default(),
        }
    }
}

struct Table {
    title: &'static str,
    rows: Vec<UsageRow>,
}

#[derive(Template)]
#[template(path = "usage.html")]
struct UsagePage {
    frame: PageFrame,
    id: Option<SessionId>,
    whole: String,
    left_out: usize,
    bars: Vec<Bar>,
    from: String,
    to: String,
    tables: Vec<Table>,
}

fn rows(mut usages: Vec<(String, Option<SessionId>, Usage)>) -> Vec<UsageRow> {
    usages.sort_by_key(|(_, _, usage)| Reverse(usage.tokens()));
    usages.into_iter().take(MAX_ROWS).map(|(name, link, usage)| UsageRow::new(name, link, &usage)).collect()
}

async fn view(host: &Host, id: Option<SessionId>) -> Result<Html<String>, Refusal> {
    host.settled().await?;
    let tally = UsageTally::read(host, id, MAX_RECORDS)?;
    let (bars, from, to) = tally.bars();
    let by_name =
        |usages: BTreeMap<String, Usage>| rows(usages.into_iter().map(|(name, usage)| (name, None, usage)).collect());
    let sessions = tally.sessions.into_iter().map(|(id, (name, usage))| (name, Some(id), usage)).collect();
    let tables = vec![
        Table { title: "By agent", rows: by_name(tally.agents) },
        Table { title: "By model", rows: by_name(tally.models) },
        Table { title: "By session", rows: rows(sessions) },
    ];
    let frame = match id {
        Some(id) => PageFrame::of_view(host, id, "Usage", "usage").await,
        None => PageFrame::new(host, "Usage", "usage").await,
    };
    html(&UsagePage { frame, id, whole: words::usage(&tally.whole), left_out: tally.left_out, bars, from, to, tables })
}

pub(super) async fn all(State(host): State<Host>) -> Result<Html<String>, Refusal> {
    view(&host, None).await
}

pub(super) async fn page(State(host): State<Host>, PathPart(id): PathPart<String>) -> Result<Html<String>, Refusal> {
    let id = host.session(&id).await?.id();
    view(&host, Some(id)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use subtend_actors::{OpenOptions, Runtime};

    #[tokio::test]
    async fn usage_reads_no_more_records_than_its_bound() {
        let model = subtend_models::closure::fn_model("x", |_, _| async {
            Ok(subtend_models::model::Answer::of_text("Hello."))
        });
        let runtime = Runtime::builder().model(std::sync::Arc::new(model)).start().await.expect("a runtime");
        let host = Host::new(runtime, crate::HostOptions::default());
        for _ in 0..2 {
            let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
            let receipt = session.send("Good morning.").await.expect("accepted");
            session.run(receipt.run).ended().await.expect("an end");
        }
        let read = |budget| {
            let tally = UsageTally::read(&host, None, budget).expect("read");
            (tally.calls.len(), tally.left_out)
        };
        assert_eq!([read(1_000), read(1), read(0)], [(2, 0), (0, 2), (0, 2)]);
    }
}
