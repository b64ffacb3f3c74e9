//! The list of sessions, with a search by text, state and workspace.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use askama::Template;
use axum::extract::State;
use axum::response::{Html, Response};
use serde::{Deserialize, Serialize};
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
use crate::api::sessions::parse_cursor;
use crate::host::Host;
use crate::problem::Problem;

const PAGE_SIZE: usize = 50;
/// Number of newest root sessions whose workspaces and models are suggested for a new session.
pub(super) const MAX_SUGGESTED: usize = 500;
/// Number of last records that are read of a waiting run. Only inputs follow the record that parks it.
const LAST_RECORDS: u16 = 64;

/// Position of a row: time of creation, and id. Newer rows are greater.
type ListKey = (i64, SessionId);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionsQuery {
    q: String,
    /// `busy`, `quiet`, or nothing.
    state: String,
    workspace: String,
    /// Present if children are listed too.
    all: Option<String>,
    /// Key of a row: the page has the next older rows.
    older: Option<String>,
    /// Key of a row: the page has the next newer rows.
    newer: Option<String>,
    /// Number of sessions whose workspaces and models a part suggests.
    pub(super) suggest: usize,
    /// The only shard that is listed. The gateway of nodes reads it from the address.
    #[serde(skip)]
    pub(super) shard: Option<String>,
}

/// Where a page of the list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListStart {
    Newest,
    Before(ListKey),
    After(ListKey),
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

    /// Returns where the page begins.
    ///
    /// # Errors
    /// [`Problem`] for a key that no page has.
    fn start(&self) -> Result<ListStart, Problem> {
        let key = |text: &str| {
            let bad = || Problem::malformed(format!("invalid position {text:?}: begin at the first page"));
            parse_cursor(text).ok_or_else(bad)
        };
        match (&self.older, &self.newer) {
            (Some(older), _) => key(older).map(ListStart::Before),
            (None, Some(newer)) => key(newer).map(ListStart::After),
            (None, None) => Ok(ListStart::Newest),
        }
    }

    /// Returns the query of this page.
    pub(super) fn query(&self) -> String {
        let position = match (&self.older, &self.newer) {
            (Some(older), _) => format!("&older={}", encoded(older)),
            (None, Some(newer)) => format!("&newer={}", encoded(newer)),
            (None, None) => String::new(),
        };
        self.filter_query() + &position
    }

    /// Returns the query of other resources that the only shard answers, with its question mark.
    pub(super) fn shard_query(&self) -> String {
        self.shard.as_ref().map_or_else(String::new, |shard| format!("?shard={}", encoded(shard)))
    }

    /// Returns the query of the first page.
    fn filter_query(&self) -> String {
        let all = if self.all.is_some() { "&all=on" } else { "" };
        let shard = self.shard.as_ref().map_or_else(String::new, |shard| format!("&shard={}", encoded(shard)));
        let (q, state, workspace) = (encoded(&self.q), encoded(&self.state), encoded(&self.workspace));
        format!("q={q}&state={state}&workspace={workspace}{all}{shard}")
    }
}

fn encoded(text: &str) -> String {
    askama::filters::urlencode(text).map(|text| text.to_string()).unwrap_or_default()
}

#[derive(Template)]
#[template(path = "session_row.html")]
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

/// A rendered row with its position.
#[derive(Debug, Serialize, Deserialize)]
struct ListedSession {
    created_ms: i64,
    id: SessionId,
    html: String,
}

impl ListedSession {
    fn key(&self) -> ListKey {
        (self.created_ms, self.id)
    }
}

/// A host's part of the page. With several shards, parts of different hosts are merged.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct SessionsPart {
    /// Newest first.
    rows: Vec<ListedSession>,
    /// True if the host has more rows in the direction of the page.
    more: bool,
    workspaces: BTreeSet<String>,
    models: BTreeSet<String>,
    agents: BTreeSet<String>,
    default_agent: String,
    now_ms: i64,
}

#[derive(Template)]
#[template(path = "sessions_list.html")]
struct SessionList<'a> {
    rows: Vec<&'a ListedSession>,
    /// The query of the previous page.
    before: Option<String>,
    /// The query of the next page.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage<'a> {
    frame: PageFrame,
    filter: &'a SessionsQuery,
    /// The shards of which one can be chosen.
    shards: &'a [String],
    workspaces: BTreeSet<&'a String>,
    models: BTreeSet<&'a String>,
    agents: BTreeSet<&'a String>,
    default_agent: &'a str,
    open: String,
    stream: String,
    list: String,
}

/// Returns the first record of a session, without bodies. `None` if it cannot be read; the session is still listed.
fn created(runtime: &Runtime, id: SessionId) -> Option<Box<SessionCreated>> {
    let first = runtime.journal().without_bodies().first_record(id).ok()?;
    let Record::SessionCreated(record) = first.record else { return None };
    Some(record)
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
fn suggestions(host: &Host, most: usize) -> Result<[BTreeSet<String>; 2], ReadError> {
    let runtime = host.runtime();
    let mut roots = runtime.journal().heads()?;
    roots.retain(|(_, head)| head.parent.is_none() && !head.deleted);
    roots.sort_by_key(|(id, head)| Reverse((head.created_ms, *id)));
    let records = roots.into_iter().take(most).filter_map(|(id, _)| created(runtime, id));
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

impl SessionsPart {
    /// Reads the rows of a page.
    pub(super) fn read_rows(runtime: &Runtime, filter: &SessionsQuery) -> Result<Self, Problem> {
        let start = filter.start()?;
        let is_within = |key: ListKey| match start {
            ListStart::Newest => true,
            ListStart::Before(end) => key < end,
            ListStart::After(end) => key > end,
        };
        let is_shown = |id: SessionId, head: &Head| filter.matches(id, head) && is_within((head.created_ms, id));
        let heads = runtime.journal().heads()?;
        let mut heads: Vec<_> = heads.into_iter().filter(|(id, head)| is_shown(*id, head)).collect();
        heads.sort_by_key(|(id, head)| Reverse((head.created_ms, *id)));
        let is_upward = matches!(start, ListStart::After(_));
        if is_upward {
            heads.reverse();
        }
        let row = |(id, head): (SessionId, Head)| {
            let workspace = workspace(runtime, id).unwrap_or_default();
            let is_shown = filter.workspace.is_empty() || filter.workspace == workspace;
            is_shown.then(|| ListedSession {
                created_ms: head.created_ms,
                id,
                html: render_fragment(&SessionRow {
                    id,
                    short: head.short.to_string(),
                    agent: head.agent.to_string(),
                    title: title_or_name(100, &head.title, &head.agent, &head.short),
                    state: StateLabel::of(head.state, head.last_outcome),
                    limited: limited(runtime, id, &head),
                    workspace,
                    updated: words::utc_text(head.updated_ms),
                }),
            })
        };
        let mut rows: Vec<_> = heads.into_iter().filter_map(row).take(PAGE_SIZE + 1).collect();
        let more = rows.len() > PAGE_SIZE;
        rows.truncate(PAGE_SIZE);
        if is_upward {
            rows.reverse();
        }
        Ok(Self { rows, more, ..Self::default() })
    }

    /// Reads the rows of a page, and what can be chosen for a new session.
    pub(super) fn read(host: &Host, filter: &SessionsQuery) -> Result<Self, Problem> {
        let runtime = host.runtime();
        let [workspaces, models] = suggestions(host, filter.suggest.min(MAX_SUGGESTED))?;
        Ok(Self {
            workspaces,
            models,
            agents: runtime.agents().iter().map(ToString::to_string).collect(),
            default_agent: host.options().open.agent.to_string(),
            now_ms: runtime.now_ms(),
            ..Self::read_rows(runtime, filter)?
        })
    }
}

impl<'a> SessionList<'a> {
    /// Merges the rows of all hosts. Each has the rows of its own that are nearest to the start of the page.
    fn merge(filter: &SessionsQuery, parts: &[&'a SessionsPart]) -> Result<Self, Problem> {
        let start = filter.start()?;
        let mut rows: Vec<&ListedSession> = parts.iter().flat_map(|part| &part.rows).collect();
        rows.sort_by_key(|row| Reverse(row.key()));
        let has_more = rows.len() > PAGE_SIZE || parts.iter().any(|part| part.more);
        let (edge, has_before, has_next) = match start {
            ListStart::Newest => (None, false, has_more),
            ListStart::Before(key) => (Some(key), true, has_more),
            ListStart::After(key) => (Some(key), has_more, true),
        };
        match start {
            ListStart::Newest | ListStart::Before(_) => rows.truncate(PAGE_SIZE),
            ListStart::After(_) => drop(rows.drain(..rows.len().saturating_sub(PAGE_SIZE))),
        }
        let link = |name: &str, row: Option<&&ListedSession>| {
            let (ms, id) = row.map(|row| row.key()).or(edge)?;
            Some(format!("{}&{name}={ms}.{id}", filter.filter_query()))
        };
        let before = has_before.then(|| link("newer", rows.first())).flatten();
        let next = has_next.then(|| link("older", rows.last())).flatten();
        Ok(Self { rows, before, next })
    }
}

/// Returns the list of a page that consists of these parts.
pub(super) fn list(filter: &SessionsQuery, parts: &[&SessionsPart]) -> Result<String, Problem> {
    Ok(render_fragment(&SessionList::merge(filter, parts)?))
}

/// Returns the page around a list.
pub(super) fn page_of(
    frame: PageFrame,
    filter: &SessionsQuery,
    shards: &[String],
    parts: &[&SessionsPart],
    list: String,
) -> Result<Html<String>, Refusal> {
    let now_ms = parts.iter().map(|part| part.now_ms).max().unwrap_or_default();
    html(&SessionsPage {
        frame: PageFrame { now_ms, ..frame },
        shards,
        workspaces: parts.iter().flat_map(|part| &part.workspaces).collect(),
        models: parts.iter().flat_map(|part| &part.models).collect(),
        agents: parts.iter().flat_map(|part| &part.agents).collect(),
        default_agent: parts.first().map_or("", |part| part.default_agent.as_str()),
        open: format!("/open{}", filter.shard_query()),
        stream: format!("/live/sessions?{}", filter.query()),
        list,
        filter,
    })
}

pub(super) async fn page(
    State(host): State<Host>,
    Query(filter): Query<SessionsQuery>,
) -> Result<Html<String>, Refusal> {
    let filter = SessionsQuery { suggest: MAX_SUGGESTED, ..filter };
    let part = SessionsPart::read(&host, &filter)?;
    let frame = PageFrame::new(&host, "Sessions", "sessions").await;
    page_of(frame, &filter, &[], &[&part], list(&filter, &[&part])?)
}

/// Sends the list again whenever a session changes.
struct LiveSessions(SessionsQuery);

impl live::LiveView for LiveSessions {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        let part = SessionsPart::read_rows(host.runtime(), &self.0)?;
        Ok(vec![Fragment::new("list", list(&self.0, &[&part])?, Swap::Inner)])
    }
}

pub(super) async fn live(State(host): State<Host>, Query(filter): Query<SessionsQuery>) -> Response {
    live::follow(&host, None, LiveSessions(filter))
}
