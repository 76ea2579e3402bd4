//! Parts of tasks.

use axum::extract::FromRef;

use crate::app::App;
use crate::tasks::TaskParts;

impl FromRef<App> for TaskParts {
    fn from_ref(app: &App) -> Self {
        Self {
            store: app.task_store.clone(),
            credentials: app.swarms.credentials.clone(),
            swarms: app.swarms.clone(),
        }
    }
}
