//! A connection to a server: starts it, lists its tools, and calls them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest, InputRequest,
    InputRequiredResult, JsonObject, ListToolsRequest, PaginatedRequestParams, ProtocolVersion, RequestId,
    ServerCapabilities, ServerResult, SubscriptionFilterBuilder, Tool,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::{ClientCacheConfig, ErrorData, RoleClient};
use subtend_session::values::parse_recorded;

use super::client::Client;
use super::config::{ServerConfig, ServerTransport};
use super::login::{LoginParties, LoginStore, ServerLogin, missing_scopes};
use super::open_calls::ServerCall;
use super::open_requests::{OpenRequests, bounded_transport};
use super::process::{self, ServerLife};
use super::result::{CallFailure, ServerText};
use super::{http, paging, result};
use crate::commands::Commands;
use crate::guard::Guard;
use crate::http::InternalHost;
use crate::sandbox::path_outside;
use crate::threads::ServerThread;
use crate::tool::Progress;

/// Time limit for a server to start, and to list its tools.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);
pub(super) const MAX_TOOLS: usize = 256;
/// Error code of a server that requires the user to open pages first.
const PAGES_REQUIRED: i32 = -32_042;
/// Maximum number of times that a server can request input during one call.
const MAX_ROUNDS: usize = 4;
/// Maximum length in bytes of what a server gets back with its inputs, and maximum number of these. A call that waits to be written holds them.
const MAX_RETURNED: usize = 64 << 10;
const MAX_INPUTS: usize = 16;

/// The settings with which the servers of one environment start.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Working directory of servers that start in the workspace.
    pub workspace: PathBuf,
    /// Working directory of other servers, which do not start without one. Many programs execute files of their working directory.
    pub elsewhere: Option<PathBuf>,
    /// Guard of server processes. Without one, processes that leave their process group may outlive the runtime.
    pub guard: Option<Guard>,
    pub commands: Commands,
    /// The user's logins. Without them, servers that require a login cannot be used.
    pub logins: Option<Arc<dyn LoginStore>>,
    /// Internal hosts that the user listed. Authorization servers may run on them.
    pub internal_hosts: Vec<InternalHost>,
}

pub(super) struct ServerConnection {
    service: RunningService<RoleClient, Client>,
    client: Client,
    life: Option<ServerLife>,
    open: OpenRequests,
    login: ServerLogin,
    /// The parties of the login with which the connection began.
    parties: Option<Arc<LoginParties>>,
    /// The thread that reads the messages of the server.
    _thread: Option<ServerThread>,
}

impl ServerConnection {
    /// Starts a server and negotiates the protocol: version 2026-07-28, or the latest version with a handshake that both support.
    ///
    /// If the server exits during the first attempt, it is restarted with the handshake only.
    pub(super) async fn open(
        config: &ServerConfig,
        settings: &ConnectionSettings,
        login: &ServerLogin,
    ) -> Result<Self, ServerText> {
        let mode = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        match Self::start(config, (settings, login), mode).await {
            Err((_, true)) => Self::start(config, (settings, login), ClientLifecycleMode::Initialize).await,
            started => started,
        }
        .map_err(|(why, _)| why)
    }

    /// Starts a server. The flag in the error is true if the server exited by itself.
    async fn start(
        config: &ServerConfig,
        (settings, login): (&ConnectionSettings, &ServerLogin),
        mode: ClientLifecycleMode,
    ) -> Result<Self, (ServerText, bool)> {
        let (client, open) = (Client::default(), OpenRequests::default());
        let failed = |why: String| (ServerText::from(why), false);
        let (served, life, (thread, parties)) = match &config.transport {
            ServerTransport::Stdio { command, args, env } => {
                // A program that a session put into a directory of the workspace on `PATH` must not run in place of the command.
                let path = (!config.in_workspace)
                    .then(|| ("PATH".into(), path_outside(std::slice::from_ref(&settings.workspace))));
                let env = path.into_iter().chain(env.iter().map(|(name, value)| (name.into(), value.into())));
                let directory =
                    if config.in_workspace { Some(&settings.workspace) } else { settings.elsewhere.as_ref() };
                let no_directory = || failed("it has no directory to start in: set HOME or XDG_CONFIG_HOME".to_owned());
                let directory = directory.ok_or_else(no_directory)?;
                let (command, args, env) = (command.clone(), args.clone(), env.collect::<Vec<_>>());
                let (directory, guard, commands) =
                    (directory.clone(), settings.guard.clone(), settings.commands.clone());
                let (client, open) = (client.clone(), open.clone());
                let thread = ServerThread::start().map_err(failed)?;
                // A server may write any number of messages, so they are read on a thread of its own.
                let serving = thread.run(async move {
                    let environment = (guard.as_ref(), &commands);
                    let process = process::start((&command, &args), env.into_iter(), &directory, environment);
                    let process = process.map_err(|error| format!("cannot start its command: {error}"))?;
                    let transport = bounded_transport((process.stdout, process.stdin), open, client.clone());
                    let serving = serve_client_with_lifecycle(client, transport, mode);
                    Ok((tokio::time::timeout(START_TIMEOUT, serving).await, process.life))
                });
                let (served, life) = serving.await.and_then(|served| served).map_err(failed)?;
                (served, Some(life), (Some(thread), None))
            }
            ServerTransport::Http { url, headers } => {
                let (manager, parties) = login.manager(url).await.map_err(failed)?;
                let (transport, thread) = http::transport(url, headers, manager).map_err(failed)?;
                let transport = bounded_transport(transport, open.clone(), client.clone()).over_http();
                let served =
                    tokio::time::timeout(START_TIMEOUT, serve_client_with_lifecycle(client.clone(), transport, mode))
                        .await;
                (served, None, (Some(thread), parties))
            }
        };
        let service = match served {
            Ok(Ok(service)) => service,
            Ok(Err(error)) => {
                let ended = life.is_some() && matches!(error, ClientInitializeError::ConnectionClosed(_));
                let why = match open.fault() {
                    Some(fault) => fault.into(),
                    None => start_error(&error, life.as_ref(), login).await,
                };
                return Err((why, ended));
            }
            Err(_) => return Err(failed(format!("it did not answer within {} s", START_TIMEOUT.as_secs()))),
        };
        // The library would keep pages of lists for as long as the server says, and would not notice their changes.
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(Self { service, client, life, open, login: login.clone(), parties, _thread: thread })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Returns whether the user has logged in elsewhere meanwhile. Only another connection uses that login.
    pub(super) fn has_replaced_login(&self) -> bool {
        self.login.is_replaced(self.parties.as_deref())
    }

    async fn close_reason(&self) -> ServerText {
        if let Some(fault) = self.open.fault() {
            return fault.into();
        }
        match &self.life {
            Some(life) => life.close_reason().await.into(),
            None => "the connection was closed".into(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn capabilities(&self) -> ServerCapabilities {
        self.service.peer().peer_info().map(|info| info.capabilities.clone()).unwrap_or_default()
    }

    /// Returns the protocol version, and the name that the server reports for itself.
    pub(super) fn server_info(&self) -> (String, Option<String>) {
        let Some(info) = self.service.peer().peer_info() else { return Default::default() };
        let name =
            info.server_info.as_ref().map(|server| result::short(&format!("{} {}", server.name, server.version)));
        (info.protocol_version.as_str().to_owned(), name)
    }

    /// Returns the tools and the problems of the list.
    pub(super) async fn list(&self) -> Result<(Vec<Tool>, Vec<String>), ServerText> {
        let listing = paging::read_all("tools", MAX_TOOLS, |cursor| async move {
            let request = ClientRequest::ListToolsRequest(ListToolsRequest {
                method: Default::default(),
                params: Some(at_cursor(cursor)),
                extensions: Default::default(),
            });
            // Send the request directly: the list that the library caches is outdated after a change.
            match self.send(request, None).await {
                Ok(ServerResult::ListToolsResult(page)) => Ok((page.tools, page.next_cursor)),
                Ok(_) => {
                    let why = "it answered the request for its tools with another kind of result";
                    Err(CallFailure::Refused(why.into()))
                }
                Err(error) => Err(self.classify_error(error).await),
            }
        });
        match tokio::time::timeout(START_TIMEOUT, listing).await {
            Ok(Ok(listed)) => Ok((listed.entries, listed.truncated.into_iter().collect())),
            Ok(Err(CallFailure::Disconnected(why) | CallFailure::Unauthorized(why) | CallFailure::Refused(why))) => {
                Err(why)
            }
            Ok(Err(CallFailure::TimedOut)) => Err("it did not answer in time".into()),
            Err(_) => Err(format!("it did not list its tools within {} s", START_TIMEOUT.as_secs()).into()),
        }
    }

    /// Subscribes to tool changes, which the transport counts. Returns when the subscription ends.
    pub(super) async fn subscribe(peer: Peer<RoleClient>) {
        let modern = peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize());
        if !modern {
            return;
        }
        let filter = SubscriptionFilterBuilder::default().tools_list_changed().build();
        let Ok(mut changes) = peer.listen(filter).await else { return };
        while let Ok(Some(_)) = changes.next().await {}
    }

    pub(super) fn peer(&self) -> Peer<RoleClient> {
        self.service.peer().clone()
    }

    /// Calls a tool. A drop of the future notifies the server that the call is cancelled.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: JsonObject,
        (open, progress): (&ServerCall, &Progress),
    ) -> Result<CallToolResult, CallFailure> {
        // Another round needs the arguments again. Until then they are text, because the tree takes many times as much.
        let failed = |error: serde_json::Error| CallFailure::Refused(error.to_string().into());
        let text = serde_json::to_string(&arguments).map_err(failed)?;
        let with = |arguments: JsonObject| CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut params = with(arguments);
        for _ in 0..MAX_ROUNDS {
            let request = CallToolRequest::new(params);
            let answer = self.request(ClientRequest::CallToolRequest(request), (open, progress)).await?;
            if let ServerResult::CallToolResult(result) = answer {
                return Ok(result);
            }
            let ServerResult::InputRequiredResult(input_required) = answer else {
                return Err(CallFailure::Refused("it answered the call with another kind of result".into()));
            };
            check_inputs(&input_required)?;
            params = with(parse_recorded(&text).map_err(failed)?);
            params.input_responses = Some(self.answers(&input_required, open)?);
            params.request_state = input_required.request_state;
        }
        Err(CallFailure::Refused(format!("it requested input {MAX_ROUNDS} times").into()))
    }

    fn answers(
        &self,
        input_required: &InputRequiredResult,
        open: &ServerCall,
    ) -> Result<rmcp::model::InputResponses, CallFailure> {
        let answer = |(key, request): (&String, &InputRequest)| {
            let InputRequest::Elicitation(request) = request else {
                return Err(CallFailure::Refused("it requested something that this client does not support".into()));
            };
            let answered = serde_json::to_value(self.client.answer(&request.params, Some(open)));
            Ok((key.clone(), answered.map_err(|error| CallFailure::Refused(error.to_string().into()))?))
        };
        input_required.input_requests.iter().flatten().map(answer).collect()
    }

    async fn request(
        &self,
        request: ClientRequest,
        (open, progress): (&ServerCall, &Progress),
    ) -> Result<ServerResult, CallFailure> {
        match self.send(request, Some(progress)).await {
            Ok(result) => Ok(result),
            Err(error) => Err(self.call_error(error, open).await),
        }
    }

    /// Sends a request. A drop of the future cancels the request: otherwise the library would keep its stream open.
    async fn send(&self, request: ClientRequest, progress: Option<&Progress>) -> Result<ServerResult, ServiceError> {
        let handle = self.service.peer().send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        let mut watch =
            RequestWatch { connection: self, id: Some(handle.id.clone()), token: handle.progress_token.clone() };
        if let Some(progress) = progress {
            self.client.watch(watch.token.clone(), progress.clone());
        }
        let answered = handle.await_response().await;
        watch.id = None;
        answered
    }

    /// Classifies the error of a call, and keeps the pages that the user must open first.
    pub(super) async fn call_error(&self, error: ServiceError, open: &ServerCall) -> CallFailure {
        if let ServiceError::McpError(ErrorData { code, data: Some(data), .. }) = &error
            && code.0 == PAGES_REQUIRED
        {
            open.keep_pages(data);
        }
        self.classify_error(error).await
    }

    async fn classify_error(&self, error: ServiceError) -> CallFailure {
        if let ServiceError::McpError(ErrorData { code, message, .. }) = &error {
            return CallFailure::Refused(format!("{} (code {})", result::short(message), code.0).into());
        }
        if error.is_authorization_required() {
            return CallFailure::Unauthorized(self.login.advice().into());
        }
        if let Some(scopes) = missing_scopes(&error) {
            return CallFailure::Refused(self.login.scope_advice(&scopes).into());
        }
        let sending = matches!(error, ServiceError::TransportSend(_)) && self.life.is_some();
        if sending || matches!(error, ServiceError::TransportClosed) {
            return CallFailure::Disconnected(self.close_reason().await);
        }
        CallFailure::Refused(result::short(&result::chain(&error)).into())
    }
}

/// Refuses a request for too many inputs, or with too much that its server gets back.
fn check_inputs(required: &InputRequiredResult) -> Result<(), CallFailure> {
    let keys = required.input_requests.iter().flatten().map(|(key, _)| key);
    let bytes: usize = keys.chain(&required.request_state).map(String::len).sum();
    let count = required.input_requests.as_ref().map_or(0, |inputs| inputs.len());
    if bytes <= MAX_RETURNED && count <= MAX_INPUTS {
        return Ok(());
    }
    let why = format!(
        "it requested {count} inputs with keys and a state of {bytes} bytes, the limits are {MAX_INPUTS} and {MAX_RETURNED}"
    );
    Err(CallFailure::Refused(why.into()))
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.client.changes().end();
    }
}

pub(super) fn at_cursor(cursor: Option<String>) -> PaginatedRequestParams {
    let mut params = PaginatedRequestParams::default();
    params.cursor = cursor;
    params
}

/// A request in flight. A drop before the answer notifies the server that the request is cancelled.
struct RequestWatch<'a> {
    connection: &'a ServerConnection,
    id: Option<RequestId>,
    token: rmcp::model::ProgressToken,
}

impl Drop for RequestWatch<'_> {
    fn drop(&mut self) {
        self.connection.client.unwatch(&self.token);
        let Some(id) = self.id.take() else { return };
        let peer = self.connection.peer();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let params = CancelledNotificationParam::new(Some(id), Some("the call was cancelled".to_owned()));
                // An error means that the connection has ended.
                drop(peer.notify_cancelled(params).await);
            });
        }
    }
}

async fn start_error(error: &ClientInitializeError, life: Option<&ServerLife>, login: &ServerLogin) -> ServerText {
    if error.is_authorization_required() {
        return login.advice().into();
    }
    if let Some(scopes) = missing_scopes(error) {
        return login.scope_advice(&scopes).into();
    }
    let disconnected =
        matches!(error, ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. });
    match life {
        Some(life) if disconnected => life.close_reason().await.into(),
        _ => result::short(&start_cause(error)).into(),
    }
}

fn start_cause(error: &ClientInitializeError) -> String {
    if let ClientInitializeError::TransportError { error, .. } = error {
        return result::chain(error);
    }
    if let ClientInitializeError::LegacyFallbackFailed { fallback, .. } = error {
        return start_cause(fallback);
    }
    result::chain(error)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Attack: a server that collects the calls of many sessions, and never reads their next rounds. The controls: the largest requests.
    #[test]
    fn requests_for_input_are_bounded() {
        let check = |count: usize, key: usize, state: usize| {
            let ask = json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}});
            let inputs: serde_json::Map<_, _> =
                (0..count).map(|n| (format!("{n:02}{}", "k".repeat(key - 2)), ask.clone())).collect();
            let required =
                json!({"resultType": "input_required", "inputRequests": inputs, "requestState": "s".repeat(state)});
            check_inputs(&serde_json::from_value(required).unwrap()).is_ok()
        };
        let accepted = [(1, 2, MAX_RETURNED - 2), (MAX_INPUTS, 2, 0), (1, MAX_RETURNED, 0)];
        assert_eq!(accepted.map(|(count, key, state)| check(count, key, state)), [true; 3]);
        let refused = [(1, 2, MAX_RETURNED - 1), (MAX_INPUTS + 1, 2, 0), (1, MAX_RETURNED + 1, 0)];
        assert_eq!(refused.map(|(count, key, state)| check(count, key, state)), [false; 3]);
    }
}
