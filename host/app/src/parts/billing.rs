//! Parts of the account pages.

use axum::extract::FromRef;
use weir_accounts::billing::BillingParts;

use crate::App;

impl FromRef<App> for BillingParts {
    fn from_ref(app: &App) -> Self {
        Self {
            database: app.database.clone(),
            cache: app.cache.clone(),
            ledger: app.ledger.clone(),
            exports: app.exports.clone(),
            audit: app.audit.clone(),
            failures: app.failed_requests.clone(),
            content_log: app.content_log.clone(),
        }
    }
}
