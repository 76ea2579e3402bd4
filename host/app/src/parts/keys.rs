//! Parts of the endpoints of keys.

use axum::extract::FromRef;
use weir_accounts::keys::KeyParts;

use crate::App;

impl FromRef<App> for KeyParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: app.core.clone(),
            ledger: app.ledger.clone(),
            catalog: app.catalog.clone(),
            content_log: app.content_log.clone(),
            key_peppers: app.identity.key_peppers.clone(),
        }
    }
}
