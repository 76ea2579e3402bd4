//! Parts of the endpoints of recordings.

use axum::extract::FromRef;
use weir_inference::recordings::RecordingParts;

use crate::App;

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
