//! The resources below `/v1`, and the OpenAPI document that describes them.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::host::Host;
use crate::metrics;
use crate::problem::Problem;

mod agents;
pub(crate) mod approvals;
mod branches;
mod controls;
mod events;
mod export;
mod health;
mod inputs;
mod opening;
mod queue;
mod runs;
mod sessions;
mod store;
mod tasks;
mod transcripts;
mod trees;
mod usage;
mod waiting;

/// Header that makes a command take effect once, however often it is sent.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The document without its paths, which the routes add.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "subtend",
        description = "Supervised, durable sessions and subagents for LLM agents. A session is named in a path by its id, the \
                       start of its id, its short name, its `task_…` id, or a path such as `root%2Fa3f9c1`. Every refusal is a \
                       problem (RFC 9457) whose `code` is stable. Times are milliseconds since 1970.",
    ),
    components(schemas(Problem)),
    tags(
        (name = "agents"), (name = "sessions"), (name = "inputs"), (name = "runs"), (name = "queue"), (name = "events"),
        (name = "trees"), (name = "branches"), (name = "approvals"), (name = "tasks"), (name = "usage"), (name = "host"),
    ),
)]
struct Document;

/// The resources with their document.
fn described() -> OpenApiRouter<Host> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(agents::list))
        .routes(routes!(agents::get))
        .routes(routes!(sessions::list, sessions::open))
        .routes(routes!(sessions::get, sessions::change, sessions::delete))
        .routes(routes!(sessions::records))
        .routes(routes!(transcripts::get))
        .routes(routes!(inputs::send))
        .routes(routes!(inputs::answer))
        .routes(routes!(runs::get))
        .routes(routes!(queue::list, queue::clear))
        .routes(routes!(queue::remove))
        .routes(routes!(controls::cancel))
        .routes(routes!(controls::interrupt))
        .routes(routes!(controls::resume))
        .routes(routes!(controls::close))
        .routes(routes!(controls::roll_back))
        .routes(routes!(branches::list, branches::make))
        .routes(routes!(branches::alternatives))
        .routes(routes!(branches::regenerate))
        .routes(routes!(branches::switch))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::answer))
        .routes(routes!(usage::get))
        .routes(routes!(export::get))
        .routes(routes!(events::session))
        .routes(routes!(trees::get))
        .routes(routes!(events::tree))
        .routes(routes!(events::all))
        .routes(routes!(tasks::spawn))
        .routes(routes!(tasks::get))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::cancel))
        .routes(routes!(store::serving))
        .routes(routes!(store::read))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}

/// The OpenAPI 3.1 document.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn document() -> Result<String, serde_json::Error> {
    described().get_openapi().to_pretty_json()
}

/// Builds the router of `host`.
pub(crate) fn router(host: &Host) -> Router {
    let (router, document) = described().split_for_parts();
    let options = host.options();
    let served = move || std::future::ready(Json(document));
    router
        .route("/v1/openapi.json", get(served))
        .merge(crate::page::router())
        .fallback(|| std::future::ready(Problem::new(StatusCode::NOT_FOUND, "no_such_resource", NO_SUCH)))
        .method_not_allowed_fallback(|| {
            std::future::ready(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", NO_SUCH_METHOD))
        })
        .layer(axum::middleware::from_fn_with_state(host.clone(), metrics::measure))
        .layer(DefaultBodyLimit::max(options.body_bytes))
        .layer(RequestBodyTimeoutLayer::new(options.body_time))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(host.clone())
}

const NO_SUCH: &str = "no such resource: GET /v1/openapi.json lists them";
const NO_SUCH_METHOD: &str = "the resource has no such method: GET /v1/openapi.json lists those it has";

/// A handler that panicked: the connection lives on, and the client receives a problem.
fn panicked(_: Box<dyn std::any::Any + Send + 'static>) -> axum::response::Response {
    let detail = "a fault in the host: its log has more";
    axum::response::IntoResponse::into_response(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail))
}

/// A body of JSON; a [`Problem`] where it is malformed.
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(JsonRejection::JsonDataError(error)) => Err(Problem::invalid("invalid_body", error.body_text())),
            Err(JsonRejection::MissingJsonContentType(error)) => {
                Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", error.body_text()))
            }
            Err(other) if other.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", other.body_text()))
            }
            Err(other) => Err(Problem::malformed(other.body_text())),
        }
    }
}

/// The query of a request; a [`Problem`] where it cannot be read.
struct Query<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query.map(|query| Self(query.0)).map_err(|error: QueryRejection| Problem::malformed(error.body_text()))
    }
}

/// Parameters of the path; a [`Problem`] where one cannot be read.
struct Path<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|error: PathRejection| Problem::malformed(error.body_text()))
    }
}

/// The idempotency key of a request, if it has one.
struct Key(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut keys = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return match parts.headers.contains_key(IDEMPOTENCY_KEY) {
                true => Err(Problem::malformed("more than one Idempotency-Key: send one")),
                false => Ok(Self(None)),
            };
        };
        match key.to_str() {
            Ok(key) if !key.is_empty() && key.len() <= 256 => Ok(Self(Some(key.to_owned()))),
            Ok(_) | Err(_) => Err(Problem::malformed("Idempotency-Key: 1 to 256 visible ASCII characters are needed")),
        }
    }
}
