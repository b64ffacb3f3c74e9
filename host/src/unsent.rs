//! Limits the bytes of responses that clients have not read yet.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;
use crate::reads::{ReadSender, busy};
use crate::shared_by_key::SharedByKey;

/// Maximum KiB of large responses, of all senders and of one token or login.
const ALL_KIB: usize = 160 << 10;
const SENDER_KIB: usize = ALL_KIB / 2;
/// Maximum bytes of a response that is not counted.
const SMALL_BYTES: usize = 64 << 10;

/// The large responses that are in memory until their clients have read them.
#[derive(Debug)]
pub(crate) struct UnsentResponses {
    all: Arc<Semaphore>,
    by: SharedByKey<ReadSender, Semaphore>,
}

impl Default for UnsentResponses {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL_KIB)), by: SharedByKey::default() }
    }
}

struct UnsentBytes {
    bytes: Bytes,
    _permits: [OwnedSemaphorePermit; 2],
}

impl AsRef<[u8]> for UnsentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl UnsentResponses {
    /// Counts the body of `response` until it is dropped, and refuses it if too many bytes are counted. Streams are not
    /// counted.
    pub(crate) async fn count(&self, sender: ReadSender, response: Response) -> Response {
        if response.body().size_hint().exact().is_none_or(|bytes| bytes <= SMALL_BYTES as u64) {
            return response;
        }
        let (parts, body) = response.into_parts();
        match to_bytes(body, usize::MAX).await.map(|bytes| self.counted(sender, bytes)) {
            Ok(Ok(bytes)) => Response::from_parts(parts, Body::from(bytes)),
            Ok(Err(busy)) => busy.into_response(),
            Err(error) => Problem::internal("internal", error.to_string()).into_response(),
        }
    }

    fn counted(&self, sender: ReadSender, bytes: Bytes) -> Result<Bytes, Problem> {
        let most = if matches!(sender, ReadSender::Named(_)) { SENDER_KIB } else { ALL_KIB };
        let kib = u32::try_from((bytes.len() >> 10).min(most)).unwrap_or(u32::MAX);
        let own = self.by.get(sender, || Semaphore::new(most));
        let permits = [own, Arc::clone(&self.all)].map(|count| count.try_acquire_many_owned(kib));
        let [Ok(own), Ok(all)] = permits else {
            let detail = "the responses to other requests have not been read: read them, then send this one again";
            return Err(busy(detail.to_owned()));
        };
        Ok(Bytes::from_owner(UnsentBytes { bytes, _permits: [own, all] }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::SenderId;

    /// 200 clients that request a large list and do not read it. The controls: small responses, another sender, and the
    /// same sender after it has read.
    #[tokio::test]
    async fn unread_responses_of_a_sender_are_bounded() {
        let responses = UnsentResponses::default();
        let [one, other] = [b"one", b"two"].map(|name| ReadSender::Named(SenderId::of(blake3::hash(name))));
        let answer =
            async |sender, bytes: usize| responses.count(sender, Response::new(Body::from(vec![0; bytes]))).await;
        let mut unread = Vec::new();
        for _ in 0..200 {
            let response = answer(one, 8 << 20).await;
            unread.extend(response.status().is_success().then_some(response));
        }
        assert_eq!(unread.len(), SENDER_KIB >> 13);
        assert_eq!(answer(one, SMALL_BYTES).await.status(), 200);
        assert_eq!(answer(other, 8 << 20).await.status(), 200);
        assert_eq!(answer(one, 8 << 20).await.status(), 503);
        let body = unread.pop().expect("a response").into_body();
        assert_eq!(to_bytes(body, usize::MAX).await.expect("bytes").len(), 8 << 20);
        assert_eq!(answer(one, 8 << 20).await.status(), 200);
    }
}
