//! One budget of memory for all calls of file tools in the process, and one for those of MCP tools. The permits of a tool belong to one
//! registry, but a host has a registry for each workspace, and their calls use the same memory.
//!
//! A call reserves the most that it can take, once and before it takes any of it. So calls wait for others, and never for each other.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::tool::ToolError;

/// Bytes of one permit.
const UNIT: usize = 64 << 10;
/// Maximum bytes of all walks: the walks of one registry, and a search of another one.
const MAX_WALKS: u32 = 384 << 4;
/// Maximum bytes of all files that are replaced. Walks take none of it, so that writes do not wait for them.
const MAX_FILES: u32 = 80 << 4;
/// Maximum bytes of the large arguments of all running calls of MCP tools.
#[cfg(feature = "mcp")]
const MAX_ARGUMENTS: u32 = 128 << 4;
/// Bytes of contents from which on a call has a thread of its own.
const OWN_THREAD_BYTES: usize = 1 << 20;

/// Memory of directory walks: entries, lines, patterns and results.
pub(super) static WALKS: MemoryBudget = MemoryBudget::new(MAX_WALKS);
/// Memory of the contents of files that calls replace.
pub(super) static FILES: MemoryBudget = MemoryBudget::new(MAX_FILES);
/// Memory of the arguments of running calls of MCP tools.
#[cfg(feature = "mcp")]
pub(crate) static ARGUMENTS: MemoryBudget = MemoryBudget::new(MAX_ARGUMENTS);

pub(crate) struct MemoryBudget {
    permits: Semaphore,
    max: u32,
}

impl MemoryBudget {
    const fn new(max: u32) -> Self {
        Self { permits: Semaphore::const_new(max as usize), max }
    }

    /// Waits until `bytes` are free, and reserves them: all of the budget if `bytes` exceed it.
    ///
    /// # Errors
    /// If the call is cancelled meanwhile.
    pub(crate) async fn reserve(
        &self,
        bytes: usize,
        cancel: &CancellationToken,
    ) -> Result<Option<SemaphorePermit<'_>>, ToolError> {
        let permits = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(self.max).min(self.max);
        if permits == 0 {
            return Ok(None);
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ToolError::cancelled()),
            permit = self.permits.acquire_many(permits) => Ok(permit.ok()),
        }
    }
}

/// Runs `work`, which takes `bytes` of memory for contents of files. Large contents have a thread of their own, which ends with
/// them: the allocator keeps what a thread frees until that thread ends, so threads of a pool would keep those of all calls.
///
/// # Errors
/// The error of `work`, or that of a system without threads.
pub(super) fn run_with_contents<T: Send>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, ToolError> + Send,
) -> Result<T, ToolError> {
    if bytes < OWN_THREAD_BYTES {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("subtend-file".to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| ToolError::limit(format!("no thread for a large file: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
impl MemoryBudget {
    pub(super) fn reserved(&self) -> usize {
        (self.max as usize).saturating_sub(self.permits.available_permits()).saturating_mul(UNIT)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Attack: edits of large files on many threads of a pool. The control: small contents.
    #[test]
    fn large_contents_end_with_their_thread() {
        let thread = |bytes| run_with_contents(bytes, || Ok(std::thread::current().id())).unwrap();
        let here = std::thread::current().id();
        assert_eq!([OWN_THREAD_BYTES - 1, OWN_THREAD_BYTES].map(|bytes| thread(bytes) == here), [true, false]);
        let panicked = std::panic::catch_unwind(|| run_with_contents::<()>(OWN_THREAD_BYTES, || panic!("a defect")));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"a defect"));
    }

    #[tokio::test]
    async fn reservations_wait_until_memory_is_free() {
        let budget = MemoryBudget::new(4);
        let cancel = CancellationToken::new();
        let reserve = |bytes| budget.reserve(bytes, &cancel);
        assert!(reserve(0).await.unwrap().is_none());
        let first = reserve(3 * UNIT).await.unwrap();
        let one = reserve(1).await.unwrap();
        assert!(reserve(1).now_or_never().is_none());
        drop((first, one));
        let all = reserve(usize::MAX).await.unwrap();
        assert!(all.is_some() && reserve(1).now_or_never().is_none());
        cancel.cancel();
        assert_eq!(reserve(1).await.err(), Some(ToolError::cancelled()));
    }
}
