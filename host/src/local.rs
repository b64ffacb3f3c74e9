//! Requests of the process that hosts: the API without a socket.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use tower::ServiceExt as _;

use crate::host::Host;

/// Answers requests of this process as the Unix socket answers those of its user. Cheap to clone; it holds the host, so that
/// [`Host::shutdown`] waits until it is dropped.
///
/// ```
/// # use subtend_host::{Body, Host, Request};
/// # async fn example(host: Host) -> Result<(), Box<dyn std::error::Error>> {
/// let request = Request::get("/v1/sessions").body(Body::empty())?;
/// let response = host.local().request(request).await;
/// assert!(response.status().is_success());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Local(Router);

impl Local {
    /// Answers one request.
    ///
    /// # Cancel safety
    /// A command may have taken effect when the future is dropped, as when a client closes its connection.
    pub async fn request(&self, request: Request<Body>) -> Response<Body> {
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

impl Host {
    /// Returns the API for this process.
    pub fn local(&self) -> Local {
        Local(self.router())
    }
}
