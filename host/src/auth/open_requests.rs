//! Limits how many requests each sender has open at a time.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::StreamExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SenderId;
use crate::problem::Problem;
use crate::shared_by_key::SharedByKey;

/// The open requests, including event streams.
#[derive(Debug)]
pub(super) struct OpenRequests {
    per_sender: usize,
    open: SharedByKey<SenderId, Semaphore>,
}

#[derive(Debug)]
pub(super) struct RequestPermit(OwnedSemaphorePermit);

impl OpenRequests {
    /// Creates the limit for a host with `connections`: each sender leaves an eighth of them to others.
    pub(super) fn new(connections: usize) -> Self {
        Self { per_sender: connections.saturating_sub(connections / 8).max(1), open: SharedByKey::default() }
    }

    /// Returns a permit for a request.
    ///
    /// # Errors
    /// [`Problem`] `busy` if the sender has taken all of its permits.
    pub(super) fn try_acquire(&self, sender: SenderId) -> Result<RequestPermit, Problem> {
        let own = self.open.get(sender, || Semaphore::new(self.per_sender));
        let permit = Arc::clone(&own).try_acquire_owned().map_err(|_| {
            let detail = format!("{} requests with this token or login are open: end one, or wait", self.per_sender);
            Problem { retry_after: Some(1), ..Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail) }
        })?;
        Ok(RequestPermit(permit))
    }
}

impl RequestPermit {
    /// Keeps the permit until a streamed response has ended.
    pub(super) fn hold_until_sent(self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        response.map(|body| {
            Body::from_stream(body.into_data_stream().inspect(move |_| {
                let Self(_held) = &self;
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: another sender has its own permits.
    #[tokio::test]
    async fn sender_with_all_its_permits_is_refused_and_others_pass() {
        let requests = OpenRequests::new(16);
        let [one, other] = [b"one".as_slice(), b"other"].map(|token| SenderId::of(blake3::hash(token)));
        let mut open: Vec<_> = (0..14).map(|_| requests.try_acquire(one).expect("a permit")).collect();
        let refused = requests.try_acquire(one).expect_err("all permits are taken");
        assert_eq!((refused.status, refused.code, refused.retry_after), (429, "busy", Some(1)));
        drop(requests.try_acquire(other).expect("a permit"));
        let stream = Body::from_stream(futures_util::stream::pending::<Result<&[u8], std::io::Error>>());
        let streaming = open.pop().expect("one").hold_until_sent(Response::new(stream));
        assert!(requests.try_acquire(one).is_err(), "a stream keeps its permit");
        drop(streaming);
        let answered = requests.try_acquire(one).expect("a permit").hold_until_sent(Response::new(Body::from("done")));
        drop(requests.try_acquire(one).expect("a response releases its permit"));
        drop(answered);
    }
}
