//! Routes requests of clients to the shards that they concern.
//!
//! A client reaches every session of the database through any node. A request about one session is answered by the node that owns its
//! shard; while the shard has no owner, the request waits. Requests about all shards are sent to each, and the answers are merged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{self, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, header, request};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use subtend_host::auth::{Forwarded, TokenGrant, TokenScope, grant_of};
use subtend_host::problem::Problem;
use subtend_journal::postgres::nodes::{NodeError, Placement};
use tokio::time::{Instant, timeout, timeout_at};
use tower::ServiceExt as _;

use crate::forward::{ForwardPermits, NoAnswer, forward};
use crate::merge;
use crate::node::Node;
use places::SessionShards;
pub(crate) use target::{Merge, SharedView};
use target::{RequestTarget, RouteQuery};

mod places;
mod target;

/// Maximum bytes of a request body, the same as in the hosts of shards.
const MAX_BODY: usize = 4 << 20;
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Header of an answer by a node that does not own the shard. The request had no effect.
const NOT_HERE: &str = "subtend-not-here";

/// Answers requests for all shards. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<GatewayShared>,
}

#[derive(Debug)]
struct GatewayShared {
    node: Node,
    session_shards: SessionShards,
    /// Counter for distributing new sessions over shards.
    next_shard: AtomicUsize,
    forwards: ForwardPermits,
}

/// A request with its complete body, so that it can be sent again.
#[derive(Clone, Debug)]
pub(crate) struct BufferedRequest {
    pub(crate) parts: request::Parts,
    pub(crate) body: Bytes,
    grant: Option<TokenGrant>,
    /// True if another node forwarded the request. It is then not forwarded again.
    forwarded: bool,
    /// True if a list or stream may leave out shards that do not answer now.
    pub(crate) partial: bool,
}

impl BufferedRequest {
    pub(crate) fn to_request(&self) -> Request {
        Request::from_parts(self.parts.clone(), body::Body::from(self.body.clone()))
    }

    fn target(&self) -> RequestTarget {
        RequestTarget::of(&self.parts).with_body(&self.body)
    }
}

impl Gateway {
    /// Creates a gateway that answers requests through `node`.
    pub fn new(node: Node) -> Self {
        let (session_shards, next_shard) = (SessionShards::default(), AtomicUsize::new(0));
        Self {
            inner: Arc::new(GatewayShared { node, session_shards, next_shard, forwards: ForwardPermits::default() }),
        }
    }

    /// Returns the API of all shards. It does not authenticate senders: wrap it in [`Guard::protect`](subtend_host::auth::Guard::protect) with
    /// the key of the node ([`Node::key`]).
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    pub(crate) fn node(&self) -> &Node {
        &self.inner.node
    }

    pub(crate) fn shards(&self) -> Vec<String> {
        self.node().members().shards.iter().map(|shard| shard.name.clone()).collect()
    }

    async fn answer(&self, request: Request) -> Result<Response, Problem> {
        let (grant, forwarded) = (grant_of(&request), request.extensions().get::<Forwarded>().copied());
        let (parts, body) = request.into_parts();
        let wanted = RouteQuery::of(&parts);
        if let Some(own) = self.answer_locally(&parts) {
            return own;
        }
        let read = timeout(BODY_TIMEOUT, body::to_bytes(body, MAX_BODY)).await;
        let body = match read {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                let detail = format!("the body cannot be read: {error}. The limit is {MAX_BODY} bytes");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
            }
            Err(_) => return Err(Problem::malformed("the body did not arrive within 30 s: send it again")),
        };
        forwarded.map_or(Ok(()), |forwarded| forwarded.check(&body))?;
        let (forwarded, partial) = (forwarded.is_some(), wanted.partial);
        let mut buffered = BufferedRequest { parts, body, grant, forwarded, partial };
        if wanted.shard.is_some() || wanted.label.is_some() || partial {
            buffered.parts.uri = wanted.rest.clone();
        }
        match wanted.shard {
            Some(_) if wanted.label.is_some() => Err(Problem::malformed(
                "`shard` and `label` were both given: a shard has at most one label. Leave one out",
            )),
            Some(shard) if self.shards().contains(&shard) => {
                // A forwarded request asks one shard.
                if let (RequestTarget::Page(view), false) = (buffered.target(), buffered.forwarded) {
                    return merge::page::answer(self, view, Some(shard), buffered).await;
                }
                let choice = self.check_key(&shard, &buffered).await?;
                let mut answer = self.create_in_shard(&shard, &buffered, choice).await?;
                let cookie = target::cookie(&buffered.parts, &shard).filter(|_| !buffered.forwarded);
                answer.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
                Ok(answer)
            }
            Some(shard) => Err(no_shard(&shard, &self.shards())),
            None => self.route(buffered.target(), wanted.label, buffered).await,
        }
    }

    async fn route(
        &self,
        target: RequestTarget,
        label: Option<String>,
        request: BufferedRequest,
    ) -> Result<Response, Problem> {
        match target {
            RequestTarget::Session(_) if label.is_some() => Err(Problem::malformed(
                "label: a task below a session is in the shard of that session. Leave the label out",
            )),
            RequestTarget::Session(name) => {
                let shard = self.locate(&name, &request).await?;
                self.ask(&shard, &request).await
            }
            RequestTarget::New(kind) => {
                let (shard, choice) = self.place(kind, label.as_deref(), &request).await?;
                self.create_in_shard(&shard, &request, choice).await
            }
            RequestTarget::ThisNode => {
                let node = self.node();
                let open = node.open().into_iter().find_map(|shard| node.host(&shard));
                let open = open.ok_or_else(|| no_shard_open("this node has no"))?;
                let Ok(answer) = open.router.oneshot(request.to_request()).await;
                Ok(answer)
            }
            RequestTarget::AnyShard => {
                let shard = self.default_shard(&request).ok_or_else(|| no_shard_open("no node has a"))?;
                self.ask(&shard, &request).await
            }
            RequestTarget::AllShards => {
                // Returns the last shard's answer, or the first refusal.
                let mut answer = Err(no_shard_open("no node has a"));
                for shard in self.shards() {
                    let one = self.ask(&shard, &request).await?;
                    if !one.status().is_success() {
                        return Ok(one);
                    }
                    answer = Ok(one);
                }
                answer
            }
            RequestTarget::Merged(of) => merge::answer(self, of, request).await,
            RequestTarget::Page(view) => merge::page::answer(self, view, None, request).await,
        }
    }

    /// Answers requests that concern only this node.
    fn answer_locally(&self, parts: &request::Parts) -> Option<Result<Response, Problem>> {
        let node = self.node();
        let get = parts.method == Method::GET || parts.method == Method::HEAD;
        match parts.uri.path() {
            "/healthz" if get => Some(Ok(StatusCode::NO_CONTENT.into_response())),
            "/readyz" if get => {
                Some(match node.is_live() && !node.ends().is_cancelled() && !self.shards().is_empty() {
                    true => Ok(StatusCode::NO_CONTENT.into_response()),
                    false => Err(Problem::new(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "stopping",
                        "the node has no lease, or is ending",
                    )),
                })
            }
            "/v1/nodes" if get => Some(Ok(subtend_host::Json(self.describe()).into_response())),
            _ => None,
        }
    }

    fn describe(&self) -> serde_json::Value {
        let members = self.node().live_members();
        let shard = |row: &subtend_journal::postgres::nodes::ShardRow| {
            let owner = members.owner(&row.name).map(|node| node.name.clone());
            json!({"name": row.name, "label": row.label, "node": owner, "last_lsn": row.last_lsn})
        };
        let node = |row: &subtend_journal::postgres::nodes::NodeRow| {
            json!({
                "name": row.name, "address": row.address, "version": row.version, "labels": row.labels, "alive": row.alive,
                "lease_left_ms": row.left_ms,
            })
        };
        let (nodes, shards): (Vec<_>, Vec<_>) =
            (members.nodes.iter().map(node).collect(), members.shards.iter().map(shard).collect());
        json!({"node": self.node().name(), "nodes": nodes, "shards": shards})
    }

    /// Sends a request to the node that owns `shard`. Waits while the shard has no owner.
    pub(crate) async fn ask(&self, shard: &str, buffered: &BufferedRequest) -> Result<Response, Problem> {
        let node = self.node();
        let times = node.times();
        let give_up = Instant::now() + times.lease + times.heartbeat * 2;
        let mut changes = node.changes();
        // The request names the shard, so that the other node answers for this shard only.
        let mut parts = buffered.parts.clone();
        parts.uri = target::with_shard(&parts.uri, shard);
        loop {
            if let Some(open) = node.host(shard) {
                let Ok(answer) = open.router.oneshot(buffered.to_request()).await;
                return Ok(answer);
            }
            if buffered.forwarded {
                return Ok(not_here(shard));
            }
            let members = node.members();
            let owner = members.owner(shard).filter(|owner| owner.name != node.name());
            if let Some(owner) = owner {
                // At another node, a request from this node's Unix socket gets all permissions that a token can have.
                let open = buffered.parts.uri.path().starts_with("/assets/");
                let widest = if open { TokenScope::Read } else { TokenScope::Admin };
                let grant = buffered.grant.clone().unwrap_or(widest.into());
                let lost = node.wait_until_lost(shard, &owner.lease);
                let sender = buffered.parts.extensions.get().copied();
                let permit = self.inner.forwards.try_acquire(target::is_long(&buffered.parts.uri), sender);
                let permit = permit.ok_or_else(busy_problem)?;
                match forward(owner, node.key(), grant, (&parts, &buffered.body), lost, permit).await {
                    Ok(answer) if answer.headers().contains_key(NOT_HERE) => {}
                    Ok(answer) => return Ok(answer),
                    Err(NoAnswer::NotAccepted(why)) => {
                        tracing::debug!(shard, owner = owner.name, why, "the owner cannot be reached")
                    }
                    // Reads can be retried safely.
                    Err(NoAnswer::Unknown(_)) if buffered.parts.method == Method::GET => {}
                    Err(NoAnswer::Unknown(why)) => return Err(unknown_owner_error(&owner.name, &why)),
                }
            }
            // The member rows may be outdated. Each wait for newer rows is bounded, and so is the total time.
            let pause = (Instant::now() + times.heartbeat / 10).min(give_up);
            drop(timeout_at(pause, changes.changed()).await);
            if Instant::now() >= give_up {
                return Err(no_owner(shard));
            }
        }
    }

    /// Returns the shards with this label for a new session, in rotating order: those open here, or else all others.
    fn candidates(&self, label: Option<&str>) -> Vec<String> {
        let members = self.node().members();
        let fit = members
            .shards
            .iter()
            .filter(|shard| shard.label.as_deref() == label && members.owner(&shard.name).is_some());
        let (own, others): (Vec<String>, Vec<String>) =
            fit.map(|shard| shard.name.clone()).partition(|shard| self.node().host(shard).is_some());
        let mut fit = if own.is_empty() { others } else { own };
        let next = self.inner.next_shard.fetch_add(1, Ordering::Relaxed);
        let by = next.checked_rem(fit.len()).unwrap_or(0);
        fit.rotate_left(by);
        fit
    }

    /// Returns the shard for requests that concern no particular one: the browser's choice, an open one, or the first.
    fn default_shard(&self, request: &BufferedRequest) -> Option<String> {
        let shards = self.shards();
        let chosen = target::chosen_shard(&request.parts.headers).filter(|shard| shards.contains(shard));
        chosen.or_else(|| self.node().open().into_iter().next()).or_else(|| shards.into_iter().next())
    }

    /// Chooses the shard of a new session. A command that is repeated with the same key, at any node, gets the same shard.
    async fn place(
        &self,
        kind: &str,
        label: Option<&str>,
        request: &BufferedRequest,
    ) -> Result<(String, Option<NewChoice>), Problem> {
        if let Some(label) = label.filter(|label| !self.has_label(label)) {
            let detail = format!("no shard has the label {label:?}: GET /v1/nodes lists shards and their labels");
            return Err(Problem::invalid("unknown_label", detail));
        }
        let times = self.node().times();
        let give_up = Instant::now() + times.lease + times.heartbeat * 2;
        let shard = loop {
            match self.candidates(label).into_iter().next() {
                Some(shard) => break shard,
                None if Instant::now() >= give_up => return Err(no_shard_open("no node has a")),
                None => tokio::time::sleep(times.heartbeat / 10).await,
            }
        };
        match key_of(request) {
            Some(key) if !request.forwarded => self.place_shard(kind, key, &shard).await,
            _ => Ok((shard, None)),
        }
    }

    /// Refuses a command that names another shard than the one recorded for its key.
    async fn check_key(&self, shard: &str, request: &BufferedRequest) -> Result<Option<NewChoice>, Problem> {
        let (RequestTarget::New(kind), Some(key), false) = (request.target(), key_of(request), request.forwarded)
        else {
            return Ok(None);
        };
        let (placed, choice) = self.place_shard(kind, key, shard).await?;
        if placed == shard {
            return Ok(choice);
        }
        let detail =
            format!("the Idempotency-Key was sent before, and its session is in {placed}: leave out `shard={shard}`");
        Err(Problem::invalid("idempotency_key_reused", detail))
    }

    async fn place_shard(
        &self,
        kind: &str,
        key: &HeaderValue,
        shard: &str,
    ) -> Result<(String, Option<NewChoice>), Problem> {
        let key = blake3::hash(&[kind.as_bytes(), b" ", key.as_bytes()].concat());
        let placement = self.node().registry().place(key.as_bytes(), shard).await.map_err(unreachable)?;
        Ok((placement.shard.clone(), placement.is_new.then_some(NewChoice { key, placement })))
    }

    /// Creates a session in a shard. If the shard refuses the command as invalid, removes the placement of its key.
    async fn create_in_shard(
        &self,
        shard: &str,
        request: &BufferedRequest,
        choice: Option<NewChoice>,
    ) -> Result<Response, Problem> {
        let answer = self.ask(shard, request).await?;
        if let Some(NewChoice { key, placement }) = choice.filter(|_| is_invalid(answer.status()))
            && let Err(error) = self.node().registry().remove_placement(key.as_bytes(), &placement).await
        {
            tracing::warn!(%error, "the placement of a refused command's key was not removed");
        }
        Ok(answer)
    }

    fn has_label(&self, label: &str) -> bool {
        self.node().members().shards.iter().any(|shard| shard.label.as_deref() == Some(label))
    }

    /// Finds the shard of a session, which never changes.
    async fn locate(&self, name: &str, request: &BufferedRequest) -> Result<String, Problem> {
        let Some(id) = target::id_of(name) else { return self.find(name, self.shards(), request).await };
        if let Some(shard) = self.inner.session_shards.get(id) {
            return Ok(shard);
        }
        let mut found = self.node().registry().locate(id).await.map_err(unreachable)?;
        match found.len() {
            0 => Err(Problem::no_session(name)),
            1 => {
                let shard = found.swap_remove(0);
                self.inner.session_shards.keep(id, shard.clone());
                Ok(shard)
            }
            // The session was also imported into another shard. `find` prefers the shard in which it is not deleted.
            _ => self.find(name, found, request).await,
        }
    }

    /// Finds the shard of a session by querying each of `shards`.
    async fn find(&self, name: &str, shards: Vec<String>, request: &BufferedRequest) -> Result<String, Problem> {
        let path = request.parts.uri.path();
        let segment = path.split('/').find(|segment| target::decode(segment) == name).map(str::to_owned);
        // A name from a body is not in the path and must be encoded.
        let segment = segment.unwrap_or_else(|| utf8_percent_encode(name, NON_ALPHANUMERIC).to_string());
        let mut query = request.clone();
        query.body = Bytes::new();
        query.parts.method = Method::GET;
        query.parts.headers.remove(axum::http::header::CONTENT_TYPE);
        query.parts.uri = format!("/v1/sessions/{segment}").parse::<Uri>().map_err(|_| Problem::no_session(name))?;
        let answers = join_all(shards.iter().map(|shard| self.ask(shard, &query))).await;
        let (mut found, mut deleted) = (Vec::new(), Vec::new());
        for (shard, answer) in shards.into_iter().zip(answers) {
            let answer = answer?;
            match answer.status() {
                StatusCode::NOT_FOUND => {}
                StatusCode::GONE => deleted.push(shard),
                // A shard that cannot answer might have the session.
                status if status.is_server_error() => return Err(no_owner(&shard)),
                // The shard has the session, or the name is ambiguous there, which that shard reports itself.
                _ => found.push(shard),
            }
        }
        if found.is_empty() {
            found.extend(deleted.pop());
        }
        match found.len() {
            0 => Err(Problem::no_session(name)),
            1 => Ok(found.swap_remove(0)),
            _ => {
                let detail = format!("{name:?} names sessions of {}: use the full id of one", found.join(" and "));
                Err(Problem::conflict("ambiguous_session", detail))
            }
        }
    }
}

/// The shard that this request chose for a new session, with the hash of the request's key.
struct NewChoice {
    key: blake3::Hash,
    placement: Placement,
}

/// Returns whether a shard refused a command because of its content, so that a repetition has no effect either.
fn is_invalid(status: StatusCode) -> bool {
    status.is_client_error()
        && ![StatusCode::CONFLICT, StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status)
}

/// Returns the key of a request, if hosts accept it.
fn key_of(request: &BufferedRequest) -> Option<&HeaderValue> {
    request.parts.headers.get("idempotency-key").filter(|key| (1..=256).contains(&key.len()))
}

async fn answer(State(gateway): State<Gateway>, request: Request) -> Response {
    gateway.answer(request).await.unwrap_or_else(IntoResponse::into_response)
}

fn not_here(shard: &str) -> Response {
    let mut response = no_owner(shard).into_response();
    response.headers_mut().insert(NOT_HERE, HeaderValue::from_static("1"));
    response
}

pub(crate) fn no_owner(shard: &str) -> Problem {
    let detail =
        format!("no node owns {shard} now: another node takes over within the time of a lease. Send the request again");
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_owner", detail) }
}

fn busy_problem() -> Problem {
    let detail =
        "too many requests to other nodes are open: close streams of events, or ask the node that has the shard";
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
}

fn no_shard_open(who_has: &str) -> Problem {
    let detail = format!("{who_has} shard now. Send the request again");
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_owner", detail) }
}

fn no_shard(shard: &str, known: &[String]) -> Problem {
    Problem::invalid("unknown_shard", format!("unknown shard {shard:?}: the shards are {}", known.join(", ")))
}

fn unknown_owner_error(owner: &str, why: &str) -> Problem {
    let detail = format!(
        "node {owner} ended the connection before it answered: {why}. Whether the command took effect is unknown: check, or send it again \
         with the Idempotency-Key that it had"
    );
    Problem::new(StatusCode::BAD_GATEWAY, "outcome_unknown", detail)
}

fn unreachable(error: NodeError) -> Problem {
    let detail = format!("{error}. Send the request again");
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_failed", detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_key_is_freed_only_if_its_command_was_invalid() {
        let is_kept = |code: &u16| !is_invalid(StatusCode::from_u16(*code).unwrap());
        assert!((100..600).filter(is_kept).eq((100..400).chain([408, 409, 429]).chain(500..600)));
    }
}
