//! Requests that one node of a database forwards to another: checked where they arrived, and signed.
//!
//! The signature covers method, address, scope and receiver, and not the body: nodes trust the network between them as far as a client
//! trusts the network to its host.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri};

use super::tokens::TokenScope;
use crate::problem::Problem;

/// Header of a forwarded request: `SCOPE SIGNATURE`.
const HEADER: &str = "subtend-forwarded";

/// Marks a request that another node forwarded: it is answered here, or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded;

/// The secret that the nodes of a database share, and the name by which others know this one.
#[derive(Clone)]
pub struct NodeKey {
    key: [u8; 32],
    receiver: String,
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKey").field("receiver", &self.receiver).finish_non_exhaustive()
    }
}

impl NodeKey {
    /// Takes the secret, and the name of the node that receives what is signed.
    pub fn new(secret: &[u8], receiver: impl Into<String>) -> Self {
        let key = blake3::derive_key("subtend host: requests between nodes", secret);
        Self { key, receiver: receiver.into() }
    }

    /// Names another receiver.
    #[must_use]
    pub fn to(&self, receiver: impl Into<String>) -> Self {
        Self { key: self.key, receiver: receiver.into() }
    }

    /// Signs a request, which may do what `scope` allows.
    pub fn sign(&self, request: &mut Request, scope: TokenScope) {
        let signature = self.signature(request.method(), request.uri(), scope);
        if let Ok(value) = HeaderValue::try_from(format!("{scope} {}", signature.to_hex())) {
            request.headers_mut().insert(HEADER, value);
        }
    }

    /// Returns the scope of a request that says that another node forwarded it; `None` for one that does not.
    pub(super) fn forwarded(&self, request: &Request) -> Option<Result<TokenScope, Problem>> {
        let mut values = request.headers().get_all(HEADER).iter();
        let signed = values.next()?;
        let read = || {
            let (scope, hex) = signed.to_str().ok()?.split_once(' ')?;
            let scope = [TokenScope::Read, TokenScope::Act, TokenScope::Admin, TokenScope::Work]
                .into_iter()
                .find(|of| of.to_string() == scope)?;
            let hash = blake3::Hash::from_hex(hex).ok()?;
            // Compared in constant time, as hashes are.
            (self.signature(request.method(), request.uri(), scope) == hash).then_some(scope)
        };
        let scope = read().filter(|scope| {
            values.next().is_none() && scope.allows(TokenScope::needed(request.method(), request.uri().path()))
        });
        Some(scope.ok_or_else(|| {
            let detail =
                "the signature of the node that forwarded this request is not valid here: ask a node by its address";
            Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
        }))
    }

    fn signature(&self, method: &Method, uri: &Uri, scope: TokenScope) -> blake3::Hash {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in [&*self.receiver, method.as_str(), path, &scope.to_string()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: Method, path: &str) -> Request {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        request
    }

    fn code(of: Option<Result<TokenScope, Problem>>) -> Option<Result<TokenScope, &'static str>> {
        of.map(|of| of.map_err(|problem| problem.code))
    }

    #[test]
    fn d4_signature_names_request_scope_and_receiver() {
        let key = NodeKey::new(b"secret", "b");
        let mut signed = request(Method::POST, "/v1/sessions?label=x");
        assert_eq!(code(key.forwarded(&signed)), None, "it is not forwarded");
        key.sign(&mut signed, TokenScope::Act);
        assert_eq!(code(key.forwarded(&signed)), Some(Ok(TokenScope::Act)));
        let refused = Some(Err("unauthorized"));
        assert_eq!(code(key.to("c").forwarded(&signed)), refused, "another node");
        assert_eq!(code(NodeKey::new(b"other", "b").forwarded(&signed)), refused, "another database");
        for (method, path) in [(Method::PUT, "/v1/sessions?label=x"), (Method::POST, "/v1/sessions?label=y")] {
            let mut other = request(method, path);
            other.headers_mut().extend(signed.headers().clone());
            assert_eq!(code(key.forwarded(&other)), refused, "{}", other.uri());
        }
        let value = signed.headers()[HEADER].to_str().unwrap().replace("act", "admin");
        signed.headers_mut().insert(HEADER, value.parse().unwrap());
        assert_eq!(code(key.forwarded(&signed)), refused, "a larger scope");
    }

    #[test]
    fn d4_signed_scope_still_bounds_the_route() {
        let key = NodeKey::new(b"secret", "b");
        let mut signed = request(Method::DELETE, "/v1/sessions/x");
        key.sign(&mut signed, TokenScope::Act);
        assert_eq!(code(key.forwarded(&signed)), Some(Err("unauthorized")));
        for (scope, may) in [(TokenScope::Read, false), (TokenScope::Act, false), (TokenScope::Work, true)] {
            let mut signed = request(Method::POST, "/v1/workers/take");
            key.sign(&mut signed, scope);
            assert_eq!(key.forwarded(&signed).unwrap().is_ok(), may, "{scope}");
        }
    }
}
