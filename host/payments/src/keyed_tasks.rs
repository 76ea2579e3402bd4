//! Concurrent tasks: a bounded number in all, and at most one per key.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{Id, JoinSet};

/// Maximum number of concurrent tasks.
const AT_ONCE: usize = 16;

/// A key stays taken for this pause after a panic, because the task would otherwise start again at once.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

/// Running tasks by key. Dropping this aborts them.
#[derive(Default)]
pub(super) struct KeyedTasks {
    tasks: JoinSet<()>,
    keys: HashMap<Id, String>,
}

impl KeyedTasks {
    /// Number of tasks that can start now.
    pub(super) fn free(&self) -> usize {
        AT_ONCE.saturating_sub(self.keys.len())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.values().map(String::as_str)
    }

    /// Starts a task, unless its key is taken or the maximum is reached. Returns whether it started.
    pub(super) fn start(
        &mut self,
        key: &str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        if self.free() == 0 || self.keys().any(|taken| taken == key) {
            return false;
        }
        let task = self.tasks.spawn(async move {
            if AssertUnwindSafe(task).catch_unwind().await.is_err() {
                tracing::error!("a task of payments has panicked");
                tokio::time::sleep(PAUSE_AFTER_PANIC).await;
            }
        });
        self.keys.insert(task.id(), key.to_owned());
        true
    }

    /// Waits until a task ends, and forever if none runs. The future can be dropped at any time.
    pub(super) async fn ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => error.id(),
            None => return pending().await,
        };
        self.keys.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn no_key_has_two_tasks_and_a_panic_frees_its_place() {
        static GO_ON: Semaphore = Semaphore::const_new(0);
        let mut tasks = KeyedTasks::default();
        let wait = async || drop(GO_ON.acquire().await);
        assert!(tasks.start("alice", wait()));
        assert!(!tasks.start("alice", wait()));
        for number in 1..AT_ONCE {
            assert!(tasks.start(&number.to_string(), wait()));
        }
        assert_eq!(tasks.free(), 0);
        assert!(!tasks.start("bob", wait()));
        GO_ON.add_permits(1);
        for _ in 0..AT_ONCE {
            tasks.ended().await;
        }
        assert_eq!(tasks.free(), AT_ONCE);
        assert!(tasks.start("alice", async { panic!("on purpose") }));
        tasks.ended().await;
        assert!(tasks.start("alice", wait()));
    }
}
