//! Parts of model requests, sessions and swarms.

use std::sync::Arc;

use axum::extract::FromRef;
use weir_inference::InferenceParts;
use weir_inference::sessions::Sessions;
use weir_swarms::swarm::Swarms;

use crate::App;

impl FromRef<App> for Arc<InferenceParts> {
    fn from_ref(app: &App) -> Self {
        app.inference.clone()
    }
}

impl FromRef<App> for Sessions {
    fn from_ref(app: &App) -> Self {
        app.inference.sessions.clone()
    }
}

impl FromRef<App> for Arc<Swarms> {
    fn from_ref(app: &App) -> Self {
        app.swarms.clone()
    }
}
