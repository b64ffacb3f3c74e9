//! The page: HTML views of what the API gives, rendered here and followed over server-sent events.
//!
//! No view keeps state. Each is read from the runtime when it is asked for, and a stream sends the fragments that changed since.
//! Actions are POST forms: [`crate::auth`] refuses those of other origins.

use askama::Template;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use crate::host::Host;
use crate::problem::Problem;

mod activity;
mod assets;
mod forest;
mod live;
mod sessions;
mod tree;
mod words;

/// Routes of the page.
pub(crate) fn router() -> Router<Host> {
    Router::new()
        .route("/", get(sessions::page))
        .route("/live/sessions", get(sessions::live))
        .route("/s/{id}/tree", get(tree::page))
        .route("/s/{id}/kids", get(tree::kids))
        .route("/s/{id}/live/tree", get(tree::live))
        .route("/assets/{name}", get(assets::get))
}

/// What every page shows around its view.
#[derive(Debug)]
struct Frame {
    title: String,
    /// The part of the navigation that is open.
    nav: &'static str,
    /// Calls that wait for an approval.
    asks: usize,
}

impl Frame {
    async fn new(host: &Host, title: impl Into<String>, nav: &'static str) -> Self {
        // A store that cannot be read fails in the view itself.
        let asks = host.runtime().approvals().await.map_or(0, |asks| asks.len());
        Self { title: title.into(), nav, asks }
    }
}

/// A problem as a page.
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
    frame: Frame,
    problem: &'a Problem,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let frame = Frame { title: self.0.title.to_owned(), nav: "", asks: 0 };
        let page = RefusalPage { frame, problem: &self.0 };
        match page.render() {
            Ok(html) => (status, Html(html)).into_response(),
            Err(_) => self.0.into_response(),
        }
    }
}

/// The page of a browser that is not logged in; `None` for other clients.
pub(crate) fn locked(headers: &HeaderMap, problem: &Problem) -> Option<Response> {
    let browser = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    browser.is_some_and(|accept| accept.contains("text/html")).then(|| Refusal(problem.clone()).into_response())
}

/// Renders a view.
fn html(view: &impl Template) -> Result<Html<String>, Refusal> {
    view.render().map(Html).map_err(|error| {
        tracing::error!(%error, "a view cannot be rendered");
        Refusal(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "a fault in the page: the log has more"))
    })
}

/// Renders a fragment; empty where its template fails, which the log then has.
fn fragment(view: &impl Template) -> String {
    view.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a fragment cannot be rendered");
        String::new()
    })
}
