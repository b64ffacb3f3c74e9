use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::host::Host;
use crate::problem::Problem;

/// Reports that the process is alive.
#[utoipa::path(get, path = "/healthz", tag = "host", operation_id = "alive", responses((status = 204)))]
pub(super) async fn alive() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Reports that commands are accepted: the store works, and the host is not stopping.
#[utoipa::path(get, path = "/readyz", tag = "host", operation_id = "ready",
    responses((status = 204), (status = 503, body = Problem)))]
pub(super) async fn ready(State(host): State<Host>) -> Result<StatusCode, Problem> {
    if host.ends().is_cancelled() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the host is stopping"));
    }
    if let Some(poisoned) = host.runtime().journal().poisoned() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_failed", poisoned.to_string()));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Returns metrics in the text format of Prometheus (OpenMetrics 1.0).
#[utoipa::path(get, path = "/metrics", tag = "host", operation_id = "metrics",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(super) async fn metrics(State(host): State<Host>) -> Result<Response, Problem> {
    let text = host.metrics().render(&host)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
