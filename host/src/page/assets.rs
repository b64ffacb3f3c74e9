//! Static files of the page, embedded in the binary.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Refusal;
use super::extract::PathPart;
use crate::problem::{Problem, quote};

/// Name, type and bytes of each file.
const FILES: [(&str, &str, &str); 5] = [
    ("page.css", "text/css; charset=utf-8", include_str!("../../assets/page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("../../assets/page.js")),
    ("htmx.min.js", "text/javascript; charset=utf-8", include_str!("../../assets/htmx.min.js")),
    ("hx-sse.min.js", "text/javascript; charset=utf-8", include_str!("../../assets/hx-sse.min.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
];

pub(super) async fn get(PathPart(name): PathPart<String>) -> Result<Response, Refusal> {
    let file = FILES.iter().find(|(known, ..)| *known == name);
    let Some((_, media, body)) = file else {
        return Err(Refusal(Problem::new(
            StatusCode::NOT_FOUND,
            "no_such_resource",
            format!("no file {name}", name = quote(&name)),
        )));
    };
    // Browsers must revalidate, because a new version of the host may have other files.
    Ok(([(header::CONTENT_TYPE, *media), (header::CACHE_CONTROL, "no-cache")], *body).into_response())
}
