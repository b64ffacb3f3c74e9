//! The resources below `/v1`, and the OpenAPI document that describes them.

use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{body, middleware};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtend_actors::Stopped;
use subtend_journal::ReadError;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::record::Record;
use subtend_session::values::{MAX_NESTING, ValueCount, nesting};
use tokio::time::{Instant, timeout_at};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::{OpenApi as OpenApiDocument, RefOr};
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::host::{Host, HostOptions};
use crate::host_bug::HostBug;
use crate::json::{self, Json};
use crate::metrics;
use crate::page;
use crate::problem::Problem;
use crate::reads;
use crate::trace;
pub use names::MAX_NAME_BYTES;

mod agents;
pub(crate) mod approvals;
pub(crate) mod branches;
mod controls;
mod events;
mod export;
mod health;
mod inputs;
mod names;
pub(crate) mod opening;
mod queue;
mod refusals;
pub(crate) mod restores;
mod runs;
pub(crate) mod sessions;
mod store;
mod tasks;
mod transcripts;
mod trees;
mod usage;
mod waiting;
mod warnings;
mod workers;
mod worktrees;

/// Header by which a repeated command takes effect once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Hash of the OpenAPI document, shortened. It distinguishes builds of the same version that have different APIs.
pub const FINGERPRINT: &str = include_str!("../assets/api.hash");

/// The OpenAPI document; the routes add its paths.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "subtend",
        description = "Supervised, durable sessions and subagents for LLM agents. A session is named in a path by its id, the \
                       start of its id, its short name, its `task_…` id, or a path such as `root%2Fa3f9c1`. Every refusal is a \
                       problem (RFC 9457) whose `code` is stable. Times are milliseconds since 1970; those of tasks are \
                       texts (ISO 8601).",
    ),
    components(schemas(Problem)),
    tags(
        (name = "agents"), (name = "sessions"), (name = "inputs"), (name = "runs"), (name = "queue"), (name = "events"),
        (name = "trees"), (name = "branches"), (name = "approvals"), (name = "tasks"), (name = "usage"), (name = "host"),
        (name = "workers"), (name = "worktrees"),
    ),
)]
struct Document;

fn documented_routes() -> OpenApiRouter<Host> {
    let mut router = router_with_limits();
    refusals::describe(router.get_openapi_mut());
    // OpenAPI requires a description of each response.
    for item in router.get_openapi_mut().paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in methods.into_iter().flatten() {
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response
                    && response.description.is_empty()
                {
                    let reason =
                        status.parse().ok().and_then(|status| StatusCode::from_u16(status).ok()?.canonical_reason());
                    response.description = reason.unwrap_or("The response").to_owned();
                }
            }
        }
    }
    router
}

fn router_with_limits() -> OpenApiRouter<Host> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(agents::list))
        .routes(routes!(agents::get, agents::register, agents::remove))
        .routes(routes!(agents::reload))
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
        .routes(routes!(controls::summarise))
        .routes(routes!(controls::compact, controls::undo_compaction))
        .routes(routes!(controls::roll_back))
        .routes(routes!(restores::get))
        .routes(routes!(worktrees::list))
        .routes(routes!(worktrees::get))
        .routes(routes!(worktrees::merge))
        .routes(routes!(worktrees::keep))
        .routes(routes!(worktrees::discard))
        .routes(routes!(branches::list, branches::make))
        .routes(routes!(branches::alternatives))
        .routes(routes!(branches::regenerate))
        .routes(routes!(branches::switch))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::get, approvals::answer))
        .routes(routes!(usage::get))
        .routes(routes!(warnings::list))
        .routes(routes!(export::get))
        .routes(routes!(events::session))
        .routes(routes!(trees::get))
        .routes(routes!(events::tree))
        .routes(routes!(events::all))
        .routes(routes!(tasks::spawn))
        .routes(routes!(tasks::get))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::cancel))
        .merge(small_bodies())
        .routes(routes!(workers::complete))
        .routes(routes!(store::serving))
        .routes(routes!(store::read))
        .routes(routes!(store::import, store::imports))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}

/// Returns the routes of workers whose requests may wait and have small bodies.
fn small_bodies() -> OpenApiRouter<Host> {
    OpenApiRouter::new()
        .routes(routes!(workers::list))
        .routes(routes!(workers::take))
        .routes(routes!(workers::renew))
        .layer(DefaultBodyLimit::max(workers::MAX_BODY_BYTES))
}

/// Returns the OpenAPI 3.1 document.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn document() -> Result<String, serde_json::Error> {
    documented_routes().get_openapi().to_pretty_json()
}

/// The resources and their document. They are large and the same for all hosts, so they are built once.
static RESOURCES: LazyLock<(Router<Host>, OpenApiDocument)> = LazyLock::new(|| documented_routes().split_for_parts());

pub(crate) fn router(host: &Host) -> Router {
    let (router, document) = &*RESOURCES;
    let &HostOptions { body_bytes, body_time, .. } = host.options();
    let served = move || std::future::ready(Json(document));
    router
        .clone()
        .route("/v1/openapi.json", get(served))
        .merge(page::router())
        .fallback(no_such_resource)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(host.clone(), reads::run_with_permit))
        .layer(middleware::from_fn_with_state(host.clone(), metrics::measure))
        .layer(DefaultBodyLimit::max(body_bytes))
        .layer(middleware::map_request(move |request: Request| {
            std::future::ready(with_body_timeout(request, body_time))
        }))
        .layer(middleware::map_request(move |request: Request| {
            std::future::ready(check_announced_size(request, body_bytes))
        }))
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(middleware::from_fn(trace::trace))
        .with_state(host.clone())
}

/// Refuses a request whose `Content-Length` is too large, before reading the body.
fn check_announced_size(request: Request, most: usize) -> Result<Request, Problem> {
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match length.map(str::parse::<usize>) {
        None => Ok(request),
        Some(Ok(bytes)) if bytes <= most => Ok(request),
        Some(_) => {
            let detail = format!(
                "the body has {} bytes, the limit is {most}: send less in one request",
                length.unwrap_or_default()
            );
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail))
        }
    }
}

/// Limits the time in which the body of a request must arrive.
fn with_body_timeout(request: Request, time: Duration) -> Request {
    request.map(|body| {
        let ends = Instant::now() + time;
        let pieces = stream::unfold((Some(body.into_data_stream()), ends), async |(from, ends)| {
            let mut from = from?;
            match timeout_at(ends, from.next()).await {
                Ok(piece) => piece.map(|piece| (piece, (Some(from), ends))),
                Err(late) => Some((Err(axum::Error::new(late)), (None, ends))),
            }
        });
        body::Body::from_stream(pieces)
    })
}

const NO_SUCH_RESOURCE: &str = "no such resource: GET /v1/openapi.json lists them";
const NO_SUCH_METHOD: &str = "the resource has no such method: GET /v1/openapi.json lists those it has";

async fn no_such_resource(request: Request) -> Response {
    let problem = |detail| Problem::new(StatusCode::NOT_FOUND, "no_such_resource", detail);
    page::refusal(request.uri(), request.headers(), || problem(page::NO_SUCH_PAGE))
        .unwrap_or_else(|| problem(NO_SUCH_RESOURCE).into_response())
}

pub(crate) async fn no_such_method(request: Request) -> Response {
    let problem = |detail| Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail);
    page::refusal(request.uri(), request.headers(), || problem(page::NO_SUCH_PAGE))
        .unwrap_or_else(|| problem(NO_SUCH_METHOD).into_response())
}

/// Returns the response for a handler that panicked. The connection stays open.
fn panic_response(_: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let detail = "a fault in the host: its log has more";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail).into_response()
}

/// Extractor of a JSON body; a malformed body is a [`Problem`].
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let too_large = |why| Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why);
        let (parts, body) = request.into_parts();
        let bytes = match Bytes::from_request(Request::from_parts(parts.clone(), body), state).await {
            Ok(bytes) => bytes,
            Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => return Err(too_large(error.body_text())),
            Err(error) => return Err(Problem::malformed(error.body_text())),
        };
        // Parsed JSON may take seventy times the memory of its text, so the limits of sessions would apply too late.
        if ValueCount::default().add(&bytes) > MAX_BODY_VALUES {
            return Err(too_large(format!(
                "the body has more than {MAX_BODY_VALUES} JSON values: send less in one request"
            )));
        }
        if nesting(&bytes) > MAX_NESTING {
            return Err(Problem::invalid(
                "invalid_body",
                format!("the body nests more than {MAX_NESTING} arrays and objects: nest less"),
            ));
        }
        json::parse(&parts.headers, &bytes).map(Self)
    }
}

/// Maximum number of JSON values in a body. Metadata may have 10,000 values and keys.
const MAX_BODY_VALUES: usize = 50_000;

/// Extractor of the query; an invalid query is a [`Problem`].
struct Query<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query.map(|query| Self(query.0)).map_err(|error: QueryRejection| Problem::malformed(error.body_text()))
    }
}

/// Extractor of path parameters; an invalid parameter is a [`Problem`].
struct Path<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|error: PathRejection| Problem::malformed(error.body_text()))
    }
}

/// The last record that a client has. If the session has a later record of the same command, the command already took
/// effect and is not repeated.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Since {
    /// The last record of the session that the client has. If the command is repeated with it, it takes effect once.
    after: Option<u64>,
}

/// Number of records in one read.
const SINCE_PAGE: usize = 1_000;

impl Since {
    /// Runs `act` with the result of `did` for the first record after the client's that has one, while no other
    /// repeatable command of the session runs. Reads most records before it waits for those.
    async fn run_once<T: Send, R: Send, F: Future<Output = Result<R, Problem>> + Send>(
        mut self,
        host: &Host,
        session: SessionId,
        did: impl Fn(&Record) -> Option<T> + Send + Sync,
        act: impl FnOnce(Option<T>) -> F + Send,
    ) -> Result<R, Problem> {
        let done = match self.after {
            Some(_) => host.reads().read_session(self.find_later(host, session, &did)).await??,
            None => None,
        };
        if done.is_some() || self.after.is_none() {
            let _alone = host.lock_session(session).await;
            return act(done).await;
        }
        host.serialize_commands(session, self.find_later(host, session, &did), act).await
    }

    /// Reads the records after the client's, and returns the first result of `did`.
    async fn find_later<T: Send>(
        &mut self,
        host: &Host,
        session: SessionId,
        did: &(impl Fn(&Record) -> Option<T> + Send + Sync),
    ) -> Result<Option<T>, Problem> {
        while let Some(after) = self.after {
            host.settled().await?;
            let page = host.runtime().journal().page_from(session, Seq(after).next(), SINCE_PAGE, 1 << 20);
            // The command itself would fail with the same error.
            let (records, _) = page.map_err(|error| match error {
                ReadError::Damaged { .. } | ReadError::Newer { .. } => Stopped::Unreadable(error.to_string()).into(),
                ReadError::NoSuchSession(_) | ReadError::Engine(_) | ReadError::Closed => Problem::from(error),
            })?;
            let Some(last) = records.last() else { break };
            self.after = Some(last.seq.0);
            if let Some(done) = records.iter().find_map(|stored| did(&stored.record)) {
                return Ok(Some(done));
            }
        }
        Ok(None)
    }
}

/// Returns the number of rows of a page: `limit`, or the default.
///
/// # Errors
/// [`Problem`] for a limit outside 1 to `most`.
fn page_size(limit: Option<usize>, default: usize, most: usize) -> Result<usize, Problem> {
    match limit {
        None => Ok(default),
        Some(limit) if (1..=most).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::malformed(format!("limit {limit}: give 1 to {most}, or leave it out"))),
    }
}

/// Extractor that rejects an idempotency key, for resources that do not store keys.
struct NoKey;

impl<S: Send + Sync> FromRequestParts<S> for NoKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.headers.contains_key(IDEMPOTENCY_KEY) {
            true => Err(Problem::malformed(
                "Idempotency-Key: this command keeps none; name the run of a cancel with ?run=, the changes of a worktree with \
                 their tip, and the last record that you have with ?after= for others",
            )),
            false => Ok(Self),
        }
    }
}

/// Extractor that refuses parameters, for lists without pages and filters.
struct NoParameters;

impl<S: Send + Sync> FromRequestParts<S> for NoParameters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.uri.query().unwrap_or_default() {
            "" => Ok(Self),
            found => Err(Problem::malformed(format!(
                "?{found}: this list is complete and takes no parameters: leave them out"
            ))),
        }
    }
}

/// Extractor of the optional idempotency key.
struct IdempotencyKey(Option<String>);

impl FromRequestParts<Host> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, host: &Host) -> Result<Self, Problem> {
        if host.options().injected_bug.has(HostBug::NoKey) {
            return Ok(Self(None));
        }
        let mut keys = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return match parts.headers.contains_key(IDEMPOTENCY_KEY) {
                true => Err(Problem::malformed("more than one Idempotency-Key: send one")),
                false => Ok(Self(None)),
            };
        };
        match key.to_str() {
            // A header may hold tabs.
            Ok(key) if (1..=256).contains(&key.len()) && !key.contains('\t') => Ok(Self(Some(key.to_owned()))),
            Ok(_) | Err(_) => {
                Err(Problem::malformed("Idempotency-Key: 1 to 256 printable ASCII characters are needed"))
            }
        }
    }
}
