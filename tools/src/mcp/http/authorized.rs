//! Requests with the token of a login.
//!
//! The library's own client renews the token within the future of a request. The end of a call would drop that future after the server has
//! replaced the refresh token, and before the new one is saved. The next request would send the old one again, which servers take for
//! theft: they end the login. So a renewal is a task of its own.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rmcp::transport::auth::{AuthError, AuthorizationManager};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use super::HttpFault;

/// Time limit of a wait for renewals, which is above that of their requests.
const MAX_WAIT: Duration = Duration::from_secs(25);

/// The renewals of this process.
static RENEWALS: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// Waits until the renewals of logins have ended, at most 25 s. To be called before their runtime ends: that of a renewal whose answer is
/// not saved ends the login.
pub async fn renewals_ended() {
    RENEWALS.close();
    // After the time limit, the runtime ends them.
    let _ = tokio::time::timeout(MAX_WAIT, RENEWALS.wait()).await;
}

/// The token of a login. Cheap to clone.
#[derive(Clone)]
pub(super) struct LoginToken {
    manager: Arc<Mutex<AuthorizationManager>>,
    /// The runtime of the caller: that of the connection would end a renewal with the connection.
    runtime: Handle,
}

impl LoginToken {
    /// Must be called within the runtime that renews the token.
    pub(super) fn new(manager: AuthorizationManager) -> Self {
        Self { manager: Arc::new(Mutex::new(manager)), runtime: Handle::current() }
    }

    /// Sends a request with the token, or without one if there is no login. If the server refuses the token, sends it again with a new one.
    pub(super) async fn authorize<T, F>(&self, send: impl Fn(Option<String>) -> F) -> Result<T, HttpFault>
    where
        F: Future<Output = Result<T, HttpFault>>,
    {
        let token = self.get(None).await?;
        let challenge = match send(token.clone()).await {
            Err(HttpFault::AuthRequired(challenge)) => challenge,
            done => return done,
        };
        let renewed = match &token {
            Some(refused) => self.get(Some(refused.clone())).await?.filter(|renewed| renewed != refused),
            None => None,
        };
        match renewed {
            Some(renewed) => send(Some(renewed)).await,
            None => Err(HttpFault::AuthRequired(challenge)),
        }
    }

    /// Returns the token, which is renewed if it has expired or is `refused`. Returns `None` if the user must log in.
    async fn get(&self, refused: Option<String>) -> Result<Option<String>, HttpFault> {
        // The end of a call may drop it while it waits here, so that it leaves no task.
        let manager = Arc::clone(&self.manager).lock_owned().await;
        let renewal = RENEWALS.track_future(async move {
            let token = manager.get_access_token().await?;
            // Another request may have renewed it meanwhile.
            if refused.is_none_or(|refused| token != refused) {
                return Ok(token);
            }
            manager.refresh_token().await.map(|renewed| oauth2::TokenResponse::access_token(&renewed).secret().clone())
        });
        match self.runtime.spawn(renewal).await {
            Ok(Ok(token)) => Ok(Some(token)),
            Ok(Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_))) => Ok(None),
            Ok(Err(error)) => Err(error.into()),
            Err(error) => Err(AuthError::InternalError(error.to_string()).into()),
        }
    }
}
