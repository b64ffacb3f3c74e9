//! Separate threads for connections to servers.
//!
//! The HTTP library reads interim responses (1xx) in a loop without yielding. A server that sends them endlessly would block a thread of
//! the runtime: timeouts, cancels and connections to other servers.

use std::future::Future;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

const NAME: &str = "subtend-http";

/// Runs `work` with its connections on a separate thread. The connections end with the work, or when the future is dropped.
///
/// # Errors
/// If the system cannot start a thread.
pub async fn run_separately<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, String> {
    let stop = CancellationToken::new();
    let _dropped = stop.clone().drop_guard();
    let (send, receive) = oneshot::channel();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let run = move || {
        let done = runtime.block_on(stop.run_until_cancelled(work));
        // Do not wait: the system may still be resolving a name.
        runtime.shutdown_background();
        if let Some(done) = done {
            // An error means that the caller has dropped the future.
            drop(send.send(done));
        }
    };
    std::thread::Builder::new().name(NAME.to_owned()).spawn(run).map_err(|error| error.to_string())?;
    receive.await.map_err(|_| "its thread ended".to_owned())
}

/// A thread for the connections of one server. The thread ends when this value is dropped.
pub(crate) struct ServerThread(Option<Runtime>);

impl ServerThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start() -> Result<Self, String> {
        let made = Builder::new_multi_thread().worker_threads(1).thread_name(NAME).enable_all().build();
        made.map(|runtime| Self(Some(runtime))).map_err(|error| error.to_string())
    }

    /// Runs a future on the thread. Its tasks run there too.
    ///
    /// # Errors
    /// If the future panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let Some(runtime) = &self.0 else { return Err("its thread ended".to_owned()) };
        runtime.spawn(work).await.map_err(|error| error.to_string())
    }

    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.0.as_ref().map(Runtime::handle)
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
