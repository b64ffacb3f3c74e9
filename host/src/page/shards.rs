//! Lists of the page that cover several shards. The host of each shard renders its part; the node that the browser asks
//! merges them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use axum::extract::State;
use axum::http::Uri;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};
use serde::Deserialize;
use subtend_session::values::parse_foreign;
use tokio::time::{Instant, sleep_until};

use super::approvals::{self, ApprovalsPart};
use super::extract::{PathPart, Query};
use super::live::{self, Changes, Fragment, Swap};
use super::sessions::{self, MAX_SUGGESTED, SessionsPart, SessionsQuery};
use super::{PageFrame, Refusal, escaped};
use crate::host::Host;
use crate::json::Json;
use crate::problem::Problem;

/// A shard and its part of a list, in JSON; `None` if the shard does not answer.
pub type PartUpdate = (String, Option<Vec<u8>>);

/// A list of the page that may cover several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageList {
    /// The sessions, with the form that opens one.
    Sessions,
    /// The calls that wait for an approval.
    Approvals,
}

/// A list of the page with the parts of its shards.
#[derive(Debug)]
pub struct ShardedPage {
    filter: SessionsQuery,
    /// All shards, of which one can be chosen.
    all: Vec<String>,
    parts: ListParts,
    /// Shards without an answer so far.
    awaited: BTreeSet<String>,
    /// Shards that do not answer.
    missing: BTreeSet<String>,
}

/// The last part of each shard.
#[derive(Debug)]
enum ListParts {
    Sessions(BTreeMap<String, SessionsPart>),
    Approvals(BTreeMap<String, ApprovalsPart>),
}

impl ShardedPage {
    /// Creates a list without parts for the query of `uri`. It covers `all` shards, or `only` one of them.
    ///
    /// # Errors
    /// [`Problem`] for an invalid query.
    pub fn new(list: PageList, uri: &Uri, all: Vec<String>, only: Option<String>) -> Result<Self, Problem> {
        let filter = axum::extract::Query::<SessionsQuery>::try_from_uri(uri);
        let axum::extract::Query(mut filter) = filter.map_err(|error| Problem::malformed(error.body_text()))?;
        let shards = only.as_ref().map_or(&*all, std::slice::from_ref);
        let awaited: BTreeSet<String> = shards.iter().cloned().collect();
        // Each shard costs as many reads, so all together suggest what one host would.
        let suggest = MAX_SUGGESTED.checked_div(awaited.len()).unwrap_or_default();
        let parts = match list {
            PageList::Sessions => ListParts::Sessions(BTreeMap::new()),
            PageList::Approvals => ListParts::Approvals(BTreeMap::new()),
        };
        (filter.shard, filter.suggest) = (only, suggest);
        let page = Self { filter, all, parts, awaited, missing: BTreeSet::new() };
        page.fragments()?;
        Ok(page)
    }

    /// Returns the shards that the list covers.
    pub fn shards(&self) -> Vec<String> {
        self.filter.shard.as_ref().map_or_else(|| self.all.clone(), |only| vec![only.clone()])
    }

    /// Returns the shards that do not answer.
    pub fn missing(&self) -> Vec<String> {
        self.missing.iter().cloned().collect()
    }

    /// Returns the path and query of the part of one shard.
    pub fn part_path(&self) -> String {
        self.path("", &format!("&suggest={}", self.filter.suggest))
    }

    /// Returns the path and query of the stream of that part.
    pub fn live_path(&self) -> String {
        self.path("/live", "")
    }

    fn path(&self, live: &str, suggest: &str) -> String {
        match &self.parts {
            ListParts::Sessions(_) => {
                let mut filter = self.filter.clone();
                filter.shard = None;
                format!("/parts/sessions{live}?{}{suggest}", filter.query())
            }
            ListParts::Approvals(_) => format!("/parts/approvals{live}"),
        }
    }

    /// Sets the part of a shard, in JSON. With `None`, or an invalid part, the shard is named as missing; its last part is
    /// still shown.
    pub fn set(&mut self, shard: &str, part: Option<&[u8]>) {
        self.awaited.remove(shard);
        let is_set = match (&mut self.parts, part) {
            (_, None) => false,
            (ListParts::Sessions(parts), Some(json)) => insert(parts, shard, json),
            (ListParts::Approvals(parts), Some(json)) => insert(parts, shard, json),
        };
        match is_set {
            true => self.missing.remove(shard),
            false => self.missing.insert(shard.to_owned()),
        };
    }

    fn note(&self) -> String {
        if self.missing.is_empty() {
            return String::new();
        }
        let names = escaped(&self.missing().join(", "));
        format!(
            "<p class=\"odd\">No answer from {names}: this list lacks their rows, or shows them as they were.</p>\n"
        )
    }

    fn fragments(&self) -> Result<Vec<Fragment>, Problem> {
        let mut fragments = match &self.parts {
            ListParts::Sessions(parts) => {
                let list = sessions::list(&self.filter, &parts.values().collect::<Vec<_>>())?;
                vec![Fragment::new("list", list, Swap::Inner)]
            }
            ListParts::Approvals(parts) => approvals::fragments(&parts.values().collect::<Vec<_>>()),
        };
        if let Some(list) = fragments.first_mut() {
            list.html.insert_str(0, &self.note());
        }
        Ok(fragments)
    }

    fn html(&self) -> Result<Html<String>, Refusal> {
        let list = self.fragments()?.into_iter().next().map(|list| list.html).unwrap_or_default();
        match &self.parts {
            ListParts::Sessions(parts) => {
                let frame = PageFrame::of_shards("Sessions", "sessions");
                sessions::page_of(frame, &self.filter, &self.all, &parts.values().collect::<Vec<_>>(), list)
            }
            ListParts::Approvals(parts) => {
                let frame = PageFrame::of_shards("Approvals", "approvals");
                approvals::page_of(frame, &self.filter.shard_query(), &parts.values().collect::<Vec<_>>(), list)
            }
        }
    }

    /// Returns the page with the parts that are set.
    pub fn page(&self) -> Response {
        self.html().into_response()
    }

    /// Sends the list as it changes, from when each shard has answered or is missing. `updates` are arguments for
    /// [`Self::set`].
    pub fn follow(self, updates: impl Stream<Item = PartUpdate> + Send + 'static) -> Response {
        let open = FollowedPage { page: self, updates: updates.boxed(), sent: BTreeMap::new() };
        let messages = stream::unfold(open, async |mut open| {
            let sent = open.next().await?;
            Some((Ok::<_, Infallible>(sent), open))
        });
        Sse::new(messages).keep_alive(KeepAlive::new()).into_response()
    }
}

fn insert<T: serde::de::DeserializeOwned>(parts: &mut BTreeMap<String, T>, shard: &str, json: &[u8]) -> bool {
    match parse_foreign(json) {
        Ok(part) => {
            parts.insert(shard.to_owned(), part);
            true
        }
        Err(error) => {
            tracing::warn!(shard, %error, "the part of a shard is invalid");
            false
        }
    }
}

struct FollowedPage {
    page: ShardedPage,
    updates: BoxStream<'static, PartUpdate>,
    /// Hashes of the fragments that the browser has.
    sent: BTreeMap<String, u64>,
}

impl FollowedPage {
    /// Returns the next message; `None` at the end of the updates.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            let (shard, part) = self.updates.next().await?;
            self.page.set(&shard, part.as_deref());
            let until = Instant::now() + live::COLLECT_TIME;
            while Instant::now() < until {
                tokio::select! {
                    biased;
                    Some((shard, part)) = self.updates.next() => self.page.set(&shard, part.as_deref()),
                    () = sleep_until(until) => break,
                }
            }
            // Until then, the browser has more than the shards that answered.
            if !self.page.awaited.is_empty() {
                continue;
            }
            // The query is valid since the list was created.
            let message = live::message(&mut self.sent, &self.page.fragments().ok()?);
            if !message.is_empty() {
                return Some(live::event(&message));
            }
        }
    }
}

/// Returns this host's part of a list.
pub(super) async fn part(
    State(host): State<Host>,
    PathPart(list): PathPart<PageList>,
    Query(filter): Query<SessionsQuery>,
) -> Result<Response, Refusal> {
    Ok(match list {
        PageList::Sessions => Json(SessionsPart::read(&host, &filter)?).into_response(),
        PageList::Approvals => Json(ApprovalsPart::read(&host, None).await?).into_response(),
    })
}

/// Sends this host's part of a list again whenever it changes.
struct LivePart(PageList, SessionsQuery);

impl live::LiveView for LivePart {
    async fn changed(&mut self, host: &Host, _: &Changes) -> Result<Vec<Fragment>, Problem> {
        let Self(list, filter) = self;
        let json = match list {
            PageList::Sessions => serde_json::to_string(&SessionsPart::read_rows(host.runtime(), filter)?),
            PageList::Approvals => {
                let mut part = ApprovalsPart::read(host, None).await?;
                // A part with the time would always differ.
                part.now_ms = 0;
                serde_json::to_string(&part)
            }
        };
        let json = json.map_err(|error| Problem::internal("internal", error.to_string()))?;
        Ok(vec![Fragment::new("part", json, Swap::Bare)])
    }
}

pub(super) async fn live(
    State(host): State<Host>,
    PathPart(list): PathPart<PageList>,
    Query(filter): Query<SessionsQuery>,
) -> Response {
    live::follow(&host, None, LivePart(list, filter))
}
