//! Requests that one node of a database forwards to another. The first node checks and signs them.
//!
//! The signature covers method, address, body, grant, receiver and relevant headers. It is valid for one request within
//! [`MAX_AGE_MS`], by the clock of the database. Responses are not signed: nodes trust the network between them, as
//! clients trust the network to their host.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};

use super::SenderId;
use super::grant::TokenGrant;
use super::tokens::{TokenError, TokenScope, secret};
use crate::problem::Problem;

/// Header of a forwarded request: `GRANT TIME NONCE BODY SIGNATURE`.
const HEADER: &str = "subtend-forwarded";
/// Header of a response to a request whose signature was refused. The request had no effect, so the sending node may
/// sign and send it again.
pub const REFUSED: &str = "subtend-signature-refused";
/// Time in ms for which a signature is valid, and maximum difference between the clocks of nodes.
const MAX_AGE_MS: u64 = 30_000;
/// Headers that change the effect of a request, so they are signed.
const SIGNED: [HeaderName; 4] = [
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("last-event-id"),
    header::CONTENT_TYPE,
    header::ACCEPT,
];

/// Clock in ms that all nodes of a database share.
pub type NodeClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Signatures, sorted by time.
type SeenSignatures = BTreeSet<(u64, [u8; 32])>;

/// Marks a request that another node forwarded. It is not forwarded again.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded {
    body: blake3::Hash,
    sender: SenderId,
}

impl Forwarded {
    pub(super) fn sender(self) -> SenderId {
        self.sender
    }

    /// Checks that `body` is the body that was signed.
    ///
    /// # Errors
    /// The problem to respond with; the request must not take effect.
    pub fn check(self, body: &[u8]) -> Result<(), Problem> {
        if blake3::hash(body) == self.body { Ok(()) } else { Err(refusal()) }
    }
}

/// The shared secret of the nodes of a database, with the name of the receiver.
#[derive(Clone)]
pub struct NodeKey {
    key: [u8; 32],
    receiver: String,
    clock: NodeClock,
    /// Creation time. Older signatures were made for an earlier process with the same name.
    made: u64,
    /// Signatures that were used and have not expired.
    seen: Arc<Mutex<SeenSignatures>>,
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKey").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

/// The signed fields that are not part of the request.
struct SignedFields {
    grant: TokenGrant,
    time: u64,
    nonce: String,
    body: blake3::Hash,
}

impl NodeKey {
    /// Creates a key from the shared secret, the name of the receiving node, and the shared clock.
    pub fn new(shared: &[u8], receiver: impl Into<String>, clock: NodeClock) -> Self {
        let key = blake3::derive_key("subtend host: requests between nodes", shared);
        Self { key, receiver: receiver.into(), made: clock(), clock, seen: Arc::default() }
    }

    /// Returns the key for another receiver.
    #[must_use]
    pub fn to(&self, receiver: impl Into<String>) -> Self {
        Self { receiver: receiver.into(), ..self.clone() }
    }

    /// Signs a request with this body and the rights of `grant`, for one use.
    ///
    /// # Errors
    /// [`TokenError::NoRandomness`].
    pub fn sign(&self, request: &mut Request, body: &[u8], grant: TokenGrant) -> Result<(), TokenError> {
        let random = secret().ok_or(TokenError::NoRandomness)?;
        // The nonce contains the sender, since nodes of earlier versions do not accept a further field.
        let sender = request.extensions().get::<SenderId>();
        let nonce = sender.map_or(random.clone(), |SenderId(id)| format!("{id:x}.{random}"));
        let signed = SignedFields { grant, time: (self.clock)(), nonce, body: blake3::hash(body) };
        let signature = self.signature(request, &signed).to_hex();
        let SignedFields { grant, time, nonce, body } = signed;
        if let Ok(value) = HeaderValue::try_from(format!("{grant} {time} {nonce} {} {signature}", body.to_hex())) {
            request.headers_mut().insert(HEADER, value);
        }
        Ok(())
    }

    /// Returns the rights of a forwarded request; `None` if the request was not forwarded.
    pub(super) fn forwarded_grant(&self, request: &Request) -> Option<Result<(TokenGrant, Forwarded), Problem>> {
        request.headers().contains_key(HEADER).then(|| self.verify(request).ok_or_else(refusal))
    }

    fn verify(&self, request: &Request) -> Option<(TokenGrant, Forwarded)> {
        let mut values = request.headers().get_all(HEADER).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        let parts: Vec<&str> = value.to_str().ok()?.split(' ').collect();
        let [grant, time, nonce, body, signature] = parts[..] else { return None };
        let grant: TokenGrant = grant.parse().ok()?;
        let (time, body) = (time.parse().ok()?, blake3::Hash::from_hex(body).ok()?);
        let id = nonce.split_once('.').and_then(|(id, _)| u64::from_str_radix(id, 16).ok());
        let sender = id.map_or(SenderId::UNKNOWN, SenderId);
        let signed = SignedFields { grant, time, nonce: nonce.to_owned(), body };
        let expected = self.signature(request, &signed);
        // Hashes are compared in constant time.
        let is_signed = blake3::Hash::from_hex(signature).is_ok_and(|signature| signature == expected);
        let grant = signed.grant;
        let fits = grant.scope().allows(TokenScope::required_scope(request.method(), request.uri().path()));
        (is_signed && fits && self.is_fresh(time, expected)).then_some((grant, Forwarded { body, sender }))
    }

    /// Returns whether a signature made at `time` has not expired and was not used before.
    fn is_fresh(&self, time: u64, signature: blake3::Hash) -> bool {
        let now = (self.clock)();
        let oldest = now.saturating_sub(MAX_AGE_MS).max(self.made);
        if !(oldest..=now.saturating_add(MAX_AGE_MS)).contains(&time) {
            return false;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.first().is_some_and(|(time, _)| *time < oldest) {
            seen.pop_first();
        }
        seen.insert((time, *signature.as_bytes()))
    }

    fn signature(&self, request: &Request, signed: &SignedFields) -> blake3::Hash {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let (grant, time) = (signed.grant.to_string(), signed.time.to_string());
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        };
        for part in [&*self.receiver, request.method().as_str(), path, &*grant, &*time, &*signed.nonce] {
            add(part.as_bytes());
        }
        add(signed.body.as_bytes());
        for name in &SIGNED {
            let values = request.headers().get_all(name);
            add(&(values.iter().count() as u64).to_le_bytes());
            values.iter().for_each(|value| add(value.as_bytes()));
        }
        hasher.finalize()
    }
}

fn refusal() -> Problem {
    let detail = "the signature of the node that forwarded this request is not valid here, or no longer: ask a node by its address";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::body::Body;
    use axum::http::Method;

    use super::*;

    const BODY: &[u8] = b"{}";

    /// Returns the key of node `b` at 100 s, and its clock.
    fn key_at(secret: &[u8]) -> (NodeKey, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(100_000));
        let clock = Arc::clone(&now);
        (NodeKey::new(secret, "b", Arc::new(move || clock.load(Ordering::Relaxed))), now)
    }

    fn request(method: Method, path: &str) -> Request {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        request
    }

    fn signed_request(key: &NodeKey, method: Method, path: &str, scope: TokenScope) -> Request {
        let mut request = request(method, path);
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static("once"));
        key.sign(&mut request, BODY, scope.into()).unwrap();
        request
    }

    /// The owner of a shard divides its read permits among senders, so the forwarding node must name them. The control:
    /// a request of an earlier version.
    #[test]
    fn forwarded_request_names_its_sender() {
        let (key, _) = key_at(b"shared");
        let sender = SenderId::of(blake3::hash(b"token"));
        let mut named = request(Method::GET, "/v1/sessions");
        named.extensions_mut().insert(sender);
        key.sign(&mut named, BODY, TokenScope::Read.into()).unwrap();
        let unnamed = signed_request(&key, Method::GET, "/v1/sessions", TokenScope::Read);
        let found = [named, unnamed].map(|request| key.forwarded_grant(&request).unwrap().unwrap().1.sender());
        assert_eq!(found, [sender, SenderId::UNKNOWN]);
    }

    fn scope(key: &NodeKey, request: &Request) -> Option<Result<TokenScope, &'static str>> {
        let of = key.forwarded_grant(request);
        of.map(|of| of.map(|(grant, _)| grant.scope()).map_err(|problem| problem.code))
    }

    const REFUSED: Option<Result<TokenScope, &str>> = Some(Err("unauthorized"));

    #[test]
    fn d4_signature_names_request_scope_and_receiver() {
        let (key, _) = key_at(b"secret");
        let path = "/v1/sessions?label=x";
        assert_eq!(scope(&key, &request(Method::POST, path)), None, "it is not forwarded");
        let sent = signed_request(&key, Method::POST, path, TokenScope::Act);
        assert_eq!(scope(&key.to("c"), &sent), REFUSED, "another node");
        assert_eq!(scope(&key_at(b"other").0, &sent), REFUSED, "another database");
        for (method, path) in [(Method::PUT, path), (Method::POST, "/v1/sessions?label=y")] {
            let mut other = request(method, path);
            other.headers_mut().extend(sent.headers().clone());
            assert_eq!(scope(&key, &other), REFUSED, "{}", other.uri());
        }
        let changed = |name: &'static str, value: &str| {
            let mut other = request(Method::POST, path);
            other.headers_mut().extend(sent.headers().clone());
            other.headers_mut().insert(name, value.parse().unwrap());
            scope(&key, &other)
        };
        let value = sent.headers()[HEADER].to_str().unwrap();
        assert_eq!(changed(HEADER, &value.replace("act", "admin")), REFUSED, "a larger scope");
        assert_eq!(changed(HEADER, &value.replace("100000", "100001")), REFUSED, "another time");
        assert_eq!(changed("idempotency-key", "twice"), REFUSED, "another idempotency key");
        assert_eq!(changed("last-event-id", "7"), REFUSED, "an added header");
        // Positive control: the refused requests did not use up the signature.
        assert_eq!(changed("user-agent", "x"), Some(Ok(TokenScope::Act)));
    }

    #[test]
    fn d4_signature_is_valid_once_and_for_half_a_minute() {
        let (key, now) = key_at(b"secret");
        let send = || signed_request(&key, Method::POST, "/v1/sessions", TokenScope::Act);
        let (first, late, last) = (send(), send(), send());
        assert_eq!(scope(&key, &first), Some(Ok(TokenScope::Act)));
        assert_eq!(scope(&key, &first), REFUSED, "sent again");
        now.store(130_000, Ordering::Relaxed);
        assert_eq!(scope(&key, &last), Some(Ok(TokenScope::Act)));
        now.store(130_001, Ordering::Relaxed);
        assert_eq!(scope(&key, &late), REFUSED, "too late");
        let early = send();
        now.store(100_000, Ordering::Relaxed);
        assert_eq!(scope(&key, &early), REFUSED, "signed by a clock that is ahead");
        let before = send();
        now.store(100_001, Ordering::Relaxed);
        let restarted = NodeKey::new(b"secret", "b", Arc::clone(&key.clock));
        assert_eq!(scope(&restarted, &before), REFUSED, "an earlier process may have seen it");
        // Expired signatures are removed.
        now.store(200_000, Ordering::Relaxed);
        assert_eq!(scope(&key, &send()), Some(Ok(TokenScope::Act)));
        assert_eq!(key.seen.lock().unwrap().len(), 1);
    }

    #[test]
    fn d4_signature_covers_the_body() {
        let (key, _) = key_at(b"secret");
        let sent = signed_request(&key, Method::POST, "/v1/sessions", TokenScope::Act);
        let (_, forwarded) = key.forwarded_grant(&sent).unwrap().unwrap();
        assert!(forwarded.check(BODY).is_ok());
        assert_eq!(forwarded.check(b"{ }").map_err(|problem| problem.code), Err("unauthorized"));
    }

    #[test]
    fn d4_signed_scope_still_bounds_the_route() {
        let (key, _) = key_at(b"secret");
        assert_eq!(scope(&key, &signed_request(&key, Method::DELETE, "/v1/sessions/x", TokenScope::Act)), REFUSED);
        let tools = ["seek".to_owned()];
        let grant = TokenGrant::new(TokenScope::Work, Some(&tools));
        let mut sent = request(Method::POST, "/v1/workers/take");
        key.sign(&mut sent, BODY, grant.clone()).unwrap();
        let value = sent.headers()[HEADER].to_str().unwrap().to_owned();
        sent.headers_mut().insert(HEADER, value.replace(":seek", "").parse().unwrap());
        assert_eq!(scope(&key, &sent), REFUSED, "more tools");
        sent.headers_mut().insert(HEADER, value.parse().unwrap());
        assert_eq!(key.forwarded_grant(&sent).unwrap().unwrap().0, grant);
        for (of, may) in [(TokenScope::Read, false), (TokenScope::Act, false), (TokenScope::Work, true)] {
            let sent = signed_request(&key, Method::POST, "/v1/workers/take", of);
            assert_eq!(key.forwarded_grant(&sent).unwrap().is_ok(), may, "{of}");
        }
    }
}
