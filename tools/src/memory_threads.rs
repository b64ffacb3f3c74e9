//! Threads for work that takes much memory.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const NAME: &str = "subtend-memory";

/// What a thread runs.
type ThreadWork = Box<dyn FnOnce() + Send>;

/// Bytes of memory from which on work has a thread of its own.
const OWN_THREAD_BYTES: usize = 1 << 20;

/// Runs blocking work that may take much memory, as [`spawn_for`] does.
pub fn spawn_with_memory<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn_for(usize::MAX, work)
}

/// Runs blocking work that takes up to `bytes` of memory: much of it on a thread that ends with it. The allocator keeps what a thread frees
/// until that thread ends, so the threads of the runtime, which last for many seconds, would each keep the memory of the work that they did.
///
/// If the system refuses a thread, the work runs in a task of the runtime. The queue of a pool would keep the work, and the permits
/// that it holds, until someone without a permit starts a thread. So the permits of callers bound the number of threads.
pub fn spawn_for<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // A runtime with virtual time has one thread. Its clock waits only for its own work.
    let has_own_thread = bytes >= OWN_THREAD_BYTES && Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
    if has_own_thread {
        spawn_by(|run| std::thread::Builder::new().name(NAME.to_owned()).spawn(run).map(drop), work)
    } else {
        // A pool without threads panics if the system refuses one.
        let start = |run| catch_unwind(AssertUnwindSafe(|| drop(tokio::task::spawn_blocking(run))));
        spawn_by(|run| start(run).map_err(|_| io::ErrorKind::WouldBlock.into()), work)
    }
}

/// Runs `work` on the thread that `start` starts.
fn spawn_by<T: Send + 'static>(
    start: impl FnOnce(ThreadWork) -> io::Result<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    // A thread that is refused drops what it should run.
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = Arc::clone(&work);
    let take = move || taken.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (send, receive) = oneshot::channel();
    let run = move || {
        if let Some(work) = take() {
            // An error means that the runtime has ended.
            drop(send.send(catch_unwind(AssertUnwindSafe(work))));
        }
    };
    let refused = match start(Box::new(run)) {
        Ok(()) => None,
        Err(_) => work.lock().unwrap_or_else(PoisonError::into_inner).take(),
    };
    tokio::spawn(async move {
        match refused {
            Some(work) => work(),
            None => match receive.await {
                Ok(Ok(done)) => done,
                Ok(Err(panic)) => resume_unwind(panic),
                Err(closed) => resume_unwind(Box::new(closed)),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use tokio::sync::Semaphore;

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

    /// Attack: a command that uses up the threads of the system. A pool without a thread panicked, and its queue kept the work with
    /// its permit, for which all later work waited. The control: a thread that is not refused, whose panic the caller receives.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_without_a_thread_runs_and_returns_its_permit() {
        let permits = Arc::new(Semaphore::new(1));
        let refuse = |run: ThreadWork| {
            drop(run);
            Err(io::ErrorKind::WouldBlock.into())
        };
        let start = |run: ThreadWork| std::thread::Builder::new().spawn(run).map(drop);
        let starts: [&dyn Fn(ThreadWork) -> io::Result<()>; 2] = [&refuse, &start];
        for start in starts {
            let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
            let done = spawn_by(start, move || (permit, std::thread::current().name() == Some("subtend-memory"))).await;
            drop(done.unwrap());
            let permit = Arc::clone(&permits).try_acquire_owned().unwrap();
            let work = move || {
                let _held = permit;
                std::panic::panic_any("a defect")
            };
            let panic = spawn_by::<()>(start, work).await.unwrap_err().into_panic();
            assert_eq!(panic.downcast_ref(), Some(&"a defect"));
            assert_eq!(permits.available_permits(), 1);
        }
    }
}
