//! The resource limits of one guest, and the count of its memory.
//!
//! Each limit is per exchange, or per call of a tool: a guest lives in a store of its own, dropped after it. The
//! limit of all guests together is in [`crate::memory_budget`].

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use wasmtime::ResourceLimiterAsync;
use wasmtime_wasi::async_trait;

use crate::guest_clock::GuestClock;
use crate::memory_budget::MemoryBudget;

/// Maximum size of a component in bytes; a component written in Python has 18 MB.
pub const COMPONENT_BYTES: usize = 32 << 20;

/// Bytes that the pool reserves for one memory, an upper bound on the configured limit.
pub const MAX_MEMORY_BYTES: u64 = 256 << 20;

/// Bounds on one guest. Configured under `plugins.limits`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestLimits {
    /// Bytes of memories and tables together, at most 256 MiB. Default: 32 MiB.
    pub memory_bytes: NonZeroU64,
    /// Milliseconds of processor time, plus 40 ns a byte of request and response and at least 10 µs a call. Default:
    /// 250.
    pub cpu_ms: NonZeroU64,
    /// Milliseconds of a call by the clock, without waits for threads, memory and other components. Default: 5,000.
    pub call_timeout_ms: NonZeroU64,
    /// Bytes that one call hands to the host. Default: 8 MiB.
    pub call_bytes: NonZeroUsize,
    /// Resource handles. Default: 256.
    pub handles: NonZeroUsize,
    /// Log lines; more are counted and dropped. Default: 200.
    pub log_lines: u32,
    /// Bytes of a log line, which is cut there. Default: 4 KiB.
    pub log_line_bytes: usize,
}

impl Default for GuestLimits {
    fn default() -> Self {
        Self {
            memory_bytes: const { NonZeroU64::new(32 << 20).unwrap() },
            cpu_ms: const { NonZeroU64::new(250).unwrap() },
            call_timeout_ms: const { NonZeroU64::new(5_000).unwrap() },
            call_bytes: const { NonZeroUsize::new(8 << 20).unwrap() },
            handles: const { NonZeroUsize::new(256).unwrap() },
            log_lines: 200,
            log_line_bytes: 4 << 10,
        }
    }
}

/// Processor time of one call of a tool: a tool may read a complete page, not only translate a response as it
/// arrives.
const TOOL_CPU_MS: NonZeroU64 = NonZeroU64::new(2_000).unwrap();

/// Maximum bytes that a tool passes to the host in one call.
const TOOL_CALL_BYTES: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();

impl GuestLimits {
    /// The limits for tools, which have more processor time and pass less data. The caller sets their wall-clock
    /// limit.
    #[must_use]
    pub fn for_tools(&self) -> Self {
        Self {
            cpu_ms: TOOL_CPU_MS,
            call_bytes: TOOL_CALL_BYTES,
            ..self.clone()
        }
    }

    pub(crate) fn cpu_time(&self) -> Duration {
        Duration::from_millis(self.cpu_ms.get())
    }

    pub(crate) fn call_timeout(&self) -> Duration {
        Duration::from_millis(self.call_timeout_ms.get())
    }
}

/// Adds up all memories and tables of a store. `wasmtime::StoreLimits` limits each one separately: a guest with a
/// hundred memories would get a hundred times the limit.
pub(crate) struct Allowance {
    limit_bytes: u64,
    used_bytes: u64,
    /// The budget of all guests; a drop returns this guest's part.
    budget: Arc<MemoryBudget>,
    /// The clock that counts its waits for memory.
    clock: GuestClock,
    /// The last refusal of memory, if any: the guest traps soon after, and this is the reason.
    pub(crate) refused: Option<MemoryRefusal>,
}

/// The reason that a guest got no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryRefusal {
    /// The guest has reached its own limit.
    OwnLimit,
    /// All guests together have reached their limit, and none returned memory in time.
    Budget,
}

impl Allowance {
    pub(crate) fn new(limit_bytes: u64, budget: &Arc<MemoryBudget>, clock: GuestClock) -> Self {
        Self {
            limit_bytes,
            used_bytes: 0,
            budget: budget.clone(),
            clock,
            refused: None,
        }
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    async fn grow(&mut self, current: u64, desired: u64) -> bool {
        let more = desired.saturating_sub(current);
        if self.used_bytes.saturating_add(more) > self.limit_bytes {
            self.refused = Some(MemoryRefusal::OwnLimit);
            return false;
        }
        if !self.take(more).await {
            self.refused = Some(MemoryRefusal::Budget);
            return false;
        }
        self.used_bytes += more;
        true
    }

    async fn take(&self, bytes: u64) -> bool {
        if self.budget.try_take(bytes) {
            return true;
        }
        let _waiting = self.clock.wait();
        self.budget.take(bytes).await
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.budget.give_back(self.used_bytes);
    }
}

#[async_trait]
impl ResourceLimiterAsync for Allowance {
    async fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.grow(current as u64, desired as u64).await)
    }

    async fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |elements: usize| (elements as u64).saturating_mul(size_of::<usize>() as u64);
        Ok(self.grow(bytes(current), bytes(desired)).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memories_and_tables_draw_on_one_allowance() {
        let budget = Arc::new(MemoryBudget::new(2_000));
        let mut allowance = allowance(&budget);
        assert!(grew(allowance.memory_growing(0, 400, None).await));
        assert!(grew(allowance.memory_growing(0, 400, None).await));
        assert!(grew(allowance.table_growing(0, 25, None).await));
        assert_eq!(allowance.refused, None);
        assert!(!grew(allowance.memory_growing(400, 401, None).await));
        assert_eq!(allowance.refused, Some(MemoryRefusal::OwnLimit));
    }

    #[tokio::test]
    async fn all_allowances_draw_on_one_budget_and_give_back_what_they_had() {
        let budget = Arc::new(MemoryBudget::new(1_000));
        let mut first = allowance(&budget);
        let mut second = allowance(&budget);
        assert!(grew(first.memory_growing(0, 600, None).await));
        assert!(!grew(second.memory_growing(0, 600, None).await));
        assert_eq!(second.refused, Some(MemoryRefusal::Budget));
        assert!(grew(second.memory_growing(0, 400, None).await));
        // A waiting guest gets memory that others return meanwhile.
        let (growing, ()) = tokio::join!(second.memory_growing(400, 900, None), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        assert!(grew(growing));
    }

    fn allowance(budget: &Arc<MemoryBudget>) -> Allowance {
        Allowance::new(1_000, budget, GuestClock::new(Duration::ZERO))
    }

    fn grew(outcome: wasmtime::Result<bool>) -> bool {
        outcome.is_ok_and(|grew| grew)
    }
}
