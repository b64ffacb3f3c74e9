//! Threads for work that takes much memory.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinHandle;

const NAME: &str = "subtend-memory";
/// Time after which a thread ends that has no work.
const IDLE_TIME: Duration = Duration::from_millis(1);

/// Runs work that may take much memory, on a thread that ends when it has no more of it. The allocator keeps what a thread frees
/// until that thread ends, so the threads of the runtime, which last for many seconds, would each keep the memory of the work
/// that they did.
pub fn spawn_with_memory<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    static THREADS: OnceLock<Option<Runtime>> = OnceLock::new();
    let threads = THREADS
        .get_or_init(|| Builder::new_current_thread().thread_keep_alive(IDLE_TIME).thread_name(NAME).build().ok());
    // A runtime with virtual time has one thread. Its clock waits only for its own work.
    match threads.as_ref().filter(|_| Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread) {
        Some(threads) => threads.spawn_blocking(work),
        None => tokio::task::spawn_blocking(work),
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
