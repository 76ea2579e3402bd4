//! Parts that several features take.

use std::sync::Arc;

use axum::extract::FromRef;
use weir_catalog::live::LiveCatalog;
use weir_identity::IdentityParts;
use weir_payments::Payments;
use weir_request::node::Core;
use weir_request::request::BodyReader;

use crate::App;

impl FromRef<App> for Core {
    fn from_ref(app: &App) -> Self {
        app.core.clone()
    }
}

impl FromRef<App> for BodyReader {
    fn from_ref(app: &App) -> Self {
        Self {
            admission: app.admission.clone(),
            limits: app.config.limits.bodies.clone(),
        }
    }
}

impl FromRef<App> for Arc<IdentityParts> {
    fn from_ref(app: &App) -> Self {
        app.identity.clone()
    }
}

impl FromRef<App> for Arc<LiveCatalog> {
    fn from_ref(app: &App) -> Self {
        app.catalog.clone()
    }
}

impl FromRef<App> for Payments {
    fn from_ref(app: &App) -> Self {
        app.payments.clone()
    }
}
