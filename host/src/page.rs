//! The page: HTML views, rendered on the server and updated over server-sent events.
//!
//! Views are stateless: each request reads the runtime, and a stream sends changed fragments. Actions are POST forms;
//! [`crate::auth`] refuses forms of other origins.

use askama::Template;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use subtend_session::ids::{SessionId, Short};

use crate::host::Host;
use crate::problem::Problem;

mod actions;
mod activity;
mod agents;
mod approvals;
mod assets;
mod bounds;
mod branches;
mod diff;
mod entries;
mod extract;
mod forest;
mod live;
mod markdown;
mod minion;
mod options;
mod replay;
mod restore;
mod sessions;
pub(crate) mod shards;
mod timeline;
mod transcript;
mod tree;
mod usage;
mod words;
mod worktree;

pub(crate) fn router() -> Router<Host> {
    Router::new()
        .route("/", get(sessions::page))
        .route("/live/sessions", get(sessions::live))
        .route("/open", post(actions::open))
        .route("/approvals", get(approvals::page))
        .route("/live/approvals", get(approvals::live))
        .route("/asks", get(approvals::count))
        .route("/parts/{list}", get(shards::part))
        .route("/parts/{list}/live", get(shards::live))
        .route("/s/{id}", get(transcript::page))
        .route("/s/{id}/live", get(transcript::live))
        .route("/s/{id}/send", post(actions::send))
        .route("/s/{id}/cancel", post(actions::cancel))
        .route("/s/{id}/interrupt", post(actions::interrupt))
        .route("/s/{id}/continue", post(actions::resume))
        .route("/s/{id}/queue/{input}/remove", post(actions::remove))
        .route("/s/{id}/approve", post(actions::approve))
        .route("/s/{id}/branch", post(actions::branch))
        .route("/s/{id}/rollback", post(actions::roll_back))
        .route("/s/{id}/compact", post(actions::compact))
        .route("/s/{id}/compact/undo", post(actions::undo_compaction))
        .route("/s/{id}/restore", get(restore::page))
        .route("/s/{id}/worktree", get(worktree::page))
        .route("/s/{id}/worktree/merge", post(worktree::merge))
        .route("/s/{id}/worktree/keep", post(worktree::keep))
        .route("/s/{id}/worktree/discard", post(worktree::discard))
        .route("/s/{id}/regenerate", post(actions::regenerate))
        .route("/s/{id}/switch", post(actions::switch))
        .route("/s/{id}/tree", get(tree::page))
        .route("/s/{id}/kids", get(tree::children))
        .route("/s/{id}/live/tree", get(tree::live))
        .route("/s/{id}/timeline", get(timeline::page))
        .route("/s/{id}/timeline/chart", get(timeline::chart))
        .route("/s/{id}/replay", get(replay::page))
        .route("/s/{id}/replay/at", get(replay::at))
        .route("/s/{id}/branches", get(branches::page))
        .route("/s/{id}/usage", get(usage::page))
        .route("/usage", get(usage::all))
        .route("/agents", get(agents::page))
        .route("/options", get(options::page).post(options::set))
        .route("/assets/{name}", get(assets::get))
        .layer(middleware::from_fn(render_part_refusal))
}

/// The frame around the view of each page.
#[derive(Debug)]
struct PageFrame {
    title: String,
    /// Active entry of the navigation.
    nav: &'static str,
    /// Active view of a session.
    tab: &'static str,
    /// Number of calls that wait for an approval.
    asks: usize,
    /// True if the browser loads that number, because it covers several shards.
    loads_asks: bool,
    /// The host's clock, by which the browser counts down; 0 if unknown.
    now_ms: i64,
}

impl PageFrame {
    async fn new(host: &Host, title: impl Into<String>, nav: &'static str) -> Self {
        let loads_asks = host.options().is_shard;
        let asks = match loads_asks {
            true => 0,
            // The view itself reports errors of the store.
            false => host.runtime().waiting_calls().await.map_or(0, |asks| asks.len()),
        };
        Self { title: title.into(), nav, tab: "", asks, loads_asks, now_ms: host.runtime().now_ms() }
    }

    /// Returns the frame of a view of several shards.
    fn of_shards(title: &str, nav: &'static str) -> Self {
        Self { title: title.to_owned(), nav, tab: "", asks: 0, loads_asks: true, now_ms: 0 }
    }

    async fn of_session(host: &Host, title: impl Into<String>, tab: &'static str) -> Self {
        Self { tab, ..Self::new(host, title, "sessions").await }
    }

    /// Returns the frame of a view of a session, named by the session's title: `Tree: Fix the build (general a3f9c1)`.
    async fn of_view(host: &Host, id: SessionId, view: &str, tab: &'static str) -> Self {
        let title = match host.runtime().journal().head(id) {
            Ok(Some(head)) => format!("{view}: {}", session_title(&head.title, &head.agent, &head.short)),
            // The view itself reports the error.
            Ok(None) | Err(_) => view.to_owned(),
        };
        Self::of_session(host, title, tab).await
    }
}

/// Returns the name of a session in a title: `Fix the build (general a3f9c1)`.
fn session_title(title: &str, agent: &str, short: &Short) -> String {
    match words::clip(title, 80) {
        title if title.is_empty() => format!("{agent} {short}"),
        title => format!("{title} ({agent} {short})"),
    }
}

/// Returns at most `max` characters of the title of a session, or its agent and short name if the title is empty.
fn title_or_name(max: usize, title: &str, agent: &str, short: &Short) -> String {
    match words::clip(title, max) {
        title if title.is_empty() => format!("{agent} {short}"),
        title => title,
    }
}

#[derive(Debug)]
struct Refusal(Problem);

impl<E: Into<Problem>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

#[derive(Template)]
#[template(path = "refusal.html")]
struct RefusalPage<'a> {
    frame: PageFrame,
    problem: &'a Problem,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let frame =
            PageFrame { title: self.0.title.to_owned(), nav: "", tab: "", asks: 0, loads_asks: false, now_ms: 0 };
        let page = RefusalPage { frame, problem: &self.0 };
        let mut response = match page.render() {
            Ok(html) => self.0.with_body(Html(html)),
            Err(_) => self.0.clone().into_response(),
        };
        response.extensions_mut().insert(self.0);
        response
    }
}

/// Returns whether a part of a page sent the request. The response is shown within that page.
fn is_part_request(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

/// Returns the text of a refusal without a page around it, for a request that a part of a page sent.
fn part_response(problem: &Problem) -> Response {
    problem.with_body(Html(escaped(&problem.detail)))
}

fn escaped(text: &str) -> String {
    askama::filters::escape(text, askama::filters::Html).map(|text| text.to_string()).unwrap_or_default()
}

async fn render_part_refusal(request: Request, next: Next) -> Response {
    let part = is_part_request(request.headers());
    let response = next.run(request).await;
    match response.extensions().get::<Problem>() {
        Some(problem) if part => part_response(problem),
        _ => response,
    }
}

pub(crate) const NO_SUCH_PAGE: &str = "no page has this address: the list of sessions leads to the others";

/// Returns the refusal as a page if a browser asked for one; `None` for resources of the API and for other clients.
pub(crate) fn refusal(uri: &Uri, headers: &HeaderMap, problem: impl FnOnce() -> Problem) -> Option<Response> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_api = uri.path() == "/v1" || uri.path().starts_with("/v1/");
    let is_browser = accept.is_some_and(|accept| accept.contains("text/html"));
    (is_browser && !is_api)
        .then(|| if is_part_request(headers) { part_response(&problem()) } else { Refusal(problem()).into_response() })
}

/// Renders a view with the names of invisible and direction-changing characters, as in the terminal: `<U+202E>`.
fn html(view: &impl Template) -> Result<Html<String>, Refusal> {
    render_page(view, true)
}

/// Renders a view without replacing characters, because its form fields are sent back unchanged.
fn render_unchanged(view: &impl Template) -> Result<Html<String>, Refusal> {
    render_page(view, false)
}

fn render_page(view: &impl Template, names_invisible: bool) -> Result<Html<String>, Refusal> {
    let most = bounds::MAX_HTML_BYTES;
    match bounds::render(view, most, names_invisible) {
        Ok(Some(html)) => Ok(Html(html)),
        Ok(None) => {
            let why = format!("the view has more than {most} bytes of HTML: read it over the API, page by page");
            Err(Refusal(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)))
        }
        Err(error) => {
            tracing::error!(%error, "a view cannot be rendered");
            let why = "a fault in the page: the log has more";
            Err(Refusal(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", why)))
        }
    }
}

/// Renders a fragment, or a notice if it has too much HTML. If the template fails, logs that and returns nothing.
fn render_fragment(view: &impl Template) -> String {
    let most = bounds::MAX_HTML_BYTES;
    render_within(view, most).unwrap_or_else(|| {
        format!("<p class=\"small dim\">This part has more than {most} bytes of HTML: read it over the API.</p>")
    })
}

/// Renders a fragment; `None` if it has more than `most` bytes. If the template fails, logs that and returns nothing.
fn render_within(view: &impl Template, most: usize) -> Option<String> {
    bounds::render(view, most, true).unwrap_or_else(|error| {
        tracing::error!(%error, "a fragment cannot be rendered");
        Some(String::new())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_says_in_each_form_when_to_retry() {
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the host is ending");
        let busy = || Problem { retry_after: Some(7), ..problem.clone() };
        for response in [part_response(&busy()), Refusal(busy()).into_response(), busy().into_response()] {
            let shown = response.headers().get(header::RETRY_AFTER).and_then(|after| after.to_str().ok());
            assert_eq!((response.status().as_u16(), shown), (503, Some("7")));
        }
        // Control: a problem that a retry does not solve.
        assert_eq!(part_response(&problem).headers().get(header::RETRY_AFTER), None);
    }
}
