//! The list of sessions, with a search by text, state and workspace.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use askama::Template;
use axum::extract::State;
use axum::response::{Html, Response};
use serde::Deserialize;
use subtend_actors::Runtime;
use subtend_actors::history::History;
use subtend_journal::ReadError;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::index::Head;
use subtend_session::place::BranchKind;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::Phase;

use super::extract::Query;
use super::live::{self, Changes, Fragment, Swap};
use super::words::{self, StateLabel};
use super::{PageFrame, Refusal, html, render_fragment, title_or_name};
use crate::host::Host;
use crate::problem::Problem;

const PAGE_SIZE: usize = 50;
/// Number of newest root sessions whose workspaces and models are suggested for a new session.
const MAX_SUGGESTED: usize = 500;
/// Number of last records that are read of a waiting run. Only inputs follow the record that parks it.
const LAST_RECORDS: u16 = 64;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionsQuery {
    q: String,
    /// `busy`, `quiet`, or nothing.
    state: String,
    workspace: String,
    /// Present if children are listed too.
    all: Option<String>,
    page: usize,
}

impl SessionsQuery {
    fn matches(&self, id: SessionId, head: &Head) -> bool {
        let is_listed = head.parent.is_none() || head.kind == Some(BranchKind::Human) || head.inspectable;
        let busy = head.state != Phase::Quiet;
        let q = self.q.trim().to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&q);
        !head.deleted
            && (is_listed || self.all.is_some())
            && match &*self.state {
                "busy" => busy,
                "quiet" => !busy,
                _ => true,
            }
            && (q.is_empty() || has(&head.title) || has(&head.agent) || id.to_string().starts_with(&q))
    }

    fn query(&self, page: usize) -> String {
        let encoded = |text: &str| askama::filters::urlencode(text).map(|text| text.to_string()).unwrap_or_default();
        let all = if self.all.is_some() { "&all=on" } else { "" };
        let (q, state, workspace) = (encoded(&self.q), encoded(&self.state), encoded(&self.workspace));
        format!("q={q}&state={state}&workspace={workspace}{all}&page={page}")
    }
}

struct SessionRow {
    id: SessionId,
    short: String,
    agent: String,
    title: String,
    state: StateLabel,
    /// The text for a run that is parked at a provider's limit.
    limited: Option<String>,
    workspace: String,
    updated: String,
}

#[derive(Template)]
#[template(path = "sessions_list.html")]
struct SessionList {
    rows: Vec<SessionRow>,
    /// The query of the previous page.
    before: Option<String>,
    /// The query of the next page.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage {
    frame: PageFrame,
    filter: SessionsQuery,
    workspaces: BTreeSet<String>,
    models: BTreeSet<String>,
    agents: Vec<String>,
    default_agent: String,
    stream: String,
    list: String,
}

/// Returns the first record of a session. `None` if it cannot be read; the session is still listed.
fn created(runtime: &Runtime, id: SessionId) -> Option<Box<SessionCreated>> {
    let first = runtime.journal().records_from(id, Seq(1), 1).ok()?;
    first.into_iter().find_map(|stored| {
        let Record::SessionCreated(record) = stored.record else { return None };
        Some(record)
    })
}

fn workspace(runtime: &Runtime, id: SessionId) -> Option<String> {
    created(runtime, id).map(|record| record.workspace.to_string())
}

fn limited(runtime: &Runtime, id: SessionId, head: &Head) -> Option<String> {
    if head.state != Phase::WaitingMidTurn {
        return None;
    }
    let from = Seq(head.last_seq.0.saturating_sub(LAST_RECORDS.into()).saturating_add(1));
    let records = runtime.journal().records_from(id, from, LAST_RECORDS.into()).ok()?;
    History::of(&records).limited_until.map(words::limited)
}

/// Returns workspaces and models of the newest root sessions, as suggestions for a new session.
fn suggestions(host: &Host) -> Result<[BTreeSet<String>; 2], ReadError> {
    let runtime = host.runtime();
    let mut roots = runtime.journal().heads()?;
    roots.retain(|(_, head)| head.parent.is_none() && !head.deleted);
    roots.sort_by_key(|(id, head)| Reverse((head.created_ms, *id)));
    let records = roots.into_iter().take(MAX_SUGGESTED).filter_map(|(id, _)| created(runtime, id));
    let (workspaces, models): (BTreeSet<_>, BTreeSet<_>) =
        records.map(|record| (record.workspace.to_string(), record.model.to_string())).unzip();
    let options = host.options();
    Ok([
        workspaces.into_iter().chain(options.home.clone()).collect(),
        models
            .into_iter()
            .chain(options.open.model.as_deref().map(str::to_owned))
            .filter(|model| !is_script(model))
            .collect(),
    ])
}

/// Returns whether a model is a script for tests. A browser cannot choose one.
fn is_script(model: &str) -> bool {
    model.starts_with("scripted:")
}

impl SessionList {
    fn read(runtime: &Runtime, filter: &SessionsQuery) -> Result<Self, ReadError> {
        let heads = runtime.journal().heads()?;
        let mut heads: Vec<_> = heads.into_iter().filter(|(id, head)| filter.matches(*id, head)).collect();
        heads.sort_by_key(|(id, head)| Reverse((head.created_ms, *id)));
        let row = |(id, head): (SessionId, Head)| SessionRow {
            id,
            short: head.short.to_string(),
            agent: head.agent.to_string(),
            title: title_or_name(100, &head.title, &head.agent, &head.short),
            state: StateLabel::of(head.state, head.last_outcome),
            limited: limited(runtime, id, &head),
            workspace: workspace(runtime, id).unwrap_or_default(),
            updated: words::utc_text(head.updated_ms),
        };
        let rows = heads.into_iter().map(row);
        let mut rows = rows.filter(|row| filter.workspace.is_empty() || filter.workspace == row.workspace);
        let from = filter.page.saturating_mul(PAGE_SIZE);
        let shown: Vec<_> = rows.by_ref().skip(from).take(PAGE_SIZE).collect();
        Ok(Self {
            rows: shown,
            before: filter.page.checked_sub(1).map(|page| filter.query(page)),
            next: rows.next().map(|_| filter.query(filter.page.saturating_add(1))),
        })
    }
}

pub(super) async fn page(
    State(host): State<Host>,
    Query(filter): Query<SessionsQuery>,
) -> Result<Html<String>, Refusal> {
    let runtime = host.runtime();
    let list = SessionList::read(runtime, &filter)?;
    let [workspaces, models] = suggestions(&host)?;
    html(&SessionsPage {
        frame: PageFrame::new(&host, "Sessions", "sessions").await,
        workspaces,
        models,
        agents: runtime.agents().iter().map(ToString::to_string).collect(),
        default_agent: host.options().open.agent.to_string(),
        stream: format!("/live/sessions?{}", filter.query(filter.page)),
        list: render_fragment(&list),
        filter,
    })
}

/// Sends the list again whenever a session changes.
struct LiveSessions(SessionsQuery);

impl live::LiveView for LiveSessions {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        let list = SessionList::read(host.runtime(), &self.0)?;
        Ok(vec![Fragment::new("list", render_fragment(&list), Swap::Inner)])
    }
}

pub(super) async fn live(State(host): State<Host>, Query(filter): Query<SessionsQuery>) -> Response {
    live::follow(&host, None, LiveSessions(filter))
}
