//! Sessions: found by words, state and workspace.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{Html, Response};
use serde::Deserialize;
use subtend_actors::Runtime;
use subtend_journal::ReadError;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::index::Head;
use subtend_session::place::BranchKind;
use subtend_session::record::Record;
use subtend_session::state::Phase;

use super::live::{self, Changes, Fragment, Swap};
use super::words::{self, State as Shown};
use super::{Frame, Refusal, fragment, html};
use crate::host::Host;
use crate::problem::Problem;

/// Rows of a page.
const PAGE: usize = 50;

/// What is listed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filter {
    q: String,
    /// `busy`, `quiet`, or nothing.
    state: String,
    workspace: String,
    /// Also children that trees show.
    all: Option<String>,
    page: usize,
}

impl Filter {
    fn shows(&self, id: SessionId, head: &Head) -> bool {
        let own = head.parent.is_none() || head.kind == Some(BranchKind::Human) || head.inspectable;
        let busy = head.state != Phase::Quiet;
        let q = self.q.trim().to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&q);
        !head.deleted
            && (own || self.all.is_some())
            && match &*self.state {
                "busy" => busy,
                "quiet" => !busy,
                _ => true,
            }
            && (q.is_empty() || has(&head.title) || has(&head.agent) || id.to_string().starts_with(&q))
    }

    /// The query of another page, and of the stream.
    fn query(&self, page: usize) -> String {
        let encoded = |text: &str| askama::filters::urlencode(text).map(|text| text.to_string()).unwrap_or_default();
        let all = if self.all.is_some() { "&all=on" } else { "" };
        let (q, state, workspace) = (encoded(&self.q), encoded(&self.state), encoded(&self.workspace));
        format!("q={q}&state={state}&workspace={workspace}{all}&page={page}")
    }
}

/// A session of the list.
struct Row {
    id: SessionId,
    short: String,
    agent: String,
    title: String,
    state: Shown,
    workspace: String,
    updated: String,
}

/// The list.
#[derive(Template)]
#[template(path = "sessions_list.html")]
struct List {
    rows: Vec<Row>,
    before: Option<String>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct Page {
    frame: Frame,
    filter: Filter,
    workspaces: BTreeSet<String>,
    agents: Vec<String>,
    stream: String,
    list: String,
}

/// Where a session works, by its first record.
fn workspace(runtime: &Runtime, id: SessionId) -> Option<String> {
    // A session that cannot be read is listed all the same.
    let births = runtime.journal().records_from(id, Seq(1), 1).ok()?;
    births.into_iter().find_map(|stored| {
        let Record::SessionCreated(created) = stored.record else { return None };
        Some(created.workspace.to_string())
    })
}

impl List {
    fn read(runtime: &Runtime, filter: &Filter) -> Result<Self, ReadError> {
        let heads = runtime.journal().heads()?;
        let mut heads: Vec<_> = heads.into_iter().filter(|(id, head)| filter.shows(*id, head)).collect();
        heads.sort_by_key(|(id, head)| Reverse((head.created_ms, *id)));
        let row = |(id, head): (SessionId, Head)| Row {
            id,
            short: head.short.to_string(),
            agent: head.agent.to_string(),
            title: words::clip(&head.title, 100),
            state: Shown::of(head.state, head.last_outcome),
            workspace: workspace(runtime, id).unwrap_or_default(),
            updated: words::moment(head.updated_ms),
        };
        let rows = heads.into_iter().map(row);
        let mut rows = rows.filter(|row| filter.workspace.is_empty() || filter.workspace == row.workspace);
        let from = filter.page.saturating_mul(PAGE);
        let shown: Vec<_> = rows.by_ref().skip(from).take(PAGE).collect();
        Ok(Self {
            rows: shown,
            before: filter.page.checked_sub(1).map(|page| filter.query(page)),
            next: rows.next().map(|_| filter.query(filter.page.saturating_add(1))),
        })
    }
}

/// Lists sessions, newest first.
pub(super) async fn page(State(host): State<Host>, Query(filter): Query<Filter>) -> Result<Html<String>, Refusal> {
    let runtime = host.runtime();
    let list = List::read(runtime, &filter)?;
    let roots = runtime.journal().heads()?.into_iter().filter(|(_, head)| head.parent.is_none());
    let workspaces = roots.filter_map(|(id, _)| workspace(runtime, id)).collect();
    let agents = runtime.catalog().all().filter(|agent| agent.pickable()).map(|agent| agent.name.to_string());
    html(&Page {
        frame: Frame::new(&host, "Sessions", "sessions").await,
        workspaces,
        agents: agents.collect(),
        stream: format!("/live/sessions?{}", filter.query(filter.page)),
        list: fragment(&list),
        filter,
    })
}

/// The list, whenever a session changes.
struct Live(Filter);

impl live::View for Live {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        let list = List::read(host.runtime(), &self.0)?;
        Ok(vec![Fragment::new("list", fragment(&list), Swap::Inner)])
    }
}

/// Follows the list.
pub(super) async fn live(State(host): State<Host>, Query(filter): Query<Filter>) -> Response {
    live::follow(&host, None, Live(filter))
}
