//! A transport whose server takes the answers to what it asks. The library holds each answer until it is taken: a server that only asks would
//! fill the memory of its host. It makes a task of each notification: those that this client does not use end here, and progress is shown here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{GetMeta as _, JsonRpcMessage, NotificationMetaObject, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};

use super::client::{Client, ID, is_long};

/// Requests of a server whose answers it has not taken.
const OPEN: usize = 256;

/// Open requests of a server; shared with its connection.
#[derive(Clone, Default)]
pub(super) struct OpenRequests(Arc<Mutex<RequestTable>>);

#[derive(Default)]
struct RequestTable {
    /// Whether the answer is on its way.
    open: HashMap<RequestId, bool>,
    fault: Option<String>,
}

impl OpenRequests {
    fn lock(&self) -> MutexGuard<'_, RequestTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the connection was ended.
    pub(super) fn fault(&self) -> Option<String> {
        self.lock().fault.clone()
    }

    /// Takes a request; false if the server must take answers first.
    fn take(&self, id: &RequestId) -> bool {
        let mut requests = self.lock();
        if is_long(id) {
            requests.fault = Some(format!("it sent a request with an id of more than {ID} bytes"));
            return false;
        }
        let is_new = requests.open.insert(id.clone(), false).is_none();
        if is_new && requests.open.len() <= OPEN {
            return true;
        }
        let why = match is_new {
            true => format!("it sent more than {OPEN} requests whose answers it did not take"),
            false => "it sent two requests of one id at a time".to_owned(),
        };
        requests.fault = Some(why);
        false
    }

    /// A request that its server cancels has no answer, unless that is on its way.
    fn cancelled(&self, id: &RequestId) {
        let mut requests = self.lock();
        if requests.open.get(id) == Some(&false) {
            requests.open.remove(id);
        }
    }

    fn sending(&self, id: &RequestId) {
        if let Some(is_sent) = self.lock().open.get_mut(id) {
            *is_sent = true;
        }
    }

    fn sent(&self, id: &RequestId) {
        self.lock().open.remove(id);
    }
}

/// Bounds the requests of a server.
pub(super) struct Answering<T> {
    inner: T,
    open: OpenRequests,
    client: Client,
    /// Whether the one subscription of a connection was acknowledged.
    is_heard: bool,
}

pub(super) fn answering<T, E, A>(
    transport: T,
    open: OpenRequests,
    client: Client,
) -> Answering<impl Transport<RoleClient, Error = E> + 'static>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    Answering { inner: transport.into_transport(), open, client, is_heard: false }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Answering<T> {
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
            open.sending(id);
        }
        let sent = self.inner.send(item);
        async move {
            let done = sent.await;
            if let Some(id) = &answered {
                open.sent(id);
            }
            done
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let mut message = self.inner.receive().await?;
            match &mut message {
                JsonRpcMessage::Request(request) => return self.open.take(&request.id).then_some(message),
                JsonRpcMessage::Notification(notification) => {
                    if self.is_used(&mut notification.notification) {
                        return Some(message);
                    }
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

impl<T> Answering<T> {
    /// Returns whether the library gets a notification: one of few bytes.
    fn is_used(&mut self, notification: &mut ServerNotification) -> bool {
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
                self.open.cancelled(id);
                cancelled.params.reason = None;
                true
            }
            ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::PromptListChangedNotification(_)
            | ServerNotification::ResourceListChangedNotification(_) => true,
            ServerNotification::SubscriptionsAcknowledgedNotification(_) => {
                !std::mem::replace(&mut self.is_heard, true)
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

    /// The control: what changes the lists is passed on, without what a server adds to it.
    #[test]
    fn notifications_become_no_tasks_that_hold_them() {
        let mut ends =
            Answering { inner: (), open: OpenRequests::default(), client: Client::default(), is_heard: false };
        let mut used = |method: &str, params: serde_json::Value| {
            let mut notification: ServerNotification =
                serde_json::from_value(json!({"method": method, "params": params})).unwrap();
            let used = ends.is_used(&mut notification);
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
