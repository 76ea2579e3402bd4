//! Parts of the endpoints of slots.

use axum::extract::FromRef;
use weir_inference::plugins::PluginParts;

use crate::App;

impl FromRef<App> for PluginParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: app.core.clone(),
            plugins: app.plugins.clone(),
            ledger: app.ledger.clone(),
            catalog: app.catalog.clone(),
        }
    }
}
