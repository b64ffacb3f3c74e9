//! OAuth logins for servers that require them.
//!
//! The user logs in with a browser ([`PendingLogin`]). A [`LoginStore`] keeps each [`Login`] outside of workspaces. The token is sent only
//! to the address of its server, and never across a redirect. See `docs/decisions/0045-mcp-oauth.md`.

mod bounded;
mod credentials;
mod pending;
mod step_up;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};

use rmcp::transport::auth::{AuthorizationMetadata, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subtend_session::ids::Text;

use super::config::{Origin, ServerConfig, ServerTransport};

pub(super) use credentials::ServerLogin;
pub use pending::{LoginError, LoginOptions, PendingLogin, RegisteredClient, UnprovenPage};
pub(super) use step_up::missing_scopes;

/// The server to which a login belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LoginKey {
    pub server: Text,
    /// The workspace whose file configures the server; `None` for a server of the user.
    pub workspace: Option<PathBuf>,
}

impl LoginKey {
    /// Returns the key of a server, as it is configured in `workspace`.
    pub fn of(server: &ServerConfig, workspace: &Path) -> Self {
        let workspace = (server.origin == Origin::Workspace).then(|| workspace.to_owned());
        Self { server: server.name.clone(), workspace }
    }
}

/// A login for a server, with its tokens.
#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    /// The address of the server. The token is sent nowhere else.
    url: String,
    /// The resource for which the tokens were issued.
    resource: String,
    /// The endpoints of the authorization server.
    metadata: AuthorizationMetadata,
    client_secret: Option<String>,
    /// Time of the login, in seconds since 1970.
    since: u64,
    credentials: StoredCredentials,
}

/// The servers and the client of a login: all but its tokens.
#[derive(PartialEq, Eq)]
pub(super) struct LoginParties {
    url: String,
    resource: String,
    client_id: String,
    client_secret: Option<String>,
    metadata: Value,
}

/// A summary of a login, without its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginReport {
    pub url: String,
    pub issuer: String,
    pub scopes: Vec<String>,
    pub since: u64,
    /// The expiry of the token, in seconds since 1970.
    pub expires: Option<u64>,
    /// True if the token can be renewed without the user.
    pub is_renewed: bool,
    /// False if the authorization server refused to renew the token.
    pub is_valid: bool,
}

impl Login {
    fn parties(&self) -> LoginParties {
        LoginParties {
            url: self.url.clone(),
            resource: self.resource.clone(),
            client_id: self.credentials.client_id.clone(),
            client_secret: self.client_secret.clone(),
            // The type has no equality. It was read from JSON, or is saved as such.
            metadata: serde_json::to_value(&self.metadata).unwrap_or_default(),
        }
    }

    pub fn report(&self) -> LoginReport {
        let tokens = self.credentials.token_response.as_ref();
        let lasts = tokens.and_then(oauth2::TokenResponse::expires_in).map(|lasts| lasts.as_secs());
        LoginReport {
            url: self.url.clone(),
            issuer: self.metadata.issuer.clone().unwrap_or_default(),
            scopes: self.credentials.granted_scopes.clone(),
            since: self.since,
            expires: self.credentials.token_received_at.zip(lasts).map(|(at, lasts)| at.saturating_add(lasts)),
            is_renewed: tokens.is_some_and(|tokens| oauth2::TokenResponse::refresh_token(tokens).is_some()),
            is_valid: tokens.is_some(),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("url", &self.url).field("issuer", &self.metadata.issuer).finish_non_exhaustive()
    }
}

/// Storage for logins. Its functions may block.
pub trait LoginStore: fmt::Debug + Send + Sync {
    /// Returns a login, if it exists.
    ///
    /// # Errors
    /// If the logins cannot be read.
    fn load(&self, key: &LoginKey) -> Result<Option<Login>, String>;

    /// Replaces a login, or removes it if `login` is `None`. The caller holds the lock of the login.
    ///
    /// # Errors
    /// If the logins cannot be written.
    fn save(&self, key: &LoginKey, login: Option<&Login>) -> Result<(), String>;

    /// Waits for the lock of this login, and holds it until the returned value is dropped. The lock prevents two processes from using a
    /// token that is valid only once. Each login has a separate lock, because a lock is held while an authorization server answers.
    ///
    /// # Errors
    /// If the login cannot be locked.
    fn lock(&self, key: &LoginKey) -> Result<Box<dyn Send>, String>;
}

/// Returns the address of a server that may require a login: an HTTP server without a configured `Authorization` header.
///
/// # Errors
/// Returns the reason why the server does not use logins.
pub fn login_address(server: &ServerConfig) -> Result<&str, &'static str> {
    match &server.transport {
        ServerTransport::Stdio { .. } => Err("it is a process: only servers with `url` support logins"),
        ServerTransport::Http { headers, .. }
            if headers.keys().any(|name| name.eq_ignore_ascii_case("authorization")) =>
        {
            Err("its `headers` have an `Authorization`: remove it to log in")
        }
        ServerTransport::Http { url, .. } => Ok(url),
    }
}
