//! Requests to the host's router, equal to those that a client sends over a socket.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// Sends a command under a key; returns the status and body of its reply.
pub(super) async fn post(router: &Router, path: &str, key: Option<&str>, body: &Value) -> (StatusCode, Value) {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let Ok(request) = request.body(Body::from(body.to_string())) else { return (StatusCode::BAD_REQUEST, Value::Null) };
    read(send_request(router, request).await).await
}

pub(super) async fn get(router: &Router, path: &str) -> (StatusCode, Value) {
    let Ok(request) = Request::get(path).body(Body::empty()) else { return (StatusCode::BAD_REQUEST, Value::Null) };
    read(send_request(router, request).await).await
}

async fn read(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = response.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

pub(super) async fn send_request(router: &Router, request: Request<Body>) -> Response<Body> {
    match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
