//! Parts of MCP.

use axum::extract::FromRef;
use weir_request::request::BodyReader;
use weir_swarms::mcp::McpParts;

use crate::App;

impl FromRef<App> for McpParts {
    fn from_ref(app: &App) -> Self {
        Self {
            tools: app.tools.clone(),
            ledger: app.ledger.clone(),
            admission: app.admission.clone(),
            bodies: BodyReader::from_ref(app),
            call_timeout: app.config.timeouts.total(),
        }
    }
}
