//! Parts of tasks.

use axum::extract::FromRef;
use weir_swarms::tasks::TaskParts;

use crate::App;

impl FromRef<App> for TaskParts {
    fn from_ref(app: &App) -> Self {
        Self {
            store: app.task_store.clone(),
            credentials: app.swarms.credentials.clone(),
            swarms: app.swarms.clone(),
        }
    }
}
