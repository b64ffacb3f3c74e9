//! The API for the hosting process, without a socket.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use tower::ServiceExt as _;

use crate::host::Host;

/// Client for requests within this process, with the rights of the Unix socket. Cheap to clone. [`Host::shutdown`]
/// waits until all clones are dropped.
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
    /// Answers a request.
    ///
    /// # Cancel safety
    /// A command may have taken effect even if the future is dropped.
    pub async fn request(&self, request: Request<Body>) -> Response<Body> {
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

impl Host {
    /// Returns a client for this process.
    pub fn local(&self) -> Local {
        Local(self.router())
    }
}
