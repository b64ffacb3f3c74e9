//! `/condense`: compacts the history in the background while the user can type.

use hyper::Method;
use subtend_session::ids::SessionId;
use tokio::task::JoinHandle;

use super::super::client::Connection;
use super::super::condense::CompactionReply;
use super::super::fail::Fail;

/// The request in progress, if any. Dropping it does not cancel the compaction.
#[derive(Default)]
pub(super) struct Condensing(Option<JoinHandle<Result<String, Fail>>>);

impl Condensing {
    /// Sends the request on its own connection. The host refuses a second compaction while one is in progress.
    pub(super) fn start(&mut self, mut connection: Connection, session: SessionId) {
        let path = format!("/v1/sessions/{session}/compaction");
        self.0 = Some(tokio::spawn(async move {
            let done: CompactionReply = connection.call(Method::POST, &path, None).await?;
            Ok(done.sentence())
        }));
    }

    /// Returns the result of the request in progress; never resolves without one.
    ///
    /// # Cancel safety
    /// Dropping the future does not lose the result.
    pub(super) async fn wait(&mut self) -> Result<String, Fail> {
        let Some(task) = &mut self.0 else { return std::future::pending().await };
        let done = task.await;
        self.0 = None;
        done.unwrap_or_else(|error| Err(Fail::Other(format!("the conversation is not condensed: {error}"))))
    }
}
