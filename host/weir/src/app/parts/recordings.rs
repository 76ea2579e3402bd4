//! Parts of the endpoints of recordings.

use axum::extract::FromRef;

use crate::app::App;
use crate::recordings::RecordingParts;

impl FromRef<App> for RecordingParts {
    fn from_ref(app: &App) -> Self {
        Self {
            core: app.core.clone(),
            ledger: app.ledger.clone(),
            plugins: app.plugins.clone(),
            recorder: app.inference.recorder.clone(),
            sealing_keys: app.sealing_keys.clone(),
        }
    }
}
