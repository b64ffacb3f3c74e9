//! A transport that limits the open requests of a server and filters its notifications.
//!
//! The MCP library holds each answer until the server reads it. A server that only sends requests would fill the host's memory. The library
//! also spawns a task for each notification, so this transport drops unused notifications and handles progress itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{GetMeta as _, JsonRpcMessage, NotificationMetaObject, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client::{Client, MAX_ID, is_long};

/// Maximum number of requests whose answers the server has not read.
const MAX_OPEN: usize = 256;
/// Time limit for closing a transport, because writing to a pipe that the server does not read blocks.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Open requests of a server; shared with its connection.
#[derive(Clone, Default)]
pub(super) struct OpenRequests(Arc<Mutex<RequestTable>>);

#[derive(Default)]
struct RequestTable {
    /// Open requests; true if the answer is being sent.
    open: HashMap<RequestId, bool>,
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

    /// Adds a request. Returns false if the connection must end.
    fn add(&self, id: &RequestId) -> bool {
        let mut requests = self.lock();
        if is_long(id) {
            requests.fault = Some(format!("it sent a request with an id of more than {MAX_ID} bytes"));
            return false;
        }
        let is_new = requests.open.insert(id.clone(), false).is_none();
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

    /// Removes a request that the server cancelled, unless its answer is being sent.
    fn remove_cancelled(&self, id: &RequestId) {
        let mut requests = self.lock();
        if requests.open.get(id) == Some(&false) {
            requests.open.remove(id);
        }
    }

    fn mark_sending(&self, id: &RequestId) {
        if let Some(is_sent) = self.lock().open.get_mut(id) {
            *is_sent = true;
        }
    }

    fn mark_sent(&self, id: &RequestId) {
        self.lock().open.remove(id);
    }
}

/// The bounded transport of one server.
pub(super) struct BoundedTransport<T> {
    inner: T,
    open: OpenRequests,
    client: Client,
    /// True once the connection's only subscription was acknowledged.
    is_acknowledged: bool,
    /// Cancelled when the connection ends. Then unread messages are dropped, because the library would wait for them.
    ended: CancellationToken,
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
    BoundedTransport {
        inner: transport.into_transport(),
        open,
        client,
        is_acknowledged: false,
        ended: CancellationToken::new(),
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let open = self.open.clone();
        if let Some(id) = &answered {
            open.mark_sending(id);
        }
        let (sent, ended) = (self.inner.send(item), self.ended.clone());
        async move {
            let done = tokio::select! {
                biased;
                () = ended.cancelled() => Ok(()),
                done = sent => done,
            };
            if let Some(id) = &answered {
                open.mark_sent(id);
            }
            done
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let mut message = self.inner.receive().await?;
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
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        timeout(CLOSE_TIMEOUT, self.inner.close()).await.unwrap_or(Ok(()))
    }
}

impl<T> BoundedTransport<T> {
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
                self.open.remove_cancelled(id);
                cancelled.params.reason = None;
                true
            }
            // Count the change here, in the order of messages: the library spawns a task for it, which a later result could overtake.
            ServerNotification::ToolListChangedNotification(_) => {
                self.client.changes().report();
                true
            }
            ServerNotification::PromptListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_) => true,
            ServerNotification::SubscriptionsAcknowledgedNotification(_) => {
                !std::mem::replace(&mut self.is_acknowledged, true)
            }
            ServerNotification::LoggingMessageNotification(_)
            | ServerNotification::ResourceUpdatedNotification(_)
            | ServerNotification::TaskStatusNotification(_)
            | ServerNotification::CustomNotification(_)
            | _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The control: list changes are passed on, without additional data.
    #[test]
    fn unused_notifications_are_dropped() {
        let mut transport = BoundedTransport {
            inner: (),
            open: OpenRequests::default(),
            client: Client::default(),
            is_acknowledged: false,
            ended: CancellationToken::new(),
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
        let (passed, text) = used("notifications/tools/list_changed", json!({"_meta": {"a": long}}));
        assert!(passed && !text.contains("xxx"), "{text}");
    }
}
