//! Budgets of memory that work shares, such as all calls of file tools in the process. The permits of a tool belong to one registry, but a
//! host has a registry for each workspace, and their calls use the same memory.
//!
//! Work reserves the most that it can take, once and before it takes any of it. So work waits for others, and never for each other.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of one permit.
const UNIT: usize = 64 << 10;

#[derive(Debug)]
pub struct MemoryBudget {
    permits: Semaphore,
    max: usize,
}

/// Memory of a budget, which is free again when this is dropped.
#[derive(Debug)]
pub struct ReservedMemory(SemaphorePermit<'static>);

impl MemoryBudget {
    pub const fn of_mib(mib: usize) -> Self {
        let max = (mib << 20) / UNIT;
        Self { permits: Semaphore::const_new(max), max }
    }

    /// Waits until `bytes` are free, and reserves them: all of the budget if `bytes` exceed it. Returns `None` for no bytes.
    pub async fn reserve(&'static self, bytes: usize) -> Option<ReservedMemory> {
        let permits = u32::try_from(bytes.div_ceil(UNIT).min(self.max)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        if permits == 0 { None } else { self.permits.acquire_many(permits).await.ok().map(ReservedMemory) }
    }

    pub fn reserved(&self) -> usize {
        self.max.saturating_sub(self.permits.available_permits()).saturating_mul(UNIT)
    }
}

impl ReservedMemory {
    /// Keeps the memory of `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        drop(self.0.split(self.0.num_permits().saturating_sub(bytes.div_ceil(UNIT))));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn reservations_wait_until_memory_is_free() {
        static BUDGET: MemoryBudget = MemoryBudget::of_mib(1);
        let reserve = |units| BUDGET.reserve(units * UNIT);
        assert!(reserve(0).await.is_none());
        let mut first = reserve(15).await.unwrap();
        let one = BUDGET.reserve(1).await;
        assert!(BUDGET.reserve(1).now_or_never().is_none());
        first.shrink(14 * UNIT - 1);
        assert_eq!(BUDGET.reserved(), 15 * UNIT);
        drop((first, one));
        let all = BUDGET.reserve(usize::MAX).await;
        assert!(all.is_some() && BUDGET.reserve(1).now_or_never().is_none());
    }
}
