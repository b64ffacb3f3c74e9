//! Determines the target of a request from its method and address.

use axum::http::{HeaderMap, HeaderValue, Method, Uri, header, request};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use subtend_host::PageList;
use subtend_host::api::MAX_NAME_BYTES;
use subtend_session::ids::SessionId;
use uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestTarget {
    /// A session, by its name in the path.
    Session(String),
    /// A new session. `"session"` or `"task"` says what the request creates.
    New(&'static str),
    /// All shards, with one merged answer.
    Merged(Merge),
    /// A view of the page that covers all shards.
    Page(SharedView),
    /// All shards, each of which carries out the request.
    AllShards,
    /// Any shard.
    AnyShard,
    /// Any open shard of this node, not forwarded: workers belong to the node that they connect to.
    ThisNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    Sessions,
    Approvals,
    Tasks,
    Events,
    Metrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedView {
    List(PageList),
    /// The stream of a list.
    Live(PageList),
    /// The number of calls that wait for an approval.
    Asks,
}

impl RequestTarget {
    pub(super) fn of(parts: &request::Parts) -> Self {
        let segments: Vec<&str> = parts.uri.path().split('/').skip(1).collect();
        let get = parts.method == Method::GET || parts.method == Method::HEAD;
        match *segments {
            // The answer to a HEAD request has no body to merge.
            _ if parts.method == Method::HEAD && segments.len() <= 2 => Self::AnyShard,
            ["v1", "sessions"] if get => Self::Merged(Merge::Sessions),
            ["v1", "sessions"] => Self::New("session"),
            ["v1", "tasks", "spawn"] => Self::New("task"),
            ["v1", "tasks", "list"] => Self::Merged(Merge::Tasks),
            ["v1", "approvals"] => Self::Merged(Merge::Approvals),
            ["v1", "events"] => Self::Merged(Merge::Events),
            ["metrics"] => Self::Merged(Merge::Metrics),
            [""] if get => Self::Page(SharedView::List(PageList::Sessions)),
            ["approvals"] if get => Self::Page(SharedView::List(PageList::Approvals)),
            ["live", "sessions"] if get => Self::Page(SharedView::Live(PageList::Sessions)),
            ["live", "approvals"] if get => Self::Page(SharedView::Live(PageList::Approvals)),
            ["asks"] if get => Self::Page(SharedView::Asks),
            ["open"] if !get => Self::New("session"),
            // Calls of a worker are leased by the node that the worker connects to.
            ["v1", "workers", ..] => Self::ThisNode,
            // Every host has its own registry of agents.
            ["v1", "agents", ..] if !get => Self::AllShards,
            ["v1", "tasks", _, id] | ["v1", "sessions" | "trees" | "approvals", id, ..] | ["s", id, ..] => {
                Self::Session(decode(id))
            }
            _ => Self::AnyShard,
        }
    }

    /// Returns the target of a request with this body. A request about tasks of a parent session goes to that session.
    pub(super) fn with_body(self, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct TaskBody {
            parent_session_id: Option<String>,
        }
        if self != Self::New("task") && self != Self::Merged(Merge::Tasks) {
            return self;
        }
        // The host rejects malformed bodies, and names that are too long.
        let parent = serde_json::from_slice::<TaskBody>(body).ok().and_then(|task| task.parent_session_id);
        parent.filter(|name| name.len() <= MAX_NAME_BYTES).map_or(self, Self::Session)
    }
}

/// Parameters that the gateway removes from the query, and the remaining address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteQuery {
    pub(super) shard: Option<String>,
    /// The label of the shard of a new session.
    pub(super) label: Option<String>,
    /// True if a list or stream may leave out shards that do not answer now.
    pub(super) partial: bool,
    pub(super) rest: Uri,
}

impl RouteQuery {
    pub(super) fn of(parts: &request::Parts) -> Self {
        let uri = &parts.uri;
        let mut wanted = Self { rest: uri.clone(), ..Self::default() };
        let Some(query) = uri.query() else { return wanted };
        let target = RequestTarget::of(parts);
        let labelled = matches!(target, RequestTarget::New(_));
        let listed =
            matches!(target, RequestTarget::Merged(Merge::Sessions | Merge::Approvals | Merge::Tasks | Merge::Events));
        let mut rest = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                // A form sends the field also if no shard is chosen.
                Some(("shard", "")) if matches!(target, RequestTarget::Page(_)) => {}
                Some(("shard", shard)) => wanted.shard = Some(decode(shard)),
                Some(("label", label)) if labelled => wanted.label = Some(decode(label)),
                Some(("partial", "true")) if listed => wanted.partial = true,
                _ => rest.push(pair),
            }
        }
        let path = if rest.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), rest.join("&")) };
        wanted.rest = path.parse().unwrap_or_else(|_| uri.clone());
        wanted
    }
}

/// Adds the parameter with the shard that answers.
pub(super) fn with_shard(uri: &Uri, shard: &str) -> Uri {
    let query = uri.query().map_or_else(String::new, |query| format!("{query}&"));
    format!("{}?{query}shard={shard}", uri.path()).parse().unwrap_or_else(|_| uri.clone())
}

/// Name of the cookie with the shard that a browser chose last.
const COOKIE: &str = "subtend_shard";

/// Returns the shard that a browser chose last.
pub(super) fn chosen_shard(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, shard)| shard.to_owned())
}

/// Returns the cookie that makes a browser stay with the shard that it chose last, in views that show one shard.
pub(super) fn cookie(parts: &request::Parts, shard: &str) -> Option<HeaderValue> {
    let is_view = parts.method == Method::GET && is_page(parts.uri.path());
    let cookie = || HeaderValue::try_from(format!("{COOKIE}={shard}; HttpOnly; SameSite=Strict; Path=/")).ok();
    is_view.then(cookie).flatten()
}

/// Returns whether a path belongs to the page, not to the API.
fn is_page(path: &str) -> bool {
    !path.starts_with("/v1/") && path != "/metrics"
}

/// Returns whether the answer may take as long as the client likes: a stream, an export, or a wait for a run.
pub(super) fn is_long(uri: &Uri) -> bool {
    let streams = uri.path().split('/').skip(1).any(|segment| ["events", "live", "export"].contains(&segment));
    streams || uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "wait=true"))
}

/// Parses a session's id or a task's id. Returns `None` for other names.
pub(super) fn id_of(name: &str) -> Option<SessionId> {
    let id = name.strip_prefix("task_").unwrap_or(name);
    // Shorter names can be the start of an id, which only a shard can resolve.
    (id.len() == 36 || (id.len() == 32 && name.len() > 32)).then(|| Uuid::parse_str(id).ok().map(SessionId))?
}

/// Decodes a part of a path or query. Malformed escapes stay unchanged.
pub(super) fn decode(part: &str) -> String {
    percent_decode_str(part).decode_utf8().map_or_else(|_| part.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use axum::extract::Request;

    use super::*;

    fn parts(method: &str, uri: &str) -> request::Parts {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        request.into_parts().0
    }

    #[test]
    fn d4_requests_are_routed_by_method_and_path() {
        let session = |name: &str| RequestTarget::Session(name.to_owned());
        for (method, path, target) in [
            ("GET", "/v1/sessions?limit=3", RequestTarget::Merged(Merge::Sessions)),
            ("POST", "/v1/sessions", RequestTarget::New("session")),
            ("GET", "/v1/sessions/abc", session("abc")),
            ("POST", "/v1/sessions/root%2Fa3f9c1/inputs", session("root/a3f9c1")),
            ("GET", "/v1/trees/abc/events", session("abc")),
            ("POST", "/v1/approvals/abc/3.0", session("abc")),
            ("GET", "/v1/approvals", RequestTarget::Merged(Merge::Approvals)),
            ("POST", "/v1/tasks/spawn", RequestTarget::New("task")),
            ("POST", "/v1/tasks/list", RequestTarget::Merged(Merge::Tasks)),
            ("GET", "/v1/tasks/get/task_1", session("task_1")),
            ("POST", "/v1/tasks/cancel/task_1", session("task_1")),
            ("GET", "/v1/events", RequestTarget::Merged(Merge::Events)),
            ("PUT", "/v1/agents/x", RequestTarget::AllShards),
            ("GET", "/v1/agents", RequestTarget::AnyShard),
            ("POST", "/v1/workers/take", RequestTarget::ThisNode),
            ("GET", "/v1/workers", RequestTarget::ThisNode),
            ("GET", "/s/abc/live/tree", session("abc")),
            ("GET", "/?q=x", RequestTarget::Page(SharedView::List(PageList::Sessions))),
            ("GET", "/approvals", RequestTarget::Page(SharedView::List(PageList::Approvals))),
            ("GET", "/live/sessions", RequestTarget::Page(SharedView::Live(PageList::Sessions))),
            ("GET", "/live/approvals", RequestTarget::Page(SharedView::Live(PageList::Approvals))),
            ("GET", "/asks", RequestTarget::Page(SharedView::Asks)),
            ("HEAD", "/", RequestTarget::AnyShard),
            ("POST", "/open", RequestTarget::New("session")),
            ("GET", "/agents", RequestTarget::AnyShard),
        ] {
            assert_eq!(RequestTarget::of(&parts(method, path)), target, "{method} {path}");
        }
    }

    /// Controls: other requests, and bodies that hosts reject, are routed by their address alone.
    #[test]
    fn d4_task_goes_to_the_shard_of_its_parent() {
        let session = RequestTarget::Session("root/abc".to_owned());
        let (spawn, list) = (RequestTarget::New("task"), RequestTarget::Merged(Merge::Tasks));
        let long = format!(r#"{{"parentSessionId":"{}"}}"#, "x".repeat(MAX_NAME_BYTES + 1));
        let below = r#"{"type":"explore","prompt":"p","parentSessionId":"root/abc"}"#;
        for (target, body, expected) in [
            (spawn.clone(), below, session.clone()),
            (list.clone(), below, session.clone()),
            (RequestTarget::New("session"), below, RequestTarget::New("session")),
            (session.clone(), below, session),
            (spawn.clone(), r#"{"type":"explore","prompt":"p"}"#, spawn.clone()),
            (spawn.clone(), r#"{"parentSessionId":null}"#, spawn.clone()),
            (spawn.clone(), r#"{"parentSessionId":7}"#, spawn.clone()),
            (spawn.clone(), &long, spawn.clone()),
            (spawn.clone(), "{", spawn),
            (list.clone(), "", list),
        ] {
            assert_eq!(target.with_body(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn d4_shard_and_label_are_taken_from_the_query() {
        let wanted = RouteQuery::of(&parts("GET", "/v1/sessions?q=a%26b&shard=shard-1&limit=3"));
        assert_eq!(
            (wanted.shard.as_deref(), wanted.rest.to_string()),
            (Some("shard-1"), "/v1/sessions?q=a%26b&limit=3".to_owned())
        );
        let forwarded = with_shard(&wanted.rest, "shard-2");
        let again = RouteQuery::of(&parts("GET", &forwarded.to_string()));
        assert_eq!((again.shard.as_deref(), again.rest), (Some("shard-2"), wanted.rest));
        for (path, shard) in [("/?shard=", None), ("/?shard=shard-1", Some("shard-1")), ("/agents?shard=", Some(""))] {
            assert_eq!(RouteQuery::of(&parts("GET", path)).shard.as_deref(), shard, "{path}");
        }
        let wanted = RouteQuery::of(&parts("POST", "/v1/sessions?label=gpu"));
        assert_eq!((wanted.label.as_deref(), wanted.rest.to_string()), (Some("gpu"), "/v1/sessions".to_owned()));
        let wanted = RouteQuery::of(&parts("GET", "/v1/sessions?partial=true&limit=3"));
        assert_eq!((wanted.partial, wanted.rest.to_string()), (true, "/v1/sessions?limit=3".to_owned()));
        let wanted = RouteQuery::of(&parts("GET", "/v1/events?partial=true"));
        assert_eq!((wanted.partial, wanted.rest.to_string()), (true, "/v1/events".to_owned()));
        let wanted = RouteQuery::of(&parts("GET", "/v1/agents?partial=true"));
        assert_eq!(
            (wanted.partial, wanted.rest.to_string()),
            (false, "/v1/agents?partial=true".to_owned()),
            "refused by the host"
        );
        let wanted = RouteQuery::of(&parts("GET", "/v1/sessions?label=gpu"));
        assert_eq!(
            (wanted.label, wanted.rest.to_string()),
            (None, "/v1/sessions?label=gpu".to_owned()),
            "refused by the host"
        );
    }

    #[test]
    fn d4_streams_and_waits_are_long_requests() {
        for (uri, long) in [
            ("/v1/events?after=3.0", true),
            ("/v1/trees/abc/events", true),
            ("/s/abc/live/tree", true),
            ("/live/approvals", true),
            ("/parts/sessions/live?q=", true),
            ("/parts/sessions?q=live", false),
            ("/v1/sessions/abc/export", true),
            ("/v1/sessions/abc/runs/1?timeout=9&wait=true", true),
            ("/v1/sessions/abc/runs/1?wait=false", false),
            ("/v1/sessions?q=wait=true", false),
            ("/s/abc/tree", false),
        ] {
            assert_eq!(is_long(&uri.parse().unwrap()), long, "{uri}");
        }
    }

    #[test]
    fn d4_browser_stays_with_its_chosen_shard() {
        let mut headers = HeaderMap::new();
        assert_eq!(chosen_shard(&headers), None);
        headers.insert(header::COOKIE, "subtend_login=x; subtend_shard=shard-2".parse().unwrap());
        assert_eq!(chosen_shard(&headers).as_deref(), Some("shard-2"));
        let cookie = |method: &str, path: &str| cookie(&parts(method, path), "shard-2").is_some();
        assert_eq!(
            [
                cookie("GET", "/agents"),
                cookie("POST", "/options"),
                cookie("GET", "/v1/agents"),
                cookie("GET", "/metrics")
            ],
            [true, false, false, false]
        );
    }

    #[test]
    fn d4_session_and_task_ids_are_parsed() {
        let id = "0192d1f0-1111-7abc-8def-0123456789ab";
        let session = Some(SessionId(Uuid::parse_str(id).unwrap()));
        assert_eq!(id_of(id), session);
        assert_eq!(id_of(&format!("task_{}", id.replace('-', ""))), session);
        for name in ["0192d1f0", "task_0192", "root/abc", "zzzzzzzz-1111-7abc-8def-0123456789ab"] {
            assert_eq!(id_of(name), None, "{name}");
        }
    }
}
