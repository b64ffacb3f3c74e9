//! Separate threads for connections to servers, and for work that takes much memory.
//!
//! The HTTP library reads interim responses (1xx) in a loop without yielding. A server that sends them endlessly would block a thread of
//! the runtime: timeouts, cancels and connections to other servers.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NAME: &str = "subtend-http";
const MEMORY_NAME: &str = "subtend-memory";
/// Time after which a thread ends that has no work.
const MEMORY_IDLE: Duration = Duration::from_millis(1);

/// Runs work that may take much memory, on a thread that ends when it has no more of it. The allocator keeps what a thread frees
/// until that thread ends, so the threads of the runtime, which last for many seconds, would each keep the memory of the work
/// that they did.
pub fn spawn_with_memory<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    static THREADS: OnceLock<Option<Runtime>> = OnceLock::new();
    let threads = THREADS.get_or_init(|| {
        Builder::new_current_thread().thread_keep_alive(MEMORY_IDLE).thread_name(MEMORY_NAME).build().ok()
    });
    // A runtime with virtual time has one thread. Its clock waits only for its own work.
    match threads.as_ref().filter(|_| Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread) {
        Some(threads) => threads.spawn_blocking(work),
        None => tokio::task::spawn_blocking(work),
    }
}

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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    thread_local! {
        static ENDS: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
    }

    /// Attack: work that takes much memory, on ever other threads of a pool. The control: work of the runtime's own threads.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn thread_of_work_with_memory_ends_with_it() {
        let work = || {
            let (ends, ended): (Sender<()>, Receiver<()>) = channel();
            ENDS.set(Some(ends));
            ended
        };
        let (brief, lasting) =
            (spawn_with_memory(work).await.unwrap(), tokio::task::spawn_blocking(work).await.unwrap());
        let has_ended = tokio::task::block_in_place(|| brief.recv_timeout(Duration::from_secs(60)));
        assert_eq!(has_ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
        assert_eq!(lasting.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    }
}
