//! The login of one server, for its connection.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use oauth2::TokenResponse as _;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, CredentialRefreshGuard, CredentialStore, OAuthClientConfig, StoredCredentials,
};

use super::bounded::{BoundedClient, LoginReach, to_message};
use super::step_up::is_plain;
use super::{Login, LoginKey, LoginParties, LoginStore, login_address, tokens};
use crate::http::InternalHost;
use crate::mcp::config::ServerConfig;
use crate::memory_threads::spawn_for;
use crate::secrets::Secrets;

/// Maximum number of redacted secrets, current and earlier.
const MAX_SEEN: usize = 8;
/// A redirect address. The library requires one, but a renewal does not use it.
const UNUSED: &str = "http://127.0.0.1/callback";

/// The login of a server. Cheap to clone.
#[derive(Clone)]
pub(in crate::mcp) struct ServerLogin(Arc<LoginParts>);

struct LoginParts {
    key: LoginKey,
    /// The address of the server; the error is the reason why the server does not use logins.
    url: Result<String, &'static str>,
    store: Option<Arc<dyn LoginStore>>,
    hosts: Vec<InternalHost>,
    /// Tokens and client secrets to redact, oldest first.
    seen: Mutex<VecDeque<String>>,
    /// Advice for the user about the scopes that the last refused request lacked.
    lacking: Mutex<Option<String>>,
}

impl ServerLogin {
    pub(in crate::mcp) fn of(
        config: &ServerConfig,
        workspace: &Path,
        (store, hosts): (Option<&Arc<dyn LoginStore>>, &[InternalHost]),
    ) -> Self {
        Self(Arc::new(LoginParts {
            key: LoginKey::of(config, workspace),
            url: login_address(config).map(str::to_owned),
            store: store.cloned(),
            hosts: hosts.to_vec(),
            seen: Mutex::default(),
            lacking: Mutex::default(),
        }))
    }

    /// Returns the authorization of a connection to `url`, and the parties of its login. Without a login, the connection sends no token.
    ///
    /// # Errors
    /// If the login cannot be read, or belongs to another address.
    pub(in crate::mcp) async fn manager(
        &self,
        url: &str,
    ) -> Result<(AuthorizationManager, Option<Arc<LoginParties>>), String> {
        let reach = LoginReach::of(url, &self.0.hosts)?;
        let client = BoundedClient::for_renewal(reach);
        let Some(login) = self.load()? else {
            let manager = AuthorizationManager::new_with_oauth_http_client(url, client).await.map_err(text)?;
            return Ok((manager, None));
        };
        if self.0.url.as_deref() != Ok(&*login.url) {
            return Err(format!(
                "its login was made for the address `{}`: run {}",
                to_message(&login.url),
                self.command()
            ));
        }
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(&*login.resource, client).await.map_err(text)?;
        let parties = Arc::new(login.parties());
        manager.set_metadata(login.metadata);
        let mut config = OAuthClientConfig::new(login.credentials.client_id, UNUSED);
        config.client_secret = login.client_secret;
        manager.configure_client(config).map_err(text)?;
        manager.set_credential_store(ConnectionLogin { login: self.clone(), parties: Arc::clone(&parties) });
        Ok((manager, Some(parties)))
    }

    /// Returns whether the stored login has other parties than that of a connection, which therefore cannot use it.
    pub(in crate::mcp) fn is_replaced(&self, parties: Option<&LoginParties>) -> bool {
        self.load().is_ok_and(|login| login.is_some_and(|login| Some(&login.parties()) != parties))
    }

    /// Returns advice for the user about a server that requires authorization.
    pub(in crate::mcp) fn advice(&self) -> String {
        match (&self.0.url, &self.0.store) {
            (Err(_), _) => {
                "it refused the `Authorization` header of its configuration: correct it, or remove it to log in"
                    .to_owned()
            }
            (Ok(_), None) => {
                "it requires authorization (OAuth): put a token into `headers`, such as \"Authorization\": \"Bearer \
                              ${TOKEN}\""
                    .to_owned()
            }
            (Ok(_), Some(_)) => {
                let again = if self.load().is_ok_and(|login| login.is_some()) { " again" } else { "" };
                format!("it requires a login (OAuth): log in{again} with {}", self.command())
            }
        }
    }

    /// Returns the advice about the last request for which the login lacked scopes.
    pub(in crate::mcp) fn missing_scope_advice(&self) -> Option<String> {
        self.0.lacking.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns advice for the user about a request for which the login lacks `scopes`, and keeps the advice for reports.
    pub(in crate::mcp) fn scope_advice(&self, scopes: &[String]) -> String {
        let advice = self.advice_about(scopes);
        *self.0.lacking.lock().unwrap_or_else(PoisonError::into_inner) = Some(advice.clone());
        advice
    }

    fn advice_about(&self, scopes: &[String]) -> String {
        let (Ok(_), Some(_)) = (&self.0.url, &self.0.store) else {
            return "it refused the request: the token of its configuration lacks a scope. Configure another token"
                .to_owned();
        };
        let granted = self.load().ok().flatten().map(|login| login.credentials.granted_scopes).unwrap_or_default();
        if scopes.is_empty() {
            return format!("its login lacks a scope, and the server names none: log in again with {}", self.command());
        }
        let named = scopes.join(", ");
        if scopes.iter().all(|scope| granted.contains(scope)) {
            return format!(
                "it refused the request for missing scopes, although its login has them ({named}): ask the server's operator"
            );
        }
        // A new login replaces the old one, so request the old scopes too.
        let all = granted
            .iter()
            .filter(|scope| is_plain(scope))
            .chain(scopes.iter().filter(|scope| !granted.contains(scope)));
        let options: String = all.map(|scope| format!(" --scope {scope}")).collect();
        format!("its login lacks the scopes {named}: log in again with {}", self.command_with(&options))
    }

    fn command(&self) -> String {
        self.command_with("")
    }

    fn command_with(&self, options: &str) -> String {
        let LoginKey { server, workspace } = &self.0.key;
        let workspace = workspace
            .as_ref()
            .map(|path: &PathBuf| format!(" --workspace {}", to_message(&path.display().to_string())));
        format!("`subtend mcp login {server}{}{options}`", workspace.unwrap_or_default())
    }

    /// Returns the tokens of this login, so that they can be redacted.
    pub(in crate::mcp) fn secrets(&self) -> Secrets {
        let name = format!("login of {}", self.0.key.server);
        let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        Secrets::of(seen.iter().map(|token| (name.clone(), token)))
    }

    fn load(&self) -> Result<Option<Login>, String> {
        let (Ok(_), Some(store)) = (&self.0.url, &self.0.store) else { return Ok(None) };
        let login = store.load(&self.0.key)?;
        if let Some(login) = &login {
            self.see(&login.credentials);
            login.client_secret.iter().for_each(|secret| self.see_text(secret));
        }
        Ok(login)
    }

    fn see(&self, credentials: &StoredCredentials) {
        let Some(tokens) = &credentials.token_response else { return };
        let renewing = tokens.refresh_token().map(|token| token.secret());
        [Some(tokens.access_token().secret()), renewing].into_iter().flatten().for_each(|token| self.see_text(token));
    }

    fn see_text(&self, secret: &String) {
        let mut seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // A secret that is still in use becomes the latest one: an authorization server may renew tokens without end.
        seen.retain(|known| known != secret);
        if !secret.is_empty() {
            seen.push_back(secret.clone());
        }
        let excess = seen.len().saturating_sub(MAX_SEEN);
        drop(seen.drain(..excess));
    }

    fn keep(&self, login: Option<&Login>) -> Result<(), AuthError> {
        let Some(store) = &self.0.store else { return Ok(()) };
        store.save(&self.0.key, login).map_err(AuthError::CredentialStoreError)
    }
}

fn text(error: AuthError) -> String {
    to_message(&error.to_string())
}

/// The login with which a connection began. The connection sends tokens to the parties of that login only, so a stored login with
/// other parties counts as absent: the next connection uses it.
struct ConnectionLogin {
    login: ServerLogin,
    parties: Arc<LoginParties>,
}

impl ConnectionLogin {
    fn load_own(&self) -> Result<Option<Login>, AuthError> {
        let login = self.login.load().map_err(AuthError::CredentialStoreError)?;
        Ok(login.filter(|login| login.parties() == *self.parties))
    }
}

#[async_trait]
impl CredentialStore for ConnectionLogin {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.load_own()?.map(|login| login.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        // Do not overwrite a login that the user removed or replaced meanwhile.
        let Some(login) = self.load_own()? else { return Ok(()) };
        let (credentials, sent) = tokens::of_renewal(credentials);
        self.login.see(&credentials);
        self.login.keep(Some(&Login { credentials, ..login }))?;
        sent.map_err(|why| {
            let kept = "the login is kept, and the next use renews it again";
            AuthError::CredentialStoreError(format!("the renewed login cannot be used now: {why}. {kept}"))
        })
    }

    async fn clear(&self) -> Result<(), AuthError> {
        if self.load_own()?.is_some() { self.login.keep(None) } else { Ok(()) }
    }

    /// Removes the tokens, so that a refused token is not sent again.
    async fn on_refresh_token_rejected(&self, refused: &StoredCredentials) -> Result<(), AuthError> {
        let Some(mut login) = self.load_own()? else { return Ok(()) };
        if login.credentials.token_received_at == refused.token_received_at {
            login.credentials.token_response = None;
            self.login.keep(Some(&login))?;
        }
        Ok(())
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let Some(store) = self.login.0.store.clone() else { return Ok(None) };
        let key = self.login.0.key.clone();
        let locked = spawn_for(0, move || store.lock(&key)).await;
        let locked = locked.map_err(|error| error.to_string()).and_then(|locked| locked);
        locked.map(|guard| Some(CredentialRefreshGuard::new(guard))).map_err(AuthError::CredentialStoreError)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::mcp::config::{Origin, ServerTransport};

    /// The control: an old token, which is no longer in use, makes room.
    #[test]
    fn client_secret_is_redacted_after_many_renewals() {
        let config = ServerConfig {
            name: "notes".into(),
            origin: Origin::Person,
            transport: ServerTransport::Http { url: "https://a.example/mcp".to_owned(), headers: BTreeMap::new() },
            timeout: None,
            in_workspace: false,
        };
        let login = ServerLogin::of(&config, Path::new("/w"), (None, &[]));
        for renewal in 0..9 {
            // Each renewal loads the login, and saves two tokens.
            login.see_text(&"secret-0123456789".to_owned());
            login.see_text(&format!("access-{renewal}"));
            login.see_text(&format!("renewing-{renewal}"));
        }
        let text = "secret-0123456789 access-8 access-0";
        assert_eq!(login.secrets().redact(text), "[login of notes redacted] [login of notes redacted] access-0");
    }
}
