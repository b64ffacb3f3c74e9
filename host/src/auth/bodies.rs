//! Memory budget of request bodies that arrive concurrently.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Semaphore;

use crate::problem::Problem;

/// Budget of all concurrent bodies, in KiB.
const BUDGET_KIB: usize = 64 << 10;
/// Size in KiB up to which a body does not need budget, so that approvals and cancels are never refused.
const SMALL_KIB: usize = 16;
/// Size in KiB that is assumed for a body of unknown size.
const UNKNOWN_KIB: usize = 4 << 10;

/// The memory budget of a host.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget(Arc<Semaphore>);

impl Default for BodyBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BUDGET_KIB)))
    }
}

impl BodyBudget {
    /// Reserves budget for the body of `request` until it is read.
    ///
    /// # Errors
    /// [`Problem`] `busy` if other bodies use up the budget.
    pub(super) fn admit(&self, request: Request) -> Result<Request, Problem> {
        let named = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let size = match named {
            Some(bytes) => usize::div_ceil(bytes, 1024),
            None if request.headers().contains_key(header::TRANSFER_ENCODING) => UNKNOWN_KIB,
            None => 0,
        };
        if size <= SMALL_KIB {
            return Ok(request);
        }
        let share = u32::try_from(size.min(BUDGET_KIB)).unwrap_or(u32::MAX);
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
