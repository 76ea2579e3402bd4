//! Tasks of one kind that run side by side: a bounded number at once, and never two under one key.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::{Id, JoinSet};

/// Tasks that run at once.
const AT_ONCE: usize = 16;

/// The pause after a task that panicked, during which its key stays taken. Whoever starts tasks would else start it again
/// at once.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

/// Tasks under way, each under a key. Dropping this ends them.
#[derive(Default)]
pub(super) struct KeyedTasks {
    tasks: JoinSet<()>,
    keys: HashMap<Id, String>,
}

impl KeyedTasks {
    /// How many more tasks may start now.
    pub(super) fn free(&self) -> usize {
        AT_ONCE.saturating_sub(self.keys.len())
    }

    /// The keys of the tasks under way.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.values().map(String::as_str)
    }

    /// Starts a task, unless one of its key is under way or all places are taken. Returns whether it did.
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

    /// Waits until a task ends, for ever if none is under way. May be dropped at any moment.
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
