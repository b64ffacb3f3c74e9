//! Ends waiting requests and streams when their token is revoked or their login ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::response::Response;
use blake3::Hash;
use futures_util::{StreamExt as _, stream};

use super::grant::TokenGrant;
use super::open_requests::RequestPermit;
use super::own_file::FileVersion;
use super::{Guard, SenderId};

/// Interval of the checks while a request waits or a stream is idle.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The credential that admitted a request.
#[derive(Debug)]
pub(crate) struct Access {
    guard: Guard,
    by: Credential,
    /// Held until a streamed response has ended.
    _permit: RequestPermit,
}

#[derive(Debug)]
pub(super) enum Credential {
    /// A token with its grant, and the version of the file that contained it.
    Token {
        hash: Hash,
        grant: TokenGrant,
        seen: Mutex<Option<FileVersion>>,
    },
    Login(Hash),
}

impl Credential {
    pub(super) fn token(hash: Hash, grant: TokenGrant, seen: Option<FileVersion>) -> Self {
        Self::Token { hash, grant, seen: Mutex::new(seen) }
    }

    pub(super) fn hash(&self) -> Hash {
        match self {
            Self::Token { hash, .. } | Self::Login(hash) => *hash,
        }
    }
}

/// Whether a token or a login may be used, as far as the host can find out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Validity {
    Valid,
    Ended,
    /// The token file has changed and cannot be read now. Nothing may be sent, but nothing was revoked.
    Unknown,
}

impl Access {
    pub(super) fn new(guard: Guard, by: Credential, permit: RequestPermit) -> Self {
        Self { guard, by, _permit: permit }
    }

    pub(super) fn sender_id(&self) -> SenderId {
        SenderId::of(self.by.hash())
    }

    /// Returns whether the token or login is known to be valid.
    pub(crate) fn is_valid(&self) -> bool {
        self.validity() == Validity::Valid
    }

    /// Checks the token or login. The token file is read only if it has changed.
    pub(super) fn validity(&self) -> Validity {
        let inner = &self.guard.inner;
        let of = |lasts| if lasts { Validity::Valid } else { Validity::Ended };
        match &self.by {
            Credential::Login(login) => of(inner.logins.is_open_hash(login)),
            Credential::Token { hash, grant, seen } => {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                let version = inner.tokens.version();
                if version.is_some() && version == *seen {
                    return Validity::Valid;
                }
                let Ok(found) = inner.tokens.grant_of_hash(*hash) else { return Validity::Unknown };
                let lasts = found.as_ref() == Some(grant);
                *seen = version.filter(|_| lasts);
                of(lasts)
            }
        }
    }

    pub(super) async fn wait_until_ended(&self) {
        while self.validity() != Validity::Ended {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Waits while the token file cannot be read. Returns whether the token or login is valid then.
    async fn wait_until_known(&self) -> bool {
        loop {
            match self.validity() {
                Validity::Valid => return true,
                Validity::Ended => return false,
                Validity::Unknown => tokio::time::sleep(CHECK_INTERVAL).await,
            }
        }
    }

    /// Ends a stream with an error when the access ends, so that clients notice that it is incomplete.
    pub(super) fn bound(self: Arc<Self>, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            let pieces = stream::unfold(Some((body.into_data_stream(), self)), async |open| {
                let (mut from, access) = open?;
                let piece = tokio::select! {
                    biased;
                    piece = from.next() => piece?,
                    () = access.wait_until_ended() => return Some((Err(ended_error()), None)),
                };
                if !access.wait_until_known().await {
                    return Some((Err(ended_error()), None));
                }
                Some((piece, Some((from, access))))
            });
            Body::from_stream(pieces)
        })
    }
}

fn ended_error() -> axum::Error {
    axum::Error::new(std::io::Error::other("the token was revoked, or the login has ended"))
}
