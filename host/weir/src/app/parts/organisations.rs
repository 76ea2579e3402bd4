//! Parts of organisations.

use axum::extract::FromRef;

use crate::app::App;
use crate::organisations::OrganisationParts;

impl FromRef<App> for OrganisationParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: app.core.clone(),
            ledger: app.ledger.clone(),
            content_log: app.content_log.clone(),
        }
    }
}
