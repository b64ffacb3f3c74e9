//! A transport that limits open requests of a server and waiting messages, checks ids of answers, and filters notifications.
//!
//! The MCP library holds each message until the server reads it. A server that only sends requests, or that reads nothing, would fill the
//! host's memory. The library also spawns a task for each notification, so this transport drops unused notifications and handles progress
//! itself.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ErrorCode, GetMeta as _, JsonRpcError, JsonRpcMessage, NotificationMetaObject, RequestId,
    ServerNotification, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::client::{Client, MAX_ID, is_long};
use super::handshake;
use super::http::MAX_POSTS;
use super::kept_schemas::KeptSchemas;
use super::message_pace::MessagePace;
use super::sent_requests::SentRequests;

/// Maximum number of requests whose answers the server has not read.
const MAX_OPEN: usize = 256;
/// Time limit for closing a transport, because writing to a pipe that the server does not read blocks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for sending a cancel, so that few wait for a server that does not read. Until it is sent, the library keeps the stream of the
/// cancelled call. Over HTTP, cancels wait for each other.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

const WRONG_ANSWER: &str = "it answered a request that is not open: with a wrong id, or for the second time";

const NO_ID: &str = "it answered one of several requests by an error without an id";

/// Open requests of a server; shared with its connection.
#[derive(Clone, Default)]
pub(super) struct OpenRequests(Arc<Mutex<RequestTable>>);

#[derive(Default)]
struct RequestTable {
    /// Requests whose answers are not sent yet.
    open: HashSet<RequestId>,
    fault: Option<String>,
}

impl OpenRequests {
    fn lock(&self) -> MutexGuard<'_, RequestTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why this transport ended the connection, if it did.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    fn set_fault(&self, why: &str) {
        self.lock().fault = Some(why.to_owned());
    }

    /// Adds a request. Returns false if the connection must end.
    fn add(&self, id: &RequestId) -> bool {
        let mut requests = self.lock();
        if is_long(id) {
            requests.fault = Some(format!("it sent a request with an id of more than {MAX_ID} bytes"));
            return false;
        }
        let is_new = requests.open.insert(id.clone());
        if is_new && requests.open.len() <= MAX_OPEN {
            return true;
        }
        let why = match is_new {
            true => format!("it sent more than {MAX_OPEN} requests without reading the answers"),
            false => "it sent two open requests with the same id".to_owned(),
        };
        requests.fault = Some(why);
        false
    }

    fn is_open(&self, id: &RequestId) -> bool {
        self.lock().open.contains(id)
    }

    fn mark_sent(&self, id: &RequestId) {
        self.lock().open.remove(id);
    }
}

pub(super) struct BoundedTransport<T> {
    inner: T,
    open: OpenRequests,
    sent: Arc<Mutex<SentRequests>>,
    /// One permit for each message that may be written at a time. The others wait here, where they can be dropped.
    writes: Arc<Semaphore>,
    /// The permits of answers and cancels, for which the server may wait before it answers a request.
    controls: Arc<Semaphore>,
    /// True if each message is posted by a request of its own.
    is_http: bool,
    client: Client,
    /// True once the connection's only subscription was acknowledged.
    is_acknowledged: bool,
    /// The schemas that the library keeps, if it keeps them.
    kept: Option<KeptSchemas>,
    /// Cancelled when the connection ends. Then unread messages are dropped, because the library would wait for them.
    ended: CancellationToken,
    pace: MessagePace,
}

pub(super) fn bounded_transport<T, E, A>(
    transport: T,
    open: OpenRequests,
    client: Client,
) -> BoundedTransport<impl Transport<RoleClient, Error = E> + 'static>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let writes = Arc::new(Semaphore::new(1));
    BoundedTransport {
        inner: transport.into_transport(),
        open,
        sent: Arc::default(),
        controls: Arc::clone(&writes),
        writes,
        is_http: false,
        client,
        is_acknowledged: false,
        kept: None,
        ended: CancellationToken::new(),
        pace: MessagePace::default(),
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (mut is_cancel, mut request, mut withdrawn) = (false, None, CancellationToken::new());
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(asked) => {
                withdrawn = self.requests().wait(&asked.id);
                request = Some(asked.id.clone());
                None
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    is_cancel = true;
                    if !self.requests().cancel(id) {
                        // Do not send the cancel of a request that was not sent.
                        withdrawn.cancel();
                    }
                }
                None
            }
        };
        let is_control = is_cancel || matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let (sent, ended, open) = (self.inner.send(item), self.ended.clone(), self.open.clone());
        let (requests, is_http) = (Arc::clone(&self.sent), self.is_http);
        let writes = Arc::clone(if is_control { &self.controls } else { &self.writes });
        async move {
            let write = async {
                // An error would mean that the semaphore is closed, which never happens.
                let _permit = writes.acquire().await;
                match &request {
                    Some(id) if !lock(&requests).begin(id, is_http) => Ok(()),
                    Some(_) | None => sent.await,
                }
            };
            let done = tokio::select! {
                biased;
                () = ended.cancelled() => Ok(()),
                () = withdrawn.cancelled() => Ok(()),
                done = write => done,
                // The rest of a message whose write has begun is in the buffer of the library, and is written first by the next write.
                () = sleep(CANCEL_TIMEOUT), if is_cancel => Ok(()),
            };
            if let Some(id) = &answered {
                open.mark_sent(id);
            }
            if let Some(id) = &request {
                lock(&requests).finish(id, done.is_ok());
            }
            done
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            self.pace.wait().await;
            let mut message = self.inner.receive().await?;
            self.pace.count();
            match &mut message {
                JsonRpcMessage::Request(request) if self.open.add(&request.id) => return Some(message),
                JsonRpcMessage::Request(_) => {
                    self.ended.cancel();
                    return None;
                }
                JsonRpcMessage::Notification(notification) => {
                    if self.prepare(&mut notification.notification) {
                        return Some(message);
                    }
                }
                JsonRpcMessage::Response(response) if self.requests().answer(&response.id) => {
                    let Err(fault) = self.check_result(&mut response.result) else { return Some(message) };
                    self.open.set_fault(&fault);
                    self.ended.cancel();
                    return None;
                }
                JsonRpcMessage::Error(error) => {
                    let Err(fault) = self.check_error(error) else { return Some(message) };
                    self.open.set_fault(fault);
                    self.ended.cancel();
                    return None;
                }
                JsonRpcMessage::Response(_) => {
                    self.open.set_fault(WRONG_ANSWER);
                    self.ended.cancel();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        timeout(CLOSE_TIMEOUT, self.inner.close()).await.unwrap_or(Ok(()))
    }
}

/// Returns whether an error without an id may be the answer to a notification, by a server that takes it for a request.
fn is_of_notification(code: ErrorCode) -> bool {
    [ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST].contains(&code)
}

fn lock(requests: &Mutex<SentRequests>) -> MutexGuard<'_, SentRequests> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> BoundedTransport<T> {
    /// Adapts the limits to a connection over HTTP. The library keeps schemas there, and sends each message by a request of its own, which it
    /// drops when its call is cancelled or answered.
    pub(super) fn over_http(mut self) -> Self {
        self.kept = Some(KeptSchemas::default());
        self.is_http = true;
        self.writes = Arc::new(Semaphore::new(MAX_POSTS));
        self.controls = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        self
    }

    fn requests(&self) -> MutexGuard<'_, SentRequests> {
        lock(&self.sent)
    }

    /// Removes the unneeded parts of a result. Returns an error if the connection must end.
    fn check_result(&mut self, result: &mut ServerResult) -> Result<(), String> {
        if !handshake::strip(result) {
            return Err(handshake::LONG_VERSION.to_owned());
        }
        if let (Some(kept), ServerResult::ListToolsResult(page)) = (&mut self.kept, result) {
            kept.add(&page.tools)?;
        }
        Ok(())
    }

    /// Finds the request of an error. Returns an error if the connection must end.
    fn check_error(&self, error: &mut JsonRpcError) -> Result<(), &'static str> {
        let mut requests = self.requests();
        // Over HTTP, the error in the response to a request has its id.
        if error.id.is_none() && !self.is_http && !is_of_notification(error.error.code) {
            let mut open = requests.open();
            error.id = open.next().cloned();
            if open.next().is_some() {
                return Err(NO_ID);
            }
        }
        match &error.id {
            Some(id) if !requests.answer(id) => Err(WRONG_ANSWER),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns whether the library needs a notification, and removes its unneeded parts.
    fn prepare(&mut self, notification: &mut ServerNotification) -> bool {
        let meta = notification.get_meta_mut();
        let subscription = meta.subscription_id().filter(|id| !is_long(id));
        *meta = NotificationMetaObject::new();
        if let Some(id) = subscription {
            meta.set_subscription_id(id);
        }
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                self.client.progress(&progress.params);
                false
            }
            ServerNotification::CancelledNotification(cancelled) => {
                let Some(id) = cancelled.params.request_id.as_ref().filter(|id| !is_long(id)) else { return false };
                cancelled.params.reason = None;
                // Each request is answered at once, also a cancelled one: it counts until its answer is sent. The library would drop only some
                // of these answers. It needs the cancel of a subscription, which is its own request.
                !self.open.is_open(id)
            }
            // Count the change here, in the order of messages: the library would spawn a task for it, which a later result could overtake.
            ServerNotification::ToolListChangedNotification(_) => {
                self.client.changes().report();
                false
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(_) => {
                !std::mem::replace(&mut self.is_acknowledged, true)
            }
            ServerNotification::PromptListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_)
            | ServerNotification::LoggingMessageNotification(_)
            | ServerNotification::ResourceUpdatedNotification(_)
            | ServerNotification::TaskStatusNotification(_)
            | ServerNotification::CustomNotification(_)
            | _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::ClientResult;
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::super::message_pace::{BURST, PAUSE};
    use super::*;

    /// The server reads nothing at first. The controls: the message whose write has begun, its cancel, and a message whose call is open.
    #[tokio::test(start_paused = true)]
    async fn waiting_messages_end_with_their_calls() {
        const CALLS: i64 = 100;
        let (server, client) = tokio::io::duplex(64);
        let mut transport = bounded_transport(tokio::io::split(client), OpenRequests::default(), Client::default());
        let mut server = tokio::io::BufReader::with_capacity(1, server);
        let mut sends = JoinSet::new();
        for id in 0..CALLS {
            let params = json!({"name": "x".repeat(1_000)});
            let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            sends.spawn(transport.send(serde_json::from_value(request).unwrap()));
        }
        assert!(!server.fill_buf().await.unwrap().is_empty());
        for id in 0..CALLS - 1 {
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
            sends.spawn(transport.send(serde_json::from_value(cancel).unwrap()));
        }
        let dropped = async {
            while sends.len() > 3 {
                sends.join_next().await.unwrap().unwrap().unwrap();
            }
        };
        timeout(CANCEL_TIMEOUT * 9 / 10, dropped).await.unwrap();
        let mut lines = server.lines();
        let mut received = Vec::new();
        while received.len() < 3 {
            let line: serde_json::Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
            received.push(line.get("id").unwrap_or(&line["params"]["requestId"]).clone());
        }
        assert_eq!(received, [0, CALLS - 1, 0]);
        assert!(sends.join_all().await.into_iter().all(|sent| sent.is_ok()));
    }

    /// Its call would wait for the time limit. The controls: errors that servers give for notifications, and an error while no request is open.
    #[tokio::test]
    async fn error_without_an_id_ends_its_request_or_the_connection() {
        for (requests, code, expected) in [
            (1, -32_700, Ok(json!(0))),
            (1, -32_603, Ok(json!(0))),
            (2, -32_700, Err(NO_ID)),
            (2, -32_601, Ok(json!(null))),
            (1, -32_600, Ok(json!(null))),
            (0, -32_700, Ok(json!(null))),
        ] {
            let (server, client) = tokio::io::duplex(1 << 20);
            let open = OpenRequests::default();
            let mut transport = bounded_transport(tokio::io::split(client), open.clone(), Client::default());
            let (_requests, mut out) = tokio::io::split(server);
            for id in 0..requests {
                let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
                transport.send(serde_json::from_value(ping).unwrap()).await.unwrap();
            }
            let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": "no"}});
            out.write_all(format!("{error}\n").as_bytes()).await.unwrap();
            let received = transport.receive().await.map(|message| serde_json::to_value(message).unwrap()["id"].take());
            assert_eq!(
                received.ok_or_else(|| open.fault().unwrap()),
                expected.map_err(str::to_owned),
                "{requests}, {code}"
            );
        }
    }

    /// The answer of a cancelled request is still sent, and fills the memory if the server does not read it. The control: sent answers.
    #[tokio::test]
    async fn cancelled_requests_count_until_they_are_answered() {
        let (server, client) = tokio::io::duplex(1 << 20);
        let open = OpenRequests::default();
        let mut transport = bounded_transport(tokio::io::split(client), open.clone(), Client::default());
        let (_answers, mut out) = tokio::io::split(server);
        for id in 0..=2 * MAX_OPEN {
            let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
            let lines = if id < MAX_OPEN { format!("{ping}\n") } else { format!("{ping}\n{cancel}\n") };
            out.write_all(lines.as_bytes()).await.unwrap();
            let Some(JsonRpcMessage::Request(request)) = transport.receive().await else { break };
            if id < MAX_OPEN {
                transport.send(JsonRpcMessage::response(ClientResult::empty(()), request.id)).await.unwrap();
            }
        }
        assert_eq!(open.lock().open.len(), MAX_OPEN + 1);
        assert_eq!(open.fault().unwrap(), "it sent more than 256 requests without reading the answers");
    }

    /// Attack: a server writes messages without end, also answers to no request. The control: fewer messages.
    #[tokio::test(start_paused = true)]
    async fn messages_are_read_at_a_bounded_rate() {
        for line in [
            json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
            json!({"jsonrpc": "2.0", "id": 9, "result": {}}),
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_601, "message": "no"}}),
        ] {
            for (messages, pauses) in [(BURST - 1, 0), (100 * BURST, 100)] {
                let (server, client) = tokio::io::duplex(1 << 20);
                let open = OpenRequests::default();
                let mut transport = bounded_transport(tokio::io::split(client), open, Client::default());
                let (requests, mut out) = tokio::io::split(server);
                let begun = Instant::now();
                out.write_all(format!("{line}\n").repeat(messages).as_bytes()).await.unwrap();
                drop((requests, out));
                while transport.receive().await.is_some() {}
                assert_eq!(begun.elapsed(), PAUSE * pauses, "{line}");
            }
        }
    }

    /// The control: cancels are passed on, without additional data.
    #[test]
    fn unused_notifications_are_dropped() {
        let mut transport = BoundedTransport {
            inner: (),
            open: OpenRequests::default(),
            sent: Arc::default(),
            writes: Arc::new(Semaphore::new(1)),
            controls: Arc::new(Semaphore::new(1)),
            is_http: false,
            client: Client::default(),
            is_acknowledged: false,
            kept: None,
            ended: CancellationToken::new(),
            pace: MessagePace::default(),
        };
        let mut used = |method: &str, params: serde_json::Value| {
            let mut notification: ServerNotification =
                serde_json::from_value(json!({"method": method, "params": params})).unwrap();
            let used = transport.prepare(&mut notification);
            (used, serde_json::to_string(&notification).unwrap())
        };
        let long = "x".repeat(1_000);
        assert!(!used("notifications/progress", json!({"progressToken": 1, "progress": 1, "message": long})).0);
        assert!(!used("notifications/message", json!({"level": "info", "data": long})).0);
        assert!(!used("notifications/anything", json!({"a": long})).0);
        assert!(!used("notifications/cancelled", json!({"requestId": long})).0);
        let (passed, text) = used("notifications/cancelled", json!({"requestId": 1, "reason": long}));
        assert!(passed && !text.contains("xxx"), "{text}");
        for list in ["tools", "prompts", "resources"] {
            assert!(!used(&format!("notifications/{list}/list_changed"), json!({"_meta": {"a": long}})).0, "{list}");
        }
    }
}
