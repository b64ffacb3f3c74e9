//! A transport whose server takes the answers to what it asks. The library holds each answer until it is taken: a server that only asks would
//! fill the memory of its host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};

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
}

pub(super) fn answering<T, E, A>(
    transport: T,
    open: OpenRequests,
) -> Answering<impl Transport<RoleClient, Error = E> + 'static>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    Answering { inner: transport.into_transport(), open }
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
        let message = self.inner.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) => self.open.take(&request.id).then_some(message),
            JsonRpcMessage::Notification(notification) => {
                if let ServerNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.open.cancelled(id);
                }
                Some(message)
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Some(message),
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
