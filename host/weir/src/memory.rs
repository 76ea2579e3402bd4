//! The allocator of the process.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A request allocates and frees some hundreds of small objects, some of them on another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A thread returns memory at most this often.
const INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    static RETURNED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
}

unsafe extern "C" {
    /// Returns the free memory of this thread's heap to the system; with `force`, all of it at once.
    safe fn mi_collect(force: bool);
}

/// Returns memory that this thread no longer needs to the system. The allocator itself does so only while a thread allocates:
/// after many streams, idle threads would keep half of their memory.
pub(crate) fn return_free_memory() {
    let now = Instant::now();
    let is_due = |returned_at: Instant| now.duration_since(returned_at) >= INTERVAL;
    RETURNED_AT.with(|returned_at| {
        if returned_at.get().is_none_or(is_due) {
            returned_at.set(Some(now));
            mi_collect(false);
        }
    });
}
