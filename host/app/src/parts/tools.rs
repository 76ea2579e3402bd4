//! Tools, and remote tools.

use axum::extract::FromRef;
use weir_tools::Tools;
use weir_tools::remote::RemoteTools;

use crate::App;

impl FromRef<App> for Tools {
    fn from_ref(app: &App) -> Self {
        app.tools.clone()
    }
}

impl FromRef<App> for RemoteTools {
    fn from_ref(app: &App) -> Self {
        app.remotes.clone()
    }
}
