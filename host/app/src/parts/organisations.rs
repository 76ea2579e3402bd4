//! Parts of organisations.

use axum::extract::FromRef;
use weir_accounts::organisations::OrganisationParts;

use crate::App;

impl FromRef<App> for OrganisationParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: app.core.clone(),
            ledger: app.ledger.clone(),
            content_log: app.content_log.clone(),
        }
    }
}
