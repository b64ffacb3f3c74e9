//! Requests of clients: which shard they concern, and who answers.
//!
//! A client reaches every session of the database through any node. A request that concerns one session is answered by the node that has its
//! shard; while none has it, the request waits. What concerns all shards is asked of each, and put together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{self, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, Uri, request};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use subtend_host::auth::{Forwarded, TokenScope, scope_of};
use subtend_host::problem::Problem;
use subtend_journal::postgres::nodes::NodeError;
use tokio::time::{Instant, timeout, timeout_at};
use tower::ServiceExt as _;

use crate::forward::{NoAnswer, forward};
use crate::merge;
use crate::node::Node;
use places::SessionShards;
pub(crate) use target::Merge;
use target::{RequestTarget, Wanted};

mod places;
mod target;

/// Bytes of a request body, as the hosts of shards take them.
const BODY: usize = 4 << 20;
/// Time for a whole request body.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Marks an answer of a node that does not have the shard: the request took no effect.
const NOT_HERE: &str = "subtend-not-here";

/// Answers requests for all shards. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gateway {
    inner: Arc<GatewayShared>,
}

#[derive(Debug)]
struct GatewayShared {
    node: Node,
    places: SessionShards,
    /// New sessions go to shards in turn.
    turn: AtomicUsize,
}

/// A request whose body has arrived, so that it can be sent again.
#[derive(Clone, Debug)]
pub(crate) struct BufferedRequest {
    pub(crate) parts: request::Parts,
    pub(crate) body: Bytes,
    scope: Option<TokenScope>,
    /// Another node forwarded it: it is answered here, or not at all.
    forwarded: bool,
}

impl Gateway {
    /// Answers requests through `node`.
    pub fn new(node: Node) -> Self {
        Self { inner: Arc::new(GatewayShared { node, places: SessionShards::default(), turn: AtomicUsize::new(0) }) }
    }

    /// Returns the API of all shards, without a check of who sends a request: [`Guard::protect`](subtend_host::auth::Guard::protect) adds
    /// that, with the key of the node ([`Node::key`]).
    pub fn router(&self) -> Router {
        Router::new().fallback(answer).with_state(self.clone())
    }

    pub(crate) fn node(&self) -> &Node {
        &self.inner.node
    }

    /// Names of all shards.
    pub(crate) fn shards(&self) -> Vec<String> {
        self.node().members().shards.iter().map(|shard| shard.name.clone()).collect()
    }

    async fn answered(&self, request: Request) -> Result<Response, Problem> {
        let (scope, forwarded) = (scope_of(&request), request.extensions().get::<Forwarded>().is_some());
        let (parts, body) = request.into_parts();
        let wanted = Wanted::of(&parts);
        if let Some(own) = self.own(&parts) {
            return own;
        }
        let read = timeout(BODY_TIME, body::to_bytes(body, BODY)).await;
        let body = match read {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => {
                let detail = format!("the body cannot be read: {error}. It may have {BODY} bytes at most");
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
            }
            Err(_) => return Err(Problem::malformed("the body did not arrive within 30 s: send it again")),
        };
        let mut asked = BufferedRequest { parts, body, scope, forwarded };
        if wanted.shard.is_some() || wanted.label.is_some() {
            asked.parts.uri = wanted.rest.clone();
        }
        match wanted.shard {
            Some(shard) if self.shards().contains(&shard) => self.ask(&shard, &asked).await,
            Some(shard) => Err(no_shard(&shard, &self.shards())),
            None => self.routed(RequestTarget::of(&asked.parts), wanted.label, asked).await,
        }
    }

    async fn routed(
        &self,
        target: RequestTarget,
        label: Option<String>,
        asked: BufferedRequest,
    ) -> Result<Response, Problem> {
        match target {
            RequestTarget::Session(name) => {
                let shard = self.locate(&name, &asked).await?;
                self.ask(&shard, &asked).await
            }
            RequestTarget::New(kind) => {
                let shard = self.place(kind, label.as_deref(), &asked).await?;
                self.ask(&shard, &asked).await
            }
            RequestTarget::Any => {
                let shard = self.candidates(None).into_iter().next().ok_or_else(none_open)?;
                self.ask(&shard, &asked).await
            }
            RequestTarget::Every => {
                // All of them, or the first refusal.
                let mut answer = Err(none_open());
                for shard in self.shards() {
                    let one = self.ask(&shard, &asked).await?;
                    if !one.status().is_success() {
                        return Ok(one);
                    }
                    answer = Ok(one);
                }
                answer
            }
            RequestTarget::Merged(of) => merge::answer(self, of, asked).await,
        }
    }

    /// Answers what concerns this node alone.
    fn own(&self, parts: &request::Parts) -> Option<Result<Response, Problem>> {
        let node = self.node();
        let get = parts.method == Method::GET;
        match parts.uri.path() {
            "/healthz" if get => Some(Ok(StatusCode::NO_CONTENT.into_response())),
            "/readyz" if get => Some(match node.is_live() && !node.ends().is_cancelled() {
                true => Ok(StatusCode::NO_CONTENT.into_response()),
                false => {
                    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the node has no lease, or ends"))
                }
            }),
            "/v1/nodes" if get => Some(Ok(axum::Json(self.described()).into_response())),
            _ => None,
        }
    }

    fn described(&self) -> serde_json::Value {
        let members = self.node().members();
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

    /// Sends a request to the node that has `shard`, and waits for one while none has.
    pub(crate) async fn ask(&self, shard: &str, asked: &BufferedRequest) -> Result<Response, Problem> {
        let node = self.node();
        let times = node.times();
        let give_up = Instant::now() + times.lease + times.heartbeat * 2;
        let mut changes = node.changes();
        // The other node answers for this shard alone.
        let mut parts = asked.parts.clone();
        parts.uri = target::with_shard(&parts.uri, shard);
        loop {
            if let Some(open) = node.host(shard) {
                let request = Request::from_parts(asked.parts.clone(), body::Body::from(asked.body.clone()));
                let Ok(answer) = open.router.oneshot(request).await;
                return Ok(answer);
            }
            if asked.forwarded {
                return Ok(not_here(shard));
            }
            let members = node.members();
            let owner = members.owner(shard).filter(|owner| owner.name != node.name());
            if let Some(owner) = owner {
                // A request over the Unix socket of a node may do everything that another node lets a token do.
                let scope = asked.scope.unwrap_or(TokenScope::Admin);
                let lost = node.lost(shard, &owner.lease);
                match forward(owner, node.key(), scope, (&parts, &asked.body), lost).await {
                    Ok(answer) if answer.headers().contains_key(NOT_HERE) => {}
                    Ok(answer) => return Ok(answer),
                    Err(NoAnswer::NotSent(why)) => {
                        tracing::debug!(shard, owner = owner.name, why, "the owner is not reached")
                    }
                    // Reading again is safe.
                    Err(NoAnswer::Unknown(_)) if asked.parts.method == Method::GET => {}
                    Err(NoAnswer::Unknown(why)) => return Err(unknown(&owner.name, &why)),
                }
            }
            // The rows may be older than the change: a look at them is bounded, and so is the whole wait.
            let pause = (Instant::now() + times.heartbeat / 10).min(give_up);
            drop(timeout_at(pause, changes.changed()).await);
            if Instant::now() >= give_up {
                return Err(no_owner(shard));
            }
        }
    }

    /// Shards for a new session, by label: those that are open here first, in turn.
    fn candidates(&self, label: Option<&str>) -> Vec<String> {
        let members = self.node().members();
        let fit = members
            .shards
            .iter()
            .filter(|shard| shard.label.as_deref() == label && members.owner(&shard.name).is_some());
        let (own, others): (Vec<String>, Vec<String>) =
            fit.map(|shard| shard.name.clone()).partition(|shard| self.node().host(shard).is_some());
        let mut fit = if own.is_empty() { others } else { own };
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let by = turn.checked_rem(fit.len()).unwrap_or(0);
        fit.rotate_left(by);
        fit
    }

    /// Chooses the shard of a new session. A command with a key that is sent again, to any node, gets the same one.
    async fn place(&self, kind: &str, label: Option<&str>, asked: &BufferedRequest) -> Result<String, Problem> {
        if let Some(label) = label.filter(|label| !self.has_label(label)) {
            let detail = format!("no shard has the label {label:?}: GET /v1/nodes lists shards and their labels");
            return Err(Problem::invalid("unknown_label", detail));
        }
        let times = self.node().times();
        let give_up = Instant::now() + times.lease + times.heartbeat * 2;
        let shard = loop {
            match self.candidates(label).into_iter().next() {
                Some(shard) => break shard,
                None if Instant::now() >= give_up => return Err(none_open()),
                None => tokio::time::sleep(times.heartbeat / 10).await,
            }
        };
        match asked.parts.headers.get("idempotency-key") {
            Some(key) if !asked.forwarded => {
                let key = [kind.as_bytes(), b" ", key.as_bytes()].concat();
                self.node().registry().place(&key, &shard).await.map_err(unreachable)
            }
            _ => Ok(shard),
        }
    }

    fn has_label(&self, label: &str) -> bool {
        self.node().members().shards.iter().any(|shard| shard.label.as_deref() == Some(label))
    }

    /// Finds the shard of a session, which never changes.
    async fn locate(&self, name: &str, asked: &BufferedRequest) -> Result<String, Problem> {
        let Some(id) = target::id_of(name) else { return self.find(name, asked).await };
        if let Some(shard) = self.inner.places.get(id) {
            return Ok(shard);
        }
        let found = self.node().registry().locate(id).await.map_err(unreachable)?;
        let shard = found.ok_or_else(|| Problem::no_session(name))?;
        self.inner.places.keep(id, shard.clone());
        Ok(shard)
    }

    /// Finds the shard of a session by another name than its id: each shard is asked.
    async fn find(&self, name: &str, asked: &BufferedRequest) -> Result<String, Problem> {
        let path = asked.parts.uri.path();
        let segment = path.split('/').find(|segment| target::decoded(segment) == name).unwrap_or(name);
        let mut look = asked.clone();
        look.body = Bytes::new();
        look.parts.method = Method::GET;
        look.parts.headers.remove(axum::http::header::CONTENT_TYPE);
        look.parts.uri = format!("/v1/sessions/{segment}").parse::<Uri>().map_err(|_| Problem::no_session(name))?;
        let mut found = Vec::new();
        for shard in self.shards() {
            let answer = self.ask(&shard, &look).await?;
            match answer.status() {
                StatusCode::NOT_FOUND => {}
                // Ambiguous there, or deleted: that shard says so again.
                _ => found.push(shard),
            }
        }
        match found.len() {
            0 => Err(Problem::no_session(name)),
            1 => Ok(found.swap_remove(0)),
            _ => {
                let detail = format!("{name:?} names sessions of {}: use the whole id of one", found.join(" and "));
                Err(Problem::conflict("ambiguous_session", detail))
            }
        }
    }
}

async fn answer(State(gateway): State<Gateway>, request: Request) -> Response {
    gateway.answered(request).await.unwrap_or_else(IntoResponse::into_response)
}

fn not_here(shard: &str) -> Response {
    let mut response = no_owner(shard).into_response();
    response.headers_mut().insert(NOT_HERE, HeaderValue::from_static("1"));
    response
}

fn no_owner(shard: &str) -> Problem {
    let detail = format!("no node has {shard} now: its sessions are taken over within a lease. Send the request again");
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_owner", detail) }
}

fn none_open() -> Problem {
    let detail = "no node has a shard now. Send the request again";
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_owner", detail) }
}

fn no_shard(shard: &str, known: &[String]) -> Problem {
    Problem::invalid("unknown_shard", format!("no shard {shard:?}: the shards are {}", known.join(", ")))
}

fn unknown(owner: &str, why: &str) -> Problem {
    let detail = format!(
        "node {owner} ended the connection before it answered: {why}. Whether the command took effect is unknown: look, or send it again \
         with the Idempotency-Key that it had"
    );
    Problem::new(StatusCode::BAD_GATEWAY, "outcome_unknown", detail)
}

fn unreachable(error: NodeError) -> Problem {
    let detail = format!("{error}. Send the request again");
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_failed", detail) }
}
