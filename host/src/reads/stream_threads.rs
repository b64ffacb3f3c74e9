use std::sync::{Arc, OnceLock};

use subtend_actors::run_for_sender;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::{HOLDS_PERMIT, ReadKind, ReadPermits, ReadSender, is_multi_threaded, run_as, run_blocking, to_end};
use crate::problem::Problem;

/// Maximum number of concurrent reads of live views and event streams.
pub(super) const LIVE_READS: usize = 2;
const READ_THREAD: &str = "subtend-reads";

/// The threads that read for requests, live views and event streams. They start with the first read and end when idle.
///
/// The allocator caches memory per thread, so these reads do not use the hundreds of threads of the runtime's pool.
#[derive(Debug)]
pub(super) struct StreamThreads {
    most: usize,
    pool: OnceLock<Option<Runtime>>,
}

impl StreamThreads {
    pub(super) fn new(most: usize) -> Self {
        Self { most, pool: OnceLock::new() }
    }

    /// Returns the pool; `None` if it cannot be created.
    pub(super) fn handle(&self) -> Option<&Handle> {
        let started = self.pool.get_or_init(|| {
            let mut pool = Builder::new_current_thread();
            pool.max_blocking_threads(self.most).thread_name(READ_THREAD).build().ok()
        });
        started.as_ref().map(Runtime::handle)
    }
}

/// Returns `read` as blocking work, which returns `None` after the guard is dropped: a read that waits leaves its thread if its client ends.
fn blocking<T>(read: impl Future<Output = T>) -> (impl FnOnce() -> Option<T>, DropGuard) {
    let (runtime, ended) = (Handle::current(), CancellationToken::new());
    let guard = ended.clone().drop_guard();
    let read = ended.run_until_cancelled_owned(read);
    (move || runtime.block_on(read), guard)
}

/// Runs `read` on a thread of `pool`. If the caller is dropped before the read starts, the read is dropped.
pub(super) async fn run_on<T: Send + 'static>(pool: &Handle, read: impl FnOnce() -> T + Send + 'static) -> T {
    match AbortOnDropHandle::new(pool.spawn_blocking(read)).await {
        Ok(read) => read,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The pool was shut down, so the caller is about to be dropped too.
            Err(_) => std::future::pending().await,
        },
    }
}

impl Drop for StreamThreads {
    fn drop(&mut self) {
        if let Some(Some(pool)) = self.pool.take() {
            // A host may be dropped by a task, which must not wait.
            pool.shutdown_background();
        }
    }
}

impl ReadPermits {
    /// Runs a read of an event stream of `sender` on one of the [`StreamThreads`].
    pub(crate) async fn read_events<T: Send + 'static>(
        &self,
        sender: ReadSender,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let own = self.for_sender(sender);
        let [of_sender, of_all] = [&own.live, &self.all.live].map(|live| Arc::clone(live).acquire_owned());
        // The semaphores are never closed.
        let permits = (of_sender.await, of_all.await);
        let read = move || {
            // A read that its client left has its thread until it ends. So one sender cannot take the threads of all.
            let _held = (permits, own);
            read()
        };
        match self.threads.handle().filter(|_| is_multi_threaded()) {
            Some(pool) => run_on(pool, read).await,
            None => run_blocking(read),
        }
    }

    /// Runs a request of `sender` that reads, with a permit, on one of its threads.
    ///
    /// # Errors
    /// `busy` if other reads take too long.
    pub(super) async fn run_request<T: Send + 'static>(
        &self,
        sender: ReadSender,
        (ends, kind): (Instant, ReadKind),
        read: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Problem> {
        let read = run_for_sender(sender.number(), run_as(sender, HOLDS_PERMIT.scope((), read)));
        let permit = self.acquire(sender, (ends, kind)).await?;
        let Some(pool) = self.request_threads.handle().filter(|_| is_multi_threaded()) else {
            return Ok(to_end(read).await);
        };
        let (read, _guard) = blocking(read);
        let read = move || {
            let _held = permit;
            read()
        };
        match run_on(pool, read).await {
            Some(read) => Ok(read),
            None => std::future::pending().await,
        }
    }

    /// Runs a read of a live view of `sender` on one of the [`StreamThreads`].
    pub(crate) async fn read_view<T: Send + 'static>(
        &self,
        sender: ReadSender,
        read: impl Future<Output = T> + Send + 'static,
    ) -> T {
        if !is_multi_threaded() {
            return run_as(sender, self.read_for_stream(read)).await;
        }
        let (read, _guard) = blocking(run_as(sender, HOLDS_PERMIT.scope((), read)));
        match self.read_events(sender, read).await {
            Some(read) => read,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;
    use crate::auth::SenderId;
    use crate::reads::{SESSION_READS, STORE_READS, permit_deadline};

    /// A thousand concurrent reads of streams, live views and requests use only their threads, also for what they read within. The control:
    /// a wait uses one of the runtime.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn reads_use_few_threads() {
        fn thread() -> (std::thread::ThreadId, Option<String>) {
            let thread = std::thread::current();
            (thread.id(), thread.name().map(str::to_owned))
        }
        let permits = Arc::new(ReadPermits::default());
        let view = |_| {
            let inner = Arc::clone(&permits);
            permits.read_view(ReadSender::Socket, async move {
                tokio::task::yield_now().await;
                inner.read_store(async { thread() }).await.expect("within a read")
            })
        };
        let request = |_| {
            let inner = Arc::clone(&permits);
            let read = async move {
                tokio::task::yield_now().await;
                inner.read_session(async { thread() }).await.expect("within a read")
            };
            permits.run_request(ReadSender::Socket, (permit_deadline(), ReadKind::Session), read)
        };
        let reads = (0..1_000).map(|_| permits.read_events(ReadSender::Socket, thread));
        let (events, views, requests) = futures_util::join!(
            futures_util::future::join_all(reads),
            futures_util::future::join_all((0..1_000).map(view)),
            futures_util::future::try_join_all((0..1_000).map(request)),
        );
        let of = |threads: Vec<_>| threads.into_iter().collect::<HashSet<_>>();
        let streams = of(events.into_iter().chain(views).collect());
        for (used, most) in [(streams, LIVE_READS), (of(requests.expect("permits")), SESSION_READS + STORE_READS)] {
            let named = used.iter().filter(|(_, name)| name.as_deref() == Some(READ_THREAD)).count();
            assert!((1..=most).contains(&used.len()) && named == used.len(), "{used:?}");
        }
        assert_ne!(permits.read_for_stream(async { thread() }).await.1.as_deref(), Some(READ_THREAD));
    }

    /// Attack: a sender that leaves its streams while they read. The control: other senders, and the sender after that read.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn read_that_was_left_keeps_its_permits() {
        let permits = ReadPermits::default();
        let sender = ReadSender::Named(SenderId::of(blake3::hash(b"one")));
        let ((starts, started), (ends, ended)) = (oneshot::channel(), mpsc::channel::<()>());
        let read = permits.read_events(sender, move || (starts.send(()), ended.recv()));
        tokio::select! {
            _ = read => panic!("the read has not ended"),
            started = started => started.expect("a start"),
        }
        assert_eq!(permits.all.live.available_permits(), LIVE_READS - 1);
        assert_eq!(permits.for_sender(sender).live.available_permits(), 0);
        permits.read_events(ReadSender::Socket, || ()).await;
        drop(ends);
        permits.read_events(sender, || ()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[should_panic(expected = "a broken frame")]
    async fn panic_of_a_stream_read_reaches_its_stream() {
        ReadPermits::default().read_events(ReadSender::Socket, || panic!("a broken frame")).await;
    }
}
