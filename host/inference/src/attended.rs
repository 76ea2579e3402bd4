//! BoxedWork that a waiting response polls itself. It becomes a task only when nobody waits any more.
//!
//! A task of its own would cost each plain request two wake-ups and a copy of its result.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use weir_telemetry::request_ids::RequestIds;

/// BoxedWork that must be done, with or without a waiting response.
pub(super) type BoxedWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Boxes a future, which is made in its place. `Box::pin` would make it elsewhere, and copy it with its room for all later
/// values: 16 KB for a request's work.
pub(super) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// BoxedWork that is not done. It goes on as a task if this is dropped.
struct AttendedWork<'t> {
    work: Option<BoxedWork>,
    tasks: &'t TaskTracker,
    ids: RequestIds,
    runtime: Handle,
    _token: TaskTrackerToken,
}

/// Waits for a response that depends on this work, and does the work meanwhile. If the wait is dropped, or the response
/// precedes the end of the work, the rest is a task.
pub(super) async fn attend<T>(
    tasks: &TaskTracker,
    ids: RequestIds,
    work: BoxedWork,
    response: impl Future<Output = T>,
) -> T {
    let mut attended = AttendedWork {
        work: Some(work),
        tasks,
        ids,
        runtime: Handle::current(),
        _token: tasks.token(),
    };
    let mut response = pin!(response);
    poll_fn(|context| {
        // Taken out, so that work that panics is dropped, and not polled again.
        if let Some(mut work) = attended.work.take()
            && work.as_mut().poll(context).is_pending()
        {
            attended.work = Some(work);
        }
        response.as_mut().poll(context)
    })
    .await
}

impl Drop for AttendedWork<'_> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let work = self.ids.clone().scope(work);
            self.tasks.spawn_on(work, &self.runtime);
        }
    }
}
