//! Tools, and remote tools.

use axum::extract::FromRef;

use crate::app::App;
use crate::tools::Tools;
use crate::tools::remote::RemoteTools;

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
