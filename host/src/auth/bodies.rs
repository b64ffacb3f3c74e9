//! Memory budget of request bodies that arrive concurrently.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use blake3::Hash;
use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use crate::problem::Problem;

/// Maximum bytes of all bodies that arrive at the same time. A sender is refused if it would use more than half of what
/// other senders leave free.
const BUDGET: usize = 64 << 20;
/// Bytes of each body that do not count, so that approvals and cancels, whose bodies are small, are never refused.
const SMALL_BODY: usize = 16 << 10;

#[derive(Clone, Debug, Default)]
pub(super) struct BodyBudget(Arc<Mutex<ArrivedBytes>>);

/// Bytes that have arrived and have not been processed.
#[derive(Debug, Default)]
struct ArrivedBytes {
    all: usize,
    by: HashMap<Hash, usize>,
}

/// The part of the budget that one body holds.
struct BodyShare {
    budget: BodyBudget,
    sender: Hash,
    arrived: AtomicUsize,
}

impl BodyBudget {
    /// Counts the bytes of the body of `request` as they arrive, until both are dropped: a gateway keeps them to retry.
    /// Cancels `full` and stops reading when the sender, or all senders together, have used up the budget.
    pub(super) fn count(&self, mut request: Request, sender: Hash, full: &CancellationToken) -> Request {
        let headers = request.headers();
        let length = headers.get(header::CONTENT_LENGTH);
        let announced = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let is_small = match announced {
            Some(bytes) => bytes <= SMALL_BODY,
            None => !headers.contains_key(header::TRANSFER_ENCODING),
        };
        if is_small {
            return request;
        }
        let share = Arc::new(BodyShare { budget: self.clone(), sender, arrived: AtomicUsize::new(0) });
        request.extensions_mut().insert(Arc::clone(&share));
        let full = full.clone();
        request.map(|body| {
            let pieces = stream::unfold((body.into_data_stream(), share, full), async |(mut from, share, full)| {
                let piece = from.next().await?;
                if piece.as_ref().is_ok_and(|piece| !share.take(piece.len())) {
                    full.cancel();
                    std::future::pending::<()>().await;
                }
                Some((piece, (from, share, full)))
            });
            Body::from_stream(pieces)
        })
    }
}

impl BodyShare {
    /// Takes `bytes` from the budget. Returns false if it has no room for them.
    fn take(&self, bytes: usize) -> bool {
        let before = self.arrived.load(Ordering::Relaxed);
        let (arrived, before) = (before.saturating_add(bytes), before.saturating_sub(SMALL_BODY));
        let more = arrived.saturating_sub(SMALL_BODY).saturating_sub(before);
        let mut held = self.budget.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, all) = (held.of(self.sender).saturating_add(more), held.all.saturating_add(more));
        if more > 0 && own > BUDGET.saturating_sub(all) {
            return false;
        }
        held.set(self.sender, own, all);
        self.arrived.store(arrived, Ordering::Relaxed);
        true
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        let counted = self.arrived.load(Ordering::Relaxed).saturating_sub(SMALL_BODY);
        let mut held = self.budget.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, all) = (held.of(self.sender).saturating_sub(counted), held.all.saturating_sub(counted));
        held.set(self.sender, own, all);
    }
}

impl ArrivedBytes {
    fn of(&self, sender: Hash) -> usize {
        self.by.get(&sender).copied().unwrap_or_default()
    }

    fn set(&mut self, sender: Hash, own: usize, all: usize) {
        self.all = all;
        if own == 0 {
            self.by.remove(&sender);
        } else {
            self.by.insert(sender, own);
        }
    }
}

pub(super) fn busy_problem() -> Problem {
    let detail = "other requests with large bodies are being received: send this one again";
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway keeps a request while it waits for a shard's owner. The control: a dropped request frees its budget.
    #[tokio::test]
    async fn body_counts_until_its_request_is_dropped() {
        const MIB: usize = 1 << 20;
        let budget = BodyBudget::default();
        let held = || budget.0.lock().unwrap_or_else(PoisonError::into_inner).all;
        let sent = Request::post("/v1/sessions").header(header::TRANSFER_ENCODING, "chunked");
        let sent = sent.body(Body::from(vec![b' '; MIB])).expect("a request");
        let (parts, body) = budget.count(sent, blake3::hash(b"token"), &CancellationToken::new()).into_parts();
        let read = axum::body::to_bytes(body, MIB).await.expect("a body");
        assert_eq!((read.len(), held()), (MIB, MIB - SMALL_BODY));
        drop(parts);
        assert_eq!(held(), 0);
    }
}
