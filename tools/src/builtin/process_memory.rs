//! One budget of memory for all calls of file tools in the process. The permits of a tool belong to one registry, but a host has a registry
//! for each workspace, and their calls use the same memory.
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

/// Memory of directory walks: entries, lines, patterns and results.
pub(super) static WALKS: MemoryBudget = MemoryBudget::new(MAX_WALKS);
/// Memory of the contents of files that calls replace.
pub(super) static FILES: MemoryBudget = MemoryBudget::new(MAX_FILES);

pub(super) struct MemoryBudget {
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
    pub(super) async fn reserve(
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
