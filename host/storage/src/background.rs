//! Work that a node repeats in the background: one loop for all of it.
//!
//! **Invariant:** work that fails or hangs is visible. [`Background::list`] has the last success of each, `/metrics` and
//! the operators' overview show it, and the first failure of a row is a warning in the log.

use std::fmt::Display;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Millis;

/// Maximum pause after failures of work that is repeated more often. Longer, and requests would notice: holds of a failed
/// node, for example, wait for their sweep.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Work and its interval.
#[derive(Debug, Clone, Copy)]
pub struct Periodic {
    /// The work as an infinitive: "remove expired sessions".
    pub name: &'static str,
    /// The pause between its end and its next start.
    pub every: Duration,
    /// The pause before its first start.
    pub first_after: Duration,
}

/// The background work of a node. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Background(Arc<Mutex<Vec<Arc<WorkState>>>>);

/// The state of background work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkStatus {
    pub name: &'static str,
    pub every: Duration,
    /// Its last success, by the system's clock; `None` before the first.
    pub last_success: Option<Millis>,
    /// Its failures since the start of the process.
    pub failures: u64,
    /// The failures since its last success.
    pub failures_in_a_row: u64,
}

#[derive(Debug)]
struct WorkState {
    periodic: Periodic,
    /// 0 before the first success.
    last_success: AtomicI64,
    failures: AtomicU64,
    failures_in_a_row: AtomicU64,
}

impl Background {
    /// Repeats work until the future is dropped. After a failure, work that is repeated often pauses longer.
    pub async fn repeat<Work, Run, E>(&self, periodic: Periodic, mut work: Work)
    where
        Work: FnMut() -> Run,
        Run: Future<Output = Result<(), E>>,
        E: Display,
    {
        let state = self.add(periodic);
        tokio::time::sleep(periodic.first_after).await;
        loop {
            let pause = match work().await {
                Ok(()) => state.succeed(),
                Err(error) => state.fail(&error),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Returns the state of all work, by name.
    pub fn list(&self) -> Vec<WorkStatus> {
        let works = self.works();
        let mut list: Vec<_> = works.iter().map(|work| work.status()).collect();
        list.sort_unstable_by_key(|status| status.name);
        list
    }

    fn add(&self, periodic: Periodic) -> Arc<WorkState> {
        let state = Arc::new(WorkState {
            periodic,
            last_success: AtomicI64::new(0),
            failures: AtomicU64::new(0),
            failures_in_a_row: AtomicU64::new(0),
        });
        self.works().push(state.clone());
        state
    }

    fn works(&self) -> std::sync::MutexGuard<'_, Vec<Arc<WorkState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkState {
    /// Notes a success, and returns the pause after it.
    fn succeed(&self) -> Duration {
        self.last_success.store(Millis::now().0, Ordering::Relaxed);
        let failed = self.failures_in_a_row.swap(0, Ordering::Relaxed);
        if failed > 0 {
            tracing::info!(failed, "can {} again", self.periodic.name);
        }
        self.periodic.every
    }

    /// Notes a failure, and returns the pause after it.
    fn fail(&self, error: &impl Display) -> Duration {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let failures = self.failures_in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        // Otherwise, a database that is away for an hour would fill the log.
        if failures.is_power_of_two() {
            tracing::warn!(%error, failures, "cannot {}", self.periodic.name);
        }
        let doubled = u32::try_from(failures).unwrap_or(u32::MAX).min(16);
        let longer = self.periodic.every.saturating_mul(1 << doubled);
        longer.min(MAX_PAUSE.max(self.periodic.every))
    }

    fn status(&self) -> WorkStatus {
        let last_success = self.last_success.load(Ordering::Relaxed);
        WorkStatus {
            name: self.periodic.name,
            every: self.periodic.every,
            last_success: (last_success > 0).then_some(Millis(last_success)),
            failures: self.failures.load(Ordering::Relaxed),
            failures_in_a_row: self.failures_in_a_row.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_repeated_after_failures_and_its_state_is_listed() {
        let background = Background::default();
        let periodic = Periodic {
            name: "count",
            every: Duration::from_millis(1),
            first_after: Duration::ZERO,
        };
        let (done, finished) = tokio::sync::oneshot::channel();
        let (mut done, mut states) = (Some(done), Vec::new());
        let work = background.repeat(periodic, || {
            let state = background.list().remove(0);
            states.push((state.failures, state.failures_in_a_row));
            if let [.., (3, 0)] = states[..]
                && let Some(done) = done.take()
            {
                let _ = done.send(states.clone());
            }
            let is_away = states.len() <= 3;
            std::future::ready(if is_away { Err("away") } else { Ok(()) })
        });
        let states = tokio::select! {
            () = work => unreachable!("it repeats for ever"),
            states = finished => states.expect("five runs"),
        };
        assert_eq!(states, [(0, 0), (1, 1), (2, 2), (3, 3), (3, 0)]);
        let last = background.list().remove(0);
        assert!(last.last_success.is_some());
    }

    #[test]
    fn the_pause_doubles_to_its_maximum() {
        let periodic = |every| Periodic {
            name: "count",
            every,
            first_after: Duration::ZERO,
        };
        let background = Background::default();
        let often = background.add(periodic(Duration::from_millis(100)));
        let pauses = [200, 400, 800, 1_600, 2_000, 2_000].map(Duration::from_millis);
        for pause in pauses {
            assert_eq!(often.fail(&"away"), pause);
        }
        assert_eq!(often.succeed(), Duration::from_millis(100));
        let rarely = background.add(periodic(Duration::from_secs(60)));
        assert_eq!(rarely.fail(&"away"), Duration::from_secs(60));
    }
}
