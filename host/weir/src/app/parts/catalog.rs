//! The catalog, for its endpoints.

use std::sync::Arc;

use axum::extract::FromRef;

use crate::app::App;
use crate::catalog::live::LiveCatalog;

impl FromRef<App> for Arc<LiveCatalog> {
    fn from_ref(app: &App) -> Self {
        app.catalog.clone()
    }
}
