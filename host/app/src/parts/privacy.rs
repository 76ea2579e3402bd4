//! Parts of the export of personal data.

use axum::extract::FromRef;

use crate::App;
use crate::privacy::PrivacyParts;

impl FromRef<App> for PrivacyParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: app.core.clone(),
            tasks: app.task_store.clone(),
            failures: app.failed_requests.clone(),
            content_log: app.content_log.clone(),
            credentials: app.swarms.credentials.clone(),
        }
    }
}
