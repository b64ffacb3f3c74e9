//! A login in progress: from the first refusal of a server to the tokens.

use std::sync::Arc;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::{Method, Request, StatusCode};
use reqwest::Url;
use rmcp::model::ProtocolVersion;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata, CredentialStore as _,
    InMemoryCredentialStore, OAuthClientConfig,
};
use serde_json::json;

use super::bounded::{BoundedClient, LoginReach, to_message};
use super::{Login, login_address, tokens};
use crate::http::InternalHost;
use crate::mcp::config::{ServerConfig, ServerTransport};
use crate::secrets::Secrets;

/// Time limit for all requests before the user logs in, and for all requests afterwards.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of the address of the login page.
const MAX_ADDRESS: usize = 8 << 10;
/// Maximum bytes of a parameter of the redirect to this process.
const MAX_PARAMETER: usize = 8 << 10;
/// The metadata field with the methods by which a client can send its secret.
const SECRET_METHODS: &str = "token_endpoint_auth_methods_supported";
const NAMES_ISSUER: &str = "authorization_response_iss_parameter_supported";
/// Parameters that the address of a login page may already contain: they choose a directory of users. Other parameters (such as `scope`,
/// `request` or `audience`) could change or skip the consent of the user.
const PAGE_PARAMETERS: [&str; 4] = ["p", "policy", "realm", "tenant"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(pub String);

impl From<String> for LoginError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

/// A client that the user registered at an authorization server, with an optional secret.
#[derive(Clone, Copy)]
pub struct RegisteredClient<'a> {
    pub id: &'a str,
    pub secret: Option<&'a str>,
}

#[derive(Clone, Copy, Default)]
pub struct LoginOptions<'a> {
    /// The client to use; `None` registers a new client for this login.
    pub client: Option<RegisteredClient<'a>>,
    /// Scopes to request, in addition to those that the server names.
    pub scopes: &'a [String],
    pub internal_hosts: &'a [InternalHost],
}

/// A login that waits for the user. The login page redirects the user's browser back to this process.
pub struct PendingLogin {
    manager: AuthorizationManager,
    client: Arc<BoundedClient>,
    kept: InMemoryCredentialStore,
    address: String,
    state: String,
    redirect: String,
    // The fields of the later `Login`, without tokens.
    url: String,
    resource: String,
    metadata: AuthorizationMetadata,
    /// True if the authorization server promises to name itself as issuer in the redirect (RFC 9207).
    page_names_itself: bool,
    client_secret: Option<String>,
}

/// The origins of a login that are not proven to belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnprovenPage {
    /// The page at which the user logs in.
    pub page: String,
    /// The server that receives the code from the page.
    pub receiver: String,
    /// The authorization server that names both.
    pub issuer: String,
}

impl PendingLogin {
    /// Finds the authorization server of a server, and registers a client there unless `options` has one. `redirect` is the address to which
    /// the browser returns.
    ///
    /// # Errors
    /// If the server requires no login, or its metadata is unusable.
    pub async fn begin(server: &ServerConfig, redirect: &str, options: LoginOptions<'_>) -> Result<Self, LoginError> {
        let beginning = Self::begin_unlimited(server, redirect, options);
        match tokio::time::timeout(TIMEOUT, beginning).await {
            Ok(begun) => begun,
            Err(_) => Err(LoginError(format!("its metadata was not read within {} s", TIMEOUT.as_secs()))),
        }
    }

    async fn begin_unlimited(
        server: &ServerConfig,
        redirect: &str,
        LoginOptions { client: registered, scopes: further, internal_hosts }: LoginOptions<'_>,
    ) -> Result<Self, LoginError> {
        let url = login_address(server).map_err(str::to_owned)?.to_owned();
        let reach = LoginReach::of(&url, internal_hosts)?;
        let client = BoundedClient::for_login(reach.clone());
        let failed = |error: AuthError| LoginError(client.explain(&error.to_string(), &Secrets::default()));
        let challenge = challenge(server, &url, &client).await?;
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(&*url, client.clone()).await.map_err(failed)?;
        let found = manager.resolve_metadata_from_challenge(challenge.as_deref()).await.map_err(failed)?;
        if !found.source.is_discovered() {
            return Err(LoginError("it does not name an authorization server".to_owned()));
        }
        let metadata = usable(found.metadata, &client.document(), &reach)?;
        manager.set_metadata(metadata.clone());
        let kept = InMemoryCredentialStore::new();
        manager.set_credential_store(kept.clone());
        let mut scopes = manager.select_initial_scopes(&[]).await;
        scopes.extend(further.iter().filter(|scope| !scopes.contains(scope)).cloned().collect::<Vec<_>>());
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let config = match registered {
            Some(RegisteredClient { id, secret: None }) => OAuthClientConfig::new(id, redirect),
            Some(RegisteredClient { id, secret: Some(secret) }) => {
                check_secret_method(&metadata)?;
                OAuthClientConfig::new(id, redirect).with_client_secret(secret)
            }
            None if metadata.registration_endpoint.is_none() => {
                let why = "its authorization server registers no clients: register one there, with the redirect address that `--port` \
                           makes, and name it with `--client-id`";
                return Err(LoginError(why.to_owned()));
            }
            None => manager.register_client("subtend", redirect, &scopes).await.map_err(failed)?,
        };
        let client_secret = config.client_secret.clone();
        manager.configure_client(config).map_err(failed)?;
        let address = manager.get_authorization_url(&scopes).await.map_err(failed)?;
        let (state, resource) = parameters(&address)?;
        let redirect = redirect.to_owned();
        let page_names_itself = metadata.additional_fields.get(NAMES_ISSUER).is_some_and(|promised| promised == true);
        let metadata = metadata_for_renewal(&metadata);
        Ok(Self {
            manager,
            client,
            kept,
            address,
            state,
            redirect,
            url,
            resource,
            metadata,
            page_names_itself,
            client_secret,
        })
    }

    /// Returns the address of the page at which the user logs in.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn issuer(&self) -> String {
        to_message(self.metadata.issuer.as_deref().unwrap_or_default())
    }

    /// Returns the origins that the user must confirm before the login. This is necessary if login page, authorization server and
    /// token endpoint have different origins, and the authorization server does not promise to name itself in the redirect.
    /// It prevents a mix-up attack: a hostile authorization server could send the user to the page of another server, to get
    /// that server's code.
    pub fn page_to_confirm(&self) -> Option<UnprovenPage> {
        let origin =
            |address: &str| Url::parse(address).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        let page = UnprovenPage {
            page: origin(&self.metadata.authorization_endpoint),
            receiver: origin(&self.metadata.token_endpoint),
            issuer: origin(self.metadata.issuer.as_deref().unwrap_or_default()),
        };
        let is_one = page.page == page.receiver && page.page == page.issuer;
        (!is_one && !self.page_names_itself).then_some(page)
    }

    /// Returns the address that receives the client secret of this login, if there is a secret.
    pub fn secret_receiver(&self) -> Option<String> {
        self.client_secret.as_ref().map(|_| to_message(&self.metadata.token_endpoint))
    }

    /// Returns the resource of the tokens, if it differs from the server's address. Such tokens are also valid for other servers.
    pub fn wider_resource(&self) -> Option<String> {
        let same = |address: &str| Url::parse(address).map(|url| url.to_string().trim_end_matches('/').to_owned());
        (same(&self.resource).ok() != same(&self.url).ok()).then(|| to_message(&self.resource))
    }

    /// Returns whether the query of a redirect belongs to this login. Any web page can redirect a browser to this process.
    pub fn is_own(&self, query: &str) -> bool {
        parameter(query, "state").is_some_and(|state| state == self.state)
    }

    /// Exchanges the code of the redirect for tokens.
    ///
    /// # Errors
    /// If the user refused, or the redirect is not from the authorization server of this login.
    pub async fn finish(self, query: &str) -> Result<Login, LoginError> {
        match tokio::time::timeout(TIMEOUT, self.finish_unlimited(query)).await {
            Ok(finished) => finished,
            Err(_) => Err(LoginError(format!("its token was not issued within {} s", TIMEOUT.as_secs()))),
        }
    }

    async fn finish_unlimited(self, query: &str) -> Result<Login, LoginError> {
        if !self.is_own(query) {
            return Err(LoginError("the redirect is not of this login".to_owned()));
        }
        if let Some(error) = parameter(query, "error") {
            let about = parameter(query, "error_description")
                .map_or_else(String::new, |text| format!(": {}", to_message(&text)));
            return Err(LoginError(format!("its authorization server refused: {}{about}", to_message(&error))));
        }
        let secret = Secrets::of(self.client_secret.iter().map(|secret| ("client secret", secret)));
        let failed = |error: AuthError| LoginError(self.client.explain(&error.to_string(), &secret));
        let callback = format!("{}?{query}", self.redirect);
        let callback = AuthorizationCallback::from_redirect_url(&callback).map_err(failed)?;
        let (code, state, issuer) = (&callback.code, &callback.csrf_token, callback.issuer.as_deref());
        self.manager.exchange_code_for_token_with_issuer(code, state, issuer).await.map_err(failed)?;
        let credentials = self.kept.load().await.map_err(failed)?;
        let credentials = credentials.ok_or_else(|| LoginError("its authorization server gave no token".to_owned()))?;
        let credentials = tokens::check_tokens(credentials)?;
        let since = credentials.token_received_at.unwrap_or_default();
        let Self { url, resource, metadata, client_secret, .. } = self;
        Ok(Login { url, resource, metadata, client_secret, since, credentials })
    }
}

/// Sends a first message without a token, and returns the `WWW-Authenticate` challenge of the refusal.
async fn challenge(server: &ServerConfig, url: &str, client: &BoundedClient) -> Result<Option<String>, LoginError> {
    let version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {},
        "clientInfo": {"name": "subtend", "version": env!("CARGO_PKG_VERSION")},
    }});
    let mut request = Request::builder().method(Method::POST).uri(url);
    request =
        request.header("content-type", "application/json").header("accept", "application/json, text/event-stream");
    if let ServerTransport::Http { headers, .. } = &server.transport {
        request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    }
    let request = request.body(message.to_string().into_bytes()).map_err(|error| LoginError(error.to_string()))?;
    let answer = client.answer(request, false).await?;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return Err(LoginError(format!("it requires no login: it answered {}", answer.status().as_u16())));
    }
    let challenges: Vec<&str> =
        answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
    let named = challenges.iter().find(|challenge| challenge.to_ascii_lowercase().contains("resource_metadata="));
    Ok(named.or(challenges.first()).map(|challenge| (*challenge).to_owned()))
}

/// Checks the metadata of an authorization server, which was read at the address `document`.
fn usable(
    metadata: AuthorizationMetadata,
    document: &str,
    reach: &LoginReach,
) -> Result<AuthorizationMetadata, LoginError> {
    let wrong = |why: &str| LoginError(format!("its authorization server cannot be used: {why}"));
    let Some(issuer) = metadata.issuer.as_deref().filter(|issuer| !issuer.is_empty()) else {
        return Err(wrong("its metadata does not name an issuer"));
    };
    if !is_place_of(issuer, document) {
        let (issuer, document) = (to_message(issuer), to_message(document));
        return Err(wrong(&format!(
            "its metadata at `{document}` names the issuer `{issuer}`, whose metadata has other addresses (RFC 8414), so it may be \
             forged: ask the operator of the MCP server to list the issuer itself in `authorization_servers`"
        )));
    }
    let methods = metadata.code_challenge_methods_supported.as_deref().unwrap_or_default();
    if !methods.iter().any(|method| method == "S256") {
        return Err(wrong("its metadata does not offer PKCE with S256"));
    }
    let endpoints = [Some(&metadata.authorization_endpoint), Some(&metadata.token_endpoint)];
    for endpoint in endpoints.into_iter().chain([metadata.registration_endpoint.as_ref()]).flatten() {
        let url = Url::parse(endpoint).map_err(|error| wrong(&format!("`{}`: {error}", to_message(endpoint))))?;
        reach.check(&url).map_err(|why| wrong(&why))?;
        if url.fragment().is_some() {
            return Err(wrong(&format!("`{}` has a fragment", to_message(endpoint))));
        }
    }
    // If a parameter occurs twice, a server could use the first one instead of the client's.
    if let Some(set) = refused_parameter(&metadata.authorization_endpoint) {
        let (set, most) = (to_message(&set), PAGE_PARAMETERS.join("`, `"));
        return Err(wrong(&format!(
            "the address of its login page sets `{set}`; only `{most}` with plain values are allowed"
        )));
    }
    Ok(metadata)
}

/// Returns whether `document` is an address at which the metadata of `issuer` may be (RFC 8414, OpenID Connect Discovery, and the address of
/// older MCP servers). The library does not check the issuer of documents at other addresses, so a server could claim to be any issuer.
fn is_place_of(issuer: &str, document: &str) -> bool {
    let (Ok(issuer), Ok(document)) = (Url::parse(issuer), Url::parse(document)) else { return false };
    let path = match issuer.path().trim_matches('/') {
        "" => String::new(),
        path => format!("/{path}"),
    };
    let places = [
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
        format!("{path}/.well-known/openid-configuration"),
        "/.well-known/oauth-authorization-server".to_owned(),
    ];
    issuer.origin() == document.origin() && places.iter().any(|place| place == document.path().trim_end_matches('/'))
}

/// Checks that a secret is accepted in a form that the library supports: a header, if none is listed.
fn check_secret_method(metadata: &AuthorizationMetadata) -> Result<(), LoginError> {
    let Some(serde_json::Value::Array(methods)) = metadata.additional_fields.get(SECRET_METHODS) else { return Ok(()) };
    if methods.iter().any(|method| method == "client_secret_basic" || method == "client_secret_post") {
        return Ok(());
    }
    Err(LoginError("its authorization server does not accept a client secret: leave it out".to_owned()))
}

fn metadata_for_renewal(metadata: &AuthorizationMetadata) -> AuthorizationMetadata {
    let mut kept = AuthorizationMetadata::default();
    kept.authorization_endpoint.clone_from(&metadata.authorization_endpoint);
    kept.token_endpoint.clone_from(&metadata.token_endpoint);
    kept.issuer.clone_from(&metadata.issuer);
    let methods = metadata.additional_fields.get(SECRET_METHODS).cloned();
    kept.additional_fields.extend(methods.map(|methods| (SECRET_METHODS.to_owned(), methods)));
    kept
}

/// Checks the address of the login page, and returns its state and resource.
fn parameters(address: &str) -> Result<(String, String), LoginError> {
    let query = address.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let challenged = parameter(query, "code_challenge_method").is_some_and(|method| method == "S256");
    match (parameter(query, "state"), parameter(query, "resource")) {
        _ if address.len() > MAX_ADDRESS => {
            Err(LoginError(format!("its login page has an address of more than {MAX_ADDRESS} bytes")))
        }
        (Some(state), Some(resource)) if challenged => Ok((state, resource)),
        _ => Err(LoginError("its login page has an address that cannot be used".to_owned())),
    }
}

/// Returns the first parameter that the address of a login page must not contain. Servers parse names differently (some ignore case, or
/// read `scope[0]` as `scope`), so only plain names and values from [`PAGE_PARAMETERS`] are accepted.
fn refused_parameter(endpoint: &str) -> Option<String> {
    let url = Url::parse(endpoint).ok()?;
    let is_plain = |value: &str| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    let may_be_set = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        PAGE_PARAMETERS.contains(&name) && is_plain(value)
    };
    url.query().filter(|query| !query.is_empty())?.split('&').find(|pair| !may_be_set(pair)).map(str::to_owned)
}

/// Returns the value of a query parameter that occurs exactly once.
fn parameter(query: &str, name: &str) -> Option<String> {
    let query = query.split('#').next().unwrap_or_default();
    let url = Url::parse(&format!("http://localhost/?{query}")).ok()?;
    let mut values = url.query_pairs().filter(|(key, _)| key == name).map(|(_, value)| value);
    let value = values.next().filter(|value| value.len() <= MAX_PARAMETER)?;
    values.next().is_none().then(|| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_only_at_addresses_of_its_issuer() {
        let (root, tenant) = ("https://auth.example", "https://auth.example/t/1");
        for (issuer, document, expected) in [
            (root, "https://auth.example/.well-known/oauth-authorization-server", true),
            ("https://auth.example/", "https://auth.example:443/.well-known/openid-configuration?appid=7", true),
            (tenant, "https://auth.example/.well-known/oauth-authorization-server/t/1", true),
            ("https://auth.example/t/1/", "https://auth.example/.well-known/openid-configuration/t/1", true),
            (tenant, "https://auth.example/t/1/.well-known/openid-configuration", true),
            (tenant, "https://auth.example/.well-known/oauth-authorization-server", true),
            (root, "https://auth.example/.well-known/as", false),
            (root, "https://evil.example/.well-known/as", false),
            (root, "https://evil.example/.well-known/oauth-authorization-server", false),
            (root, "https://auth.example:444/.well-known/oauth-authorization-server", false),
            (root, "http://auth.example/.well-known/oauth-authorization-server", false),
            (root, "https://auth.example/t/1/.well-known/openid-configuration", false),
            (tenant, "https://auth.example/t/2/.well-known/openid-configuration", false),
            (tenant, "https://auth.example/.well-known/oauth-authorization-server/t/2", false),
            (tenant, "https://auth.example/t/1/.well-known/oauth-authorization-server", false),
            ("auth.example", "https://auth.example/.well-known/oauth-authorization-server", false),
            (root, "", false),
        ] {
            assert_eq!(is_place_of(issuer, document), expected, "{issuer} {document}");
        }
    }

    #[test]
    fn parameter_that_occurs_twice_counts_as_missing() {
        assert_eq!(parameter("a=1&state=x%20y&b", "state").as_deref(), Some("x y"));
        assert_eq!(parameter("state=x&state=y", "state"), None);
        assert_eq!(parameter("astate=x#state=y", "state"), None);
    }
}
