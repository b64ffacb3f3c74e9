use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// Maximum number of concurrent reads of live views and event streams.
pub(super) const LIVE_READS: usize = 2;
pub(super) const READ_THREAD: &str = "subtend-reads";

/// The threads that read for event streams. They start with the first read and end when idle.
///
/// The allocator caches memory per thread, so these reads do not use the hundreds of threads of the runtime's pool.
#[derive(Debug, Default)]
pub(super) struct StreamThreads(OnceLock<Option<Runtime>>);

impl StreamThreads {
    /// Returns the pool; `None` if it cannot be created.
    pub(super) fn handle(&self) -> Option<&Handle> {
        let started = self.0.get_or_init(|| {
            let mut pool = Builder::new_current_thread();
            pool.max_blocking_threads(LIVE_READS).thread_name(READ_THREAD).build().ok()
        });
        started.as_ref().map(Runtime::handle)
    }
}

impl Drop for StreamThreads {
    fn drop(&mut self) {
        if let Some(Some(pool)) = self.0.take() {
            // A host may be dropped by a task, which must not wait.
            pool.shutdown_background();
        }
    }
}
