//! Memory for request bodies that arrive at the same time.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// KiB of all bodies that arrive at the same time.
const BUDGET: usize = 64 << 10;
/// KiB of a body that has no share of the budget, so that a decision or a cancellation is never refused.
const SMALL: usize = 16;
/// KiB that count for a body of unknown size.
const UNKNOWN: usize = 4 << 10;

/// The budget of a host.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget(Arc<Semaphore>);

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET)))
    }
}

impl BodyBudget {
    /// Gives the body of `request` its share, until it was read.
    ///
    /// # Errors
    /// [`Problem`] `busy` where other bodies have the budget.
    pub(super) fn admit(&self, request: Request) -> Result<Request, Problem> {
        let named = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let size = match named {
            Some(bytes) => usize::div_ceil(bytes, 1024),
            None if request.headers().contains_key(header::TRANSFER_ENCODING) => UNKNOWN,
            None => 0,
        };
        if size <= SMALL {
            return Ok(request);
        }
        let share = u32::try_from(size.min(BUDGET)).unwrap_or(u32::MAX);
        let Ok(share) = Arc::clone(&self.0).try_acquire_many_owned(share) else {
            let detail = "other requests with large bodies are being received: send this one again";
            return Err(Problem {
                retry_after: Some(1),
                ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
            });
        };
        Ok(request.map(|body| {
            let pieces = stream::unfold((body.into_data_stream(), share), async |(mut from, share)| {
                let piece = from.next().await?;
                Some((piece, (from, share)))
            });
            Body::from_stream(pieces)
        }))
    }
}
